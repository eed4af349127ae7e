"""Memory of the checker: what it knows of the elements beside their values, and who touched them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from dlc.base.types import Array
from dlc.kernel.loops.check.residues import Unknowable
from dlc.kernel.loops.memory import Batch, LoopFault, Memory

_NOBODY, _SEVERAL = -1, -2


class KnownMemory(Memory):
    """Memory with elements that were written, but whose value nobody knows, since the writer was left out.

    Attributes:
        writers: Of results, the number of the statement that wrote each element.
        statement: The number of the statement that writes now.
    """

    def __init__(
        self, given: Mapping[str, Array], empty: Mapping[str, Array], results: Iterable[str], below: Mapping[str, int]
    ) -> None:
        """As `Memory`; what is written to some tensors must be at least 0 and `below` a number."""
        super().__init__(given, empty)
        self._unknown = {name: np.zeros(a.size, bool) for name, a in empty.items() if a.dtype.kind != "f"}
        self._below = below
        self.writers = {name: np.full(empty[name].size, -1, np.int32) for name in results}
        self.statement = -1

    def known(self, name: str) -> Array:
        """Which elements were written by a statement that was run on known operands."""
        values = self.tensors[name]
        return self.written[name] & ~(np.isnan(values) if values.dtype.kind == "f" else self._unknown[name])

    def read(self, name: str, spots: Array) -> Array:
        unknown = self._unknown.get(name)
        if unknown is not None and unknown[spots].any():
            raise Unknowable
        return super().read(name, spots)

    def write(self, name: str, spots: Array, values: Array) -> None:
        if name in self._below and (wrong := (values < 0) | (values >= self._below[name])).any():
            row = int(wrong.any(axis=1).argmax())
            raise LoopFault(f"{name} is said to hold less than {self._below[name]}, and gets {values[wrong][0]}", row)
        super().write(name, spots, values)
        if name in self._unknown:
            self._unknown[name][spots] = False
        if name in self.writers:
            self.writers[name][spots] = self.statement

    def forget(self, name: str, spots: Array) -> None:
        """Elements get values that nobody knows."""
        self.written[name][spots] = True
        if name in self._unknown:
            self._unknown[name][spots] = True
        else:
            self.tensors[name][spots] = np.nan

    def require(self, name: str, spots: Array) -> None:
        """Raise LoopFault if an element has no value."""
        written = self.written.get(name)
        if written is not None and not (has := written[spots]).all():
            row = int((~has).any(axis=1).argmax())
            raise LoopFault(f"{name}[{int(spots[~has][0])}] is read before it is written", row)

    def saved(self, names: Iterable[str]) -> Mapping[str, tuple[Array, ...]]:
        names = list(names)
        found = super().saved(names)
        return {n: (*found[n], self._unknown[n].copy()) if n in self._unknown else found[n] for n in names}

    def restore(self, saved: Mapping[str, tuple[Array, ...]]) -> None:
        super().restore({name: state[:2] for name, state in saved.items()})
        for name, state in saved.items():
            if name in self._unknown:
                self._unknown[name][:] = state[2]


class Sharing:
    """Which iterations of a parallel loop touched each element of the tensors that its iterations share."""

    def __init__(self, sizes: Mapping[str, int], start: int, step: int) -> None:
        """Of tensors of so many elements, by name, in a loop from `start` in steps."""
        self._start, self._step = start, step
        self._writer = {name: np.full(size, _NOBODY) for name, size in sizes.items()}
        self._reader = {name: np.full(size, _NOBODY) for name, size in sizes.items()}

    def number(self, axis: Array) -> Array:
        """The iterations in which the axis has some values."""
        return (axis - self._start) // self._step

    def touch(self, name: str, spots: Array, iterations: Array, write: bool) -> None:
        """Iterations [points, 1] touch elements [points, lanes]; raises LoopFault where another one wrote or reads."""
        if name not in self._writer:
            return
        spots, iterations = np.broadcast_arrays(spots, iterations)
        writer, reader = self._writer[name], self._reader[name]
        self._refuse(name, spots, iterations, writer, "write" if write else "read", "writes")
        if not write:
            before = reader[spots]
            reader[spots] = iterations
            several = ((before != _NOBODY) & (before != iterations)) | (reader[spots] != iterations)
            reader[spots[several]] = _SEVERAL
            return
        self._refuse(name, spots, iterations, reader, "write", "reads")
        writer[spots] = iterations
        self._refuse(name, spots, iterations, writer, "write", "writes")

    @staticmethod
    def _refuse(name: str, spots: Array, iterations: Array, noted: Array, verb: str, other: str) -> None:
        found = noted[spots]
        wrong = (found != _NOBODY) & (found != iterations)
        if wrong.any():
            row = int(wrong.any(axis=1).argmax())
            here, there = int(iterations[wrong][0]), int(found[wrong][0])
            whom = f"iteration {there}" if there != _SEVERAL else "more than one other"
            raise ParallelFault(
                f"iterations marked parallel share {name}[{int(spots[wrong][0])}]: "
                f"iteration {here} {verb}s what {whom} {other}",
                row,
            )


class ParallelFault(LoopFault):
    """Iterations that are marked parallel see each other."""


class Iterations(Batch):
    """Iterations of a parallel loop, whose accesses are noted."""

    def __init__(self, numbers: Array, parent: Batch, up: Array, sharing: Sharing) -> None:
        """Iterations of some numbers [iterations, 1] at the points `up` of the batch around."""
        super().__init__(len(numbers), parent, up, {})
        self._numbers, self._sharing = numbers, sharing

    def note(self, name: str, spots: Array, active: Array | None, write: bool) -> None:
        self._sharing.touch(name, spots, self._numbers if active is None else self._numbers[active], write)
        super().note(name, spots, active, write)
