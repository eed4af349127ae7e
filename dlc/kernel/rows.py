"""Some rows of what a kernel computes, from the rows that they need.

    r[n,c,i,j] = Σ p[n,c,i*2+k-1,j]·w[k], rows 3..5     →     r'[n,c,i,j] = Σ p'[n,c,i*2+k,j]·w[k], i < 2
                                                              with p' = rows 5..10 of p

Rows are the elements at one place of a dimension. A kernel has rows where each of its nests writes every row from its
own loop variable, and what it writes on the way is read row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dlc.base.types import Type
from dlc.kernel.expr import Axis, Const, Expr, Load, apply, axes_in, map_loads, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.simplify import bounds, simplify, simplify_nest


class NoRowsError(Exception):
    """A kernel does not compute its result row by row."""


@dataclass(frozen=True)
class Rows:
    """Rows `start` to `stop`, the end excluded, along a dimension of a tensor."""

    dim: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def hull(self, other: Rows) -> Rows:
        """The least range with both. Raises NoRowsError where they lie along different dimensions."""
        if other.dim != self.dim:
            raise NoRowsError
        return Rows(self.dim, min(self.start, other.start), max(self.stop, other.stop))


def needed_rows(kernel: Kernel, rows: Rows) -> dict[str, Rows]:
    """Of each parameter that is read row by row, the rows that some rows of the only result need.

    Parameters that are not in it are needed as a whole. Raises NoRowsError.
    """
    dims = _dims(kernel, rows.dim)
    params = {p.name: p for p in kernel.params}
    found: dict[str, Rows] = {}
    whole: set[str] = set()
    for nest in kernel.nests:
        axis = _row_of(nest, dims[nest.out])
        inner = {axis: Axis(axis.name, len(rows)) + rows.start}
        for load in (x for name in params for x in nest.loads.get(name, ())):
            where = [d for d, e in enumerate(load.index) if axis in axes_in(e)]
            span = bounds(substitute(load.index[where[0]], inner)) if len(where) == 1 else None
            if span is None:
                whole.add(load.param)
                continue
            extent = params[load.param].shape[where[0]]
            start, stop = max(0, span[0]), min(extent, span[1] + 1)
            need = Rows(where[0], min(start, extent - 1), max(stop, min(start, extent - 1) + 1))
            known = found.get(load.param)
            if known is not None and known.dim != need.dim:
                whole.add(load.param)
            else:
                found[load.param] = need if known is None else known.hull(need)
    return {name: need for name, need in found.items() if name not in whole}


def rows_of(kernel: Kernel, rows: Rows, given: Mapping[str, Rows]) -> Kernel:
    """The kernel that computes these rows of the only result, from parameters of which some rows are given.

    Raises NoRowsError. What is given has to hold what `needed_rows` says.
    """
    dims = _dims(kernel, rows.dim)
    held = {name: Rows(dim, rows.start, rows.stop) for name, dim in dims.items()} | dict(given)
    tensors = {
        p.name: replace(p, type=_fewer(p, held[p.name])) if p.name in held else p for p in kernel.tensors.values()
    }

    def moved(load: Load) -> Expr:
        of = held.get(load.param)
        if of is None:
            return load
        index = list(load.index)
        index[of.dim] = simplify(apply("sub", index[of.dim], of.start))
        return Load(load.param, tuple(index))

    nests: list[Nest] = []
    for nest in kernel.nests:
        dim = dims[nest.out]
        axis = _row_of(nest, dim)
        inner = Axis(axis.name, len(rows))
        index = tuple(inner if d == dim else e for d, e in enumerate(nest.index))
        new = nest.substitute({axis: inner + rows.start}, tuple(inner if a == axis else a for a in nest.axes))
        where = None if new.where is None else map_loads(new.where, moved)
        nests.append(simplify_nest(replace(new, index=index, body=map_loads(new.body, moved), where=where)))
    params, results, locals_ = (
        tuple(tensors[p.name] for p in ps) for ps in (kernel.params, kernel.results, kernel.locals)
    )
    return Kernel.canonical(params, results, tuple(nests), locals_)


def joined(parts: tuple[Param, ...], of: Param, dim: int) -> Kernel:
    """The kernel that lays tensors one after another along a dimension: their parts of `of`."""
    nests: list[Nest] = []
    start = 0
    for part in parts:
        axes = tuple(Axis(f"d{d}", n) for d, n in enumerate(part.shape))
        index = tuple(a + start if d == dim and start else a for d, a in enumerate(axes))
        nests.append(Nest(of.name, index, axes, part[axes]))
        start += part.shape[dim]
    return Kernel.canonical(parts, (of,), tuple(nests))


def _dims(kernel: Kernel, dim: int) -> dict[str, int]:
    """Result and locals → the dimension of their rows. Raises NoRowsError unless all of them are computed by rows."""
    if len(kernel.results) != 1 or any(p.type.is_open for p in kernel.tensors.values()):
        raise NoRowsError
    found = {kernel.results[0].name: dim}
    params = {p.name for p in kernel.params}
    for nest in reversed(kernel.nests):
        if nest.out not in found:
            raise NoRowsError
        axis = _row_of(nest, found[nest.out])
        if kernel.tensors[nest.out].shape[found[nest.out]] != axis.extent:
            raise NoRowsError
        for load in (x for name, xs in nest.loads.items() if name not in params for x in xs):
            where = [d for d, e in enumerate(load.index) if axis in axes_in(e)]
            if len(where) != 1 or load.index[where[0]] != axis or found.setdefault(load.param, where[0]) != where[0]:
                raise NoRowsError
    return found


def _row_of(nest: Nest, dim: int) -> Axis:
    """The loop variable that is the row. Raises NoRowsError where there is none, or where it stands elsewhere too."""
    axis = nest.index[dim] if dim < len(nest.index) else Const(0)
    if not isinstance(axis, Axis) or any(axis in axes_in(e) for d, e in enumerate(nest.index) if d != dim):
        raise NoRowsError
    return axis


def _fewer(p: Param, rows: Rows) -> Type:
    """The type of some rows of a tensor."""
    shape = list(p.shape)
    shape[rows.dim] = len(rows)
    return p.type.with_shape(tuple(shape))
