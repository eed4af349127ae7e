"""What loops read and write while they are evaluated: flat tensors that know which of their elements have a value.

Points of a loop that are evaluated together touch memory through their batch. It notes which point wrote and which read
each element, so that points that would see each other's writes are found: their loop must run in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dlc.base.types import Array
from dlc.kernel.expr import Apply, Load
from dlc.kernel.loops.program import For, If, Local, Prefetch, Stmt, Store, exprs_of, subexpressions

_NOBODY, _SEVERAL = -1, -2


class LoopFault(Exception):
    """Loops do what C leaves undefined: leave a tensor, read what nobody wrote, or do not write a whole result.

    Attributes:
        path: The statements that it happened in, outermost first.
        values: Of axes and scalar variables, where it happened.
        outside: Whether it is an access outside of a tensor.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        """What is wrong, and in which row of the points that took part."""
        super().__init__(message)
        self._row = row
        self.outside = False
        self.path: tuple[Stmt, ...] = ()
        self.values: dict[str, int] = {}

    @property
    def in_any_order(self) -> bool:
        """Whether it happens in whichever order iterations run: nothing that was computed decides."""
        return self.outside and not any(_depends_on_values(s) for s in self.path)

    def inside(self, statement: Stmt, batch: Batch, active: Array | None) -> None:
        """Note a statement around it; the first notes the values as well."""
        if not self.path and self._row is not None:
            self.values = batch.values_at(self._row if active is None else int(active[self._row]))
        self.path = (statement, *self.path)


def _depends_on_values(s: Stmt) -> bool:
    """Whether what a statement touches depends on variables or elements, as far as it decides that itself."""
    deciding = exprs_of(s) if isinstance(s, For | If) else ()
    for e in subexpressions(exprs_of(s)):
        match e:
            case Load(_, index):
                deciding += index
            case Apply("select" | "and" | "or", (condition, *_)):
                deciding += (condition,)
            case _:
                pass
    deciding += (s.at,) if isinstance(s, Store | Prefetch) else ()
    return any(isinstance(x, Load | Local) for x in subexpressions(deciding))


class Conflict(Exception):
    """Points of a batch do not commute, so that its loop must run in order."""

    def __init__(self, batch: Batch) -> None:
        """Carry the batch."""
        super().__init__()
        self.batch = batch


class Memory:
    """Tensors by name, and which of their elements have a value."""

    def __init__(self, given: Mapping[str, Array], empty: Mapping[str, Array]) -> None:
        """Tensors whose elements all have a value, and tensors whose elements have none yet; all of one dimension."""
        self.tensors = {**given, **empty}
        self.written = {name: np.zeros(a.size, bool) for name, a in empty.items()}

    def spots(self, name: str, first: Array, lanes: int) -> Array:
        """Positions [points, lanes] of the elements from `first` [points, 1] on; raises LoopFault outside."""
        size = self.tensors[name].size
        low, high = int(first.min()), int(first.max()) + lanes
        if low < 0 or high > size:
            row = int(((first < 0) | (first + lanes > size)).argmax())
            wrong = int(first[row, 0]) if first[row, 0] < 0 else max(size, int(first[row, 0]))
            fault = LoopFault(f"{name}[{wrong}] is outside of its {size} elements", row)
            fault.outside = True
            raise fault
        return first + np.arange(lanes) if lanes > 1 else first

    def read(self, name: str, spots: Array) -> Array:
        """Elements; raises LoopFault if one has no value."""
        written = self.written.get(name)
        if written is not None and not (has := written[spots]).all():
            row = int((~has).any(axis=1).argmax())
            raise LoopFault(f"{name}[{int(spots[~has][0])}] is read before it is written", row)
        return self.tensors[name][spots]

    def write(self, name: str, spots: Array, values: Array) -> None:
        """Give elements a value."""
        self.tensors[name][spots] = values
        self.written[name][spots] = True

    def saved(self, names: Iterable[str]) -> Mapping[str, tuple[Array, ...]]:
        """Copies of what may be written."""
        return {n: (self.tensors[n].copy(), self.written[n].copy()) for n in names}

    def restore(self, saved: Mapping[str, tuple[Array, ...]]) -> None:
        """The state that `saved` returned."""
        for name, (values, written) in saved.items():
            self.tensors[name][:] = values
            self.written[name][:] = written

    def clear(self, names: Iterable[str]) -> None:
        """Elements of buffers lose their values."""
        for name in names:
            self.written[name][:] = False

    def result(self, name: str) -> Array:
        """A tensor all of which must have been written; raises LoopFault."""
        missing = np.flatnonzero(~self.written[name])
        if missing.size:
            raise LoopFault(f"{name}[{missing[0]}] is never written ({missing.size} of {self.written[name].size})")
        return self.tensors[name]


@dataclass(frozen=True)
class Touched:
    """Per element of a tensor: the point that wrote it, and the point that read it."""

    writer: Array
    reader: Array

    @classmethod
    def none(cls, size: int) -> Touched:
        """No element touched yet."""
        return cls(np.full(size, _NOBODY), np.full(size, _NOBODY))

    def write(self, spots: Array, points: Array) -> bool:
        """Note writes; False when another point touched one of the elements."""
        if self._foreign(self.writer, spots, points) or self._foreign(self.reader, spots, points):
            return False
        self.writer[spots] = points
        return bool((self.writer[spots] == points).all())

    def read(self, spots: Array, points: Array) -> bool:
        """Note reads; False when another point wrote one of the elements."""
        if self._foreign(self.writer, spots, points):
            return False
        shared = spots[(self.reader[spots] != _NOBODY) & (self.reader[spots] != points)]
        self.reader[spots] = points
        self.reader[spots[self.reader[spots] != points]] = _SEVERAL
        self.reader[shared] = _SEVERAL
        return True

    @staticmethod
    def _foreign(noted: Array, spots: Array, points: Array) -> bool:
        found = noted[spots]
        return bool(((found != _NOBODY) & (found != points)).any())


class Batch:
    """Points that are evaluated together, and the values that each of them has.

    Values are arrays [points, lanes], with 1 where all points or lanes have the same. A point is a combination of
    values of all axes around; the batch outside of all loops has one.
    """

    def __init__(
        self, count: int, parent: Batch | None, up: Array, touched: Mapping[str, Touched], first: int = 0
    ) -> None:
        """Points within a batch, numbered from `first` on: `up` holds for each that of `parent` it belongs to."""
        self.count, self.parent, self._up, self._touched, self._first = count, parent, up, touched, first
        self.values: dict[str, Array] = {}
        self.sums: dict[str, tuple[str, Array]] = {}
        self._seen: dict[str, Array] = {}

    def lookup(self, name: str) -> Array:
        """The values of an axis or variable, at all points; raises LoopFault when there is none."""
        found = self.values.get(name)
        if found is None:
            found = self._seen.get(name)
        if found is None:
            if self.parent is None:
                raise LoopFault(f"{name} has no value")
            found = self.parent.lookup(name)
            found = self._seen[name] = found[self._up] if len(found) > 1 else found
        return found

    def values_at(self, point: int) -> dict[str, int]:
        """Axes and scalar integer variables at a point."""
        found = {} if self.parent is None else self.parent.values_at(int(self._up[point]))
        for name, value in self.values.items():
            if value.shape[1] == 1 and value.dtype.kind in "iu":
                found[name] = int(value[point if len(value) > 1 else 0, 0])
        return found

    def note(self, name: str, spots: Array, active: Array | None, write: bool) -> None:
        """Tell this batch and those around that points touch elements; raises Conflict, of the outermost.

        Where iterations of an outer loop touch the same, those of the loops inside may need no order.
        """
        points = np.arange(self.count) if active is None else active
        if self.parent is not None:
            self.parent.note(name, spots, self._up[points], write)
        touched = self._touched.get(name)
        if touched is not None:
            all_spots, all_points = np.broadcast_arrays(spots, self._first + points[:, None])
            if not (touched.write if write else touched.read)(all_spots, all_points):
                raise Conflict(self)

    def assign(self, name: str, value: Array, active: Array | None) -> None:
        """Give a variable of this batch new values at the active points; raises Conflict when it is none of its own."""
        if name not in self.values:
            raise Conflict(self) if self.parent else LoopFault(f"{name} is not declared")
        if active is not None:
            old = self.values[name]
            shape = (self.count, max(old.shape[1], value.shape[1]))
            whole = np.broadcast_to(old, shape).copy()
            whole[active] = value
            value = whole
        self.values[name] = value
