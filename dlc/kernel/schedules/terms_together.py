"""What several nests add to a tensor is added up at once, where the last of them is.

    t[i,j] += f(i,j);  s[i] += g(i,k);  t[i,j] += s[i]     →     s[i] += g(i,k);  t[i,j] = f(i,j) + s[i]
    t[i] += f(i);  t[i] += g(i,k)                          →     u[i] += g(i,k);  t[i] = f(i) + u[i]

Gradients arrive as one nest for each use of a tensor. Added up at once, they are stored once, and share the loops of
what computes their terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dlc.base.types import f32, f64
from dlc.kernel.expr import Axis, Expr, Load, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.groups import has_reuse, plain_write
from dlc.kernel.schedules.machine import Machine

MOST_NODES: Final = 200
"""Of a body that stands for several."""


def terms_together(kernel: Kernel, machine: Machine) -> Kernel:
    """An equal kernel (see the module's equations), up to the order of sums."""
    if machine.ordered:
        return kernel
    for p in (*kernel.locals, *kernel.results):
        if len(kernel.writers.get(p.name, ())) > 1 and _may(kernel, p):
            kernel = _together(kernel, p)
    return kernel


def _may(kernel: Kernel, p: Param) -> bool:
    """Whether everything that is added to a tensor may be added where the last of it is."""
    numbers = kernel.writers[p.name]
    writers = [kernel.nests[k] for k in numbers]
    plain = p.storage in (f32, f64) and p.dtype == p.storage and not p.type.is_open
    if not plain or min(kernel.readers.get(p.name, (len(kernel.nests),))) <= numbers[-1]:
        return False
    if sum(n.nodes for n in writers) > MOST_NODES or not all(_adds(n, p.shape) for n in writers):
        return False
    return all(
        max(kernel.writers.get(name, (-1,))) < k
        for k, n in zip(numbers, writers, strict=True)
        if not n.reduction_axes
        for name in n.reads()
    )


def _adds(nest: Nest, shape: tuple[int, ...]) -> bool:
    """Whether a nest adds to every element: a value, or a sum that no tiles make faster."""
    whole = nest.reduce == "add" and nest.where is None and plain_write(nest, shape)
    return whole and not has_reuse(nest)


def _together(kernel: Kernel, p: Param) -> Kernel:
    numbers = kernel.writers[p.name]
    last = kernel.nests[numbers[-1]]
    axes = tuple(i for i in last.index if isinstance(i, Axis))
    nests: list[Nest] = []
    made: list[Param] = []
    terms: list[Expr] = []
    for k, nest in enumerate(kernel.nests):
        if k not in numbers:
            nests.append(nest)
            continue
        if nest.reduction_axes:
            part = Param(f"{p.name}_term{len(made)}", p.type)
            made.append(part)
            nests.append(replace(nest, out=part.name))
            terms.append(Load(part.name, last.index))
        else:
            terms.append(substitute(nest.body, dict(zip(nest.index, last.index, strict=True))))
        if k == numbers[-1]:
            nests.append(Nest(p.name, last.index, axes, _added(terms)))
    return replace(kernel, nests=tuple(nests), locals=(*kernel.locals, *made))


def _added(terms: Sequence[Expr]) -> Expr:
    total = terms[0]
    for t in terms[1:]:
        total = total + t
    return total
