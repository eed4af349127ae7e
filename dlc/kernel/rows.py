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
from dlc.kernel.expr import Axis, Expr, Load, apply, axes_in, map_loads, substitute
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


class ByRows:
    """A kernel with one result that is computed row by row along a dimension.

    Attributes:
        reads: Parameters that are read row by row, with the dimension of their rows.
    """

    def __init__(self, kernel: Kernel, dim: int) -> None:
        """Raises NoRowsError where the rows do not come one by one."""
        self._kernel = kernel
        self._params = {p.name: p for p in kernel.params}
        self._dims = self._written(dim)
        self._rows = [_row_of(nest, self._dims[nest.out]) for nest in kernel.nests]
        self.reads: dict[str, int] = {}
        self._subscripts: dict[str, set[tuple[Axis, Expr]]] = {}
        whole: set[str] = set()
        for nest, axis in zip(kernel.nests, self._rows, strict=True):
            for load in (x for name in self._params for x in nest.loads.get(name, ())):
                where = [d for d, e in enumerate(load.index) if axis in axes_in(e)]
                if len(where) != 1 or self.reads.setdefault(load.param, where[0]) != where[0]:
                    whole.add(load.param)
                else:
                    self._subscripts.setdefault(load.param, set()).add((axis, load.index[where[0]]))
                    if bounds(load.index[where[0]]) is None:
                        whole.add(load.param)
        for name in whole:
            self.reads.pop(name, None)

    def needed(self, start: int, stop: int) -> dict[str, Rows]:
        """Of each parameter in `reads`, the rows that some rows of the result need, one at least."""
        found: dict[str, Rows] = {}
        for name, dim in self.reads.items():
            low, high = self._params[name].shape[dim], 0
            for axis, subscript in self._subscripts[name]:
                span = bounds(substitute(subscript, {axis: Axis(axis.name, stop - start) + start}))
                assert span is not None, "the subscript has bounds over all rows"
                low, high = min(low, span[0]), max(high, span[1] + 1)
            low = min(max(low, 0), self._params[name].shape[dim] - 1)  # what lies beyond is never read
            found[name] = Rows(dim, low, max(low + 1, min(high, self._params[name].shape[dim])))
        return found

    def part(self, start: int, stop: int, given: Mapping[str, Rows]) -> Kernel:
        """The kernel of some rows of the result, from parameters of which some rows are given: `needed` at least."""
        kernel = self._kernel
        held = {name: Rows(dim, start, stop) for name, dim in self._dims.items()} | dict(given)
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
        for nest, axis in zip(kernel.nests, self._rows, strict=True):
            inner = Axis(axis.name, stop - start)
            index = tuple(inner if d == self._dims[nest.out] else e for d, e in enumerate(nest.index))
            new = nest.substitute({axis: inner + start}, tuple(inner if a == axis else a for a in nest.axes))
            where = None if new.where is None else map_loads(new.where, moved)
            nests.append(simplify_nest(replace(new, index=index, body=map_loads(new.body, moved), where=where)))
        params, results, locals_ = (
            tuple(tensors[p.name] for p in ps) for ps in (kernel.params, kernel.results, kernel.locals)
        )
        return Kernel.canonical(params, results, tuple(nests), locals_)

    def _written(self, dim: int) -> dict[str, int]:
        """Result and locals → the dimension of their rows. Raises NoRowsError unless all are computed by rows."""
        kernel = self._kernel
        if len(kernel.results) != 1 or any(p.type.is_open for p in kernel.tensors.values()):
            raise NoRowsError
        found = {kernel.results[0].name: dim}
        for nest in reversed(kernel.nests):
            if nest.out not in found:
                raise NoRowsError
            axis = _row_of(nest, found[nest.out])
            if kernel.tensors[nest.out].shape[found[nest.out]] != axis.extent:
                raise NoRowsError
            for load in (x for name, xs in nest.loads.items() if name not in self._params for x in xs):
                where = [d for d, e in enumerate(load.index) if axis in axes_in(e)]
                if len(where) != 1 or load.index[where[0]] != axis:
                    raise NoRowsError
                if found.setdefault(load.param, where[0]) != where[0]:
                    raise NoRowsError
        return found


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


def _row_of(nest: Nest, dim: int) -> Axis:
    """The loop variable that is the row. Raises NoRowsError where there is none, or where it stands elsewhere too."""
    axis = nest.index[dim]
    if not isinstance(axis, Axis) or any(axis in axes_in(e) for d, e in enumerate(nest.index) if d != dim):
        raise NoRowsError
    return axis


def _fewer(p: Param, rows: Rows) -> Type:
    """The type of some rows of a tensor."""
    shape = list(p.shape)
    shape[rows.dim] = len(rows)
    return p.type.with_shape(tuple(shape))
