"""What no result needs is not computed.

    r[i] = p[t[i]]  with p of one element   →   r[i] = p[0]
    r[i] = p[i] <= p[i]  of integers        →   r[i] = true
    t[i] = f(i)     read by nothing else    →   (nothing)

A subscript stays inside its dimension whatever the data is, so in a dimension of one element it is 0. Compilers warn of
integers that are compared with themselves; of floats NaN decides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dlc.kernel.expr import Apply, Const, Expr, Load, substitute, walk
from dlc.kernel.nest import Kernel, Nest
from dlc.kernel.simplify import is_index

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
    """The nest with comparisons of a value with itself decided."""
    found: dict[Expr, Expr] = {}
    for e in nest.exprs():
        for x in walk(e):
            match x:
                case Apply(fn, (a, b)) if fn in _OF_ITSELF and a == b:
                    dtype = kernel.dtype_of(a)
                    if dtype is not None and not dtype.is_float:
                        found[x] = Const(_OF_ITSELF[fn])
                case _:
                    pass
    return nest.map(lambda e: substitute(e, found)) if found else nest
