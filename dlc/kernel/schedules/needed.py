"""What no result needs is not computed.

    r[i] = p[t[i]]  with p of one element   →   r[i] = p[0]
    r[i] = p[i] <= p[i]  of integers        →   r[i] = true
    r[i] = p[i] >= 0     of unsigned ones   →   r[i] = true
    t[i] = f(i)     read by nothing else    →   (nothing)

A subscript stays inside its dimension whatever the data is, so in a dimension of one element it is 0. Compilers warn of
integers that are compared with themselves, and of those that no value of their type can fail or pass; of floats NaN
decides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dlc.kernel.expr import Apply, Const, Expr, Load, substitute, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import MIRRORED, is_index

_OF_ITSELF: Final = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False, "xor": False}
"""What a comparison of a value with itself gives."""


def only_needed(kernel: Kernel) -> Kernel:
    """An equal kernel without nests and locals that its results do not depend on."""

    def within(index: tuple[Expr, ...], name: str) -> tuple[Expr, ...]:
        extents = kernel.tensors[name].shape
        return tuple(Const(0) if d == 1 and not is_index(e) else e for e, d in zip(index, extents, strict=True))

    def inside(n: Nest) -> Nest:
        subscripts = ((name, x.index) for name, xs in n.loads.items() for x in xs)
        if all(within(index, name) == index for name, index in (*subscripts, (n.out, n.index))):
            return n
        n = replace(n, index=within(n.index, n.out))
        return n.map_loads(lambda x: Load(x.param, within(x.index, x.param)))

    nests = tuple(_decided(inside(n), kernel) for n in kernel.nests)
    simple = replace(kernel, nests=nests)
    needed = simple.needed(*(r.name for r in kernel.results))
    kept = tuple(n for k, n in enumerate(nests) if k in needed)
    named = {name for n in kept for name in (n.out, *n.reads())}
    return replace(simple, nests=kept, locals=tuple(p for p in kernel.locals if p.name in named))


def _decided(nest: Nest, kernel: Kernel) -> Nest:
    """The nest with comparisons decided that a value makes with itself, or with the least or largest of its type."""
    found: dict[Expr, Expr] = {}
    for e in nest.exprs():
        for x in walk(e):
            if isinstance(x, Apply) and x.fn in _OF_ITSELF:
                value = _outcome(x, kernel)
                if value is not None:
                    found[x] = Const(value)
    return nest.map(lambda e: substitute(e, found)) if found else nest


def _outcome(comparison: Apply, kernel: Kernel) -> bool | None:
    fn, (a, b) = comparison.fn, comparison.args
    if isinstance(a, Const) and fn in MIRRORED:
        fn, a, b = MIRRORED[fn], b, a
    dtype = kernel.dtype_of(a)
    if dtype is None or dtype.is_float:
        return None
    if a == b:
        return _OF_ITSELF[fn]
    if not isinstance(b, Const) or isinstance(a, Const):
        return None
    least, largest = dtype.limits
    match fn:
        case "lt" | "ge" if b.value <= least:
            return fn == "ge"
        case "gt" | "le" if b.value >= largest:
            return fn == "le"
        case _:
            return None
