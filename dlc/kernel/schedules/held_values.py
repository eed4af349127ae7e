"""Functions that take long are read from a local that holds their value already.

    e[i,j] = exp(f(i,j));  r[i,j] = g(i,j)·exp(f(i,j))   →   e[i,j] = exp(f(i,j));  r[i,j] = g(i,j)·e[i,j]

Gradients compute again what the kernel that they are of had computed. The bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dlc.base.types import f32, f64
from dlc.kernel.expr import Apply, Axis, Expr, Load, axes_in, loads, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.schedules.products import DEAR
from dlc.kernel.simplify import is_index


def with_held_values(kernel: Kernel) -> Kernel:
    """An equal kernel (see the module's equation)."""
    known: dict[Expr, tuple[str, tuple[int, ...]]] = {}
    nests: list[Nest] = []
    for k, nest in enumerate(kernel.nests):
        found: dict[Expr, Expr] = {}
        for e in _dear(kernel, k) if known else ():
            key, axes = _positional(e)
            if key in known:
                name, order = known[key]
                found[e] = Load(name, tuple(axes[d] for d in order))
        nest = replace(nest, body=substitute(nest.body, found)) if found else nest
        nests.append(nest)
        if nest.out in kernel.local_numbers and _is_dear(nest.body) and nest.body in _dear(kernel, k):
            key, axes = _positional(nest.body)
            plain = plain_write(nest, kernel.tensors[nest.out].shape) and nest.reduce is None
            if plain and kernel.writers[nest.out] == (k,) and set(axes) == set(nest.index):
                known.setdefault(key, (nest.out, tuple(axes.index(i) for i in nest.index if isinstance(i, Axis))))
    return replace(kernel, nests=tuple(nests))


def _positional(e: Expr) -> tuple[Expr, tuple[Axis, ...]]:
    """An expression with its axes named in the order in which they appear, and these axes."""
    axes = axes_in(e)
    return substitute(e, {a: a.named(f"o{k}") for k, a in enumerate(axes)}), axes


def _dear(kernel: Kernel, k: int) -> Iterator[Expr]:
    """Functions that take long, of what is settled before, and that a nest computes at every point."""
    nest = kernel.nests[k]
    stack = [nest.body] if nest.where is None else []
    while stack:
        e = stack.pop()
        if not isinstance(e, Apply):
            continue
        if _is_dear(e) and all(_settled(x, k, kernel) for x in loads(e)):
            yield e
        # Branches may load where nothing else may.
        stack += e.args[:1] if e.fn == "select" else e.args


def _is_dear(e: Expr) -> bool:
    if not isinstance(e, Apply) or not e.has_load or is_index(e):
        return False
    scalar = SCALARS[e.fn]
    return bool(scalar.lanes) and not scalar.infix and scalar.cycles >= DEAR


def _settled(load: Load, k: int, kernel: Kernel) -> bool:
    """Whether nothing that is written from a nest on changes what it loads."""
    p = kernel.tensors[load.param]
    floats = p.storage in (f32, f64) and not p.packed and not p.type.is_open
    return floats and max(kernel.writers.get(load.param, (-1,))) < k
