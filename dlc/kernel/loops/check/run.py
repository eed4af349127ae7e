"""Runs loops in the arithmetic of `residues`: all of them where that is quick, otherwise a sample of long loops.

Of a long loop over elements of results the first, some middle and the last iterations are run. The others are left out:
every place that they touch is enumerated (`accesses`), to be within its tensor and written before it is read, and what
they write becomes known to be written, but of unknown value, in its turn among the iterations that are run. Loops that
carry a value from one iteration to the next, as sums do, are run whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from dlc.base.types import Array, DType, f32
from dlc.kernel.loops.check.accesses import Access, Around, Guard, Loop, accesses
from dlc.kernel.loops.check.digits import unrounded, words_of_digits
from dlc.kernel.loops.check.field_values import FieldValues, Marks
from dlc.kernel.loops.check.memory import Iterations, KnownMemory, Sharing
from dlc.kernel.loops.check.operands import room
from dlc.kernel.loops.check.residues import Field
from dlc.kernel.loops.check.sampling import Work, shared_variables, starts_anew
from dlc.kernel.loops.evaluate import AT_ONCE, Machine, iterations
from dlc.kernel.loops.memory import Batch
from dlc.kernel.loops.program import (
    For,
    Let,
    LoopProgram,
    Set,
    Stmt,
    Store,
    walk_stmts,
)
from dlc.kernel.loops.traits import Traits, overwritten, traits
from dlc.kernel.loops.values import Values, everywhere

_MOST: Final = 1 << 17
"""Iterations that are enumerated at once."""


class CheckedMachine(Machine):
    """Runs a program on known and unknown values."""

    def __init__(
        self,
        program: LoopProgram,
        numbers: Field,
        args: Mapping[str, Array],
        sizes: Mapping[str, int],
        whole: bool,
        most: int,
    ) -> None:
        """A machine with the arguments, flat, by name.

        Args:
            program: What is run.
            numbers: Its arithmetic.
            args: Of its parameters.
            sizes: Of its symbols.
            whole: Run every iteration.
            most: Values that are computed in one loop, before iterations are left out.
        """
        empty = {r.name: np.zeros(math.prod(room(r.type, sizes)), numbers.numpy(r.dtype)) for r in program.results}
        digits = frozenset(b.name for b in program.buffers if b.digits)
        self.marks = Marks(numbers, digits, words_of_digits(program.body, digits))
        kinds = {b.name: f32 if b.digits else b.dtype for b in program.buffers}
        empty |= {
            b.name: np.zeros(math.prod(room(b.type, sizes)), numbers.numpy(kinds[b.name])) for b in program.buffers
        }
        dtypes: dict[str, DType] = {p.name: p.dtype for p in (*program.params, *program.results, *program.buffers)}
        stored = {p.name: p.stored for p in (*program.params, *program.results) if p.stored is not None}
        below = {b.name: b.below for b in program.buffers if b.below is not None}
        self.known_memory = KnownMemory(args, empty, (r.name for r in program.results), below)
        super().__init__(self.known_memory, dtypes, stored, numbers)
        self._results = frozenset(r.name for r in program.results)
        self.deciding = {p.name: p.dtype for p in program.params if not p.dtype.is_float}
        self._whole, self._most = whole, most
        self.numbers_of = {id(s): k for k, s in enumerate(walk_stmts(program.body))}
        self._outlines: dict[int, tuple[Access, ...] | None] = {}
        self._work = Work()

    def step(self, s: Stmt, batch: Batch, active: Array | None) -> None:
        if isinstance(s, Store):
            self.known_memory.statement = self.numbers_of[id(s)]
        if isinstance(s, Store) and s.out in self.marks.digits:
            at = self.values(batch, active)
            spots = at.spots(s.out, s.at, s.lanes)
            batch.note(s.out, spots, active, write=True)
            self.memory.write(s.out, spots, at.converted(unrounded(s.value), f32, s.lanes))
        else:
            super().step(s, batch, active)

    def traits(self, s: For) -> Traits:
        """Loops around parallel ones run in order, so that there is one point around these."""
        known = self.known_traits.get(id(s))
        if known is None:
            known = traits(s)
            if any(isinstance(x, For) and x.parallel for x in walk_stmts(s.body)):
                known = Traits(True, known.writes, known.sums, known.locals, known.lanes)
            self.known_traits[id(s)] = known
        return known

    def values(self, batch: Batch, active: Array | None) -> Values:
        return FieldValues(self, self.marks, batch, active)

    # ---- loops of which iterations are left out ----
    def loop(self, s: For, at: Values) -> None:
        start, stop = (np.broadcast_to(at.index(e), (at.rows, 1)) for e in (s.start, s.stop))
        counts = np.maximum(0, -(-(stop - start) // s.step))[:, 0]
        if not counts.any():
            return
        sharing = self._sharing(s, int(start[0, 0])) if s.parallel else None
        for first, last, runs in self._segments(s, counts):
            part = start + first * s.step, np.clip(counts - first, 0, last - first)
            if not runs:
                self._leave_out(s, at, *part, sharing)
            elif sharing is None:
                self.iterate(s, at, *part)
            else:
                self._parallel(s, at, *part, sharing)
        self.known_memory.clear(s.own)

    def _segments(self, s: For, counts: Array) -> Sequence[tuple[int, int, bool]]:
        """(first iteration, end, whether they are run) in order."""
        n, weight = int(counts.max()), self._work.of(s.body)
        whole = [(0, n, True)]
        if self._whole or n < 4 or int(counts.sum()) * weight <= self._most or not self._may_be_left_out(s):
            return whole
        kept = max(1, self._most // (3 * weight * max(1, int((counts > 0).sum()))))
        if 3 * kept >= n:
            return whole
        self.marks.left_out = True
        middle = kept + (n - 3 * kept) * 3 // 7
        ends = [(0, kept, True), (kept, middle, False), (middle, middle + kept, True)]
        return [*ends, (middle + kept, n - kept, False), (n - kept, n, True)]

    def _may_be_left_out(self, s: For) -> bool:
        """Whether iterations compute elements of their own, of results or by long sums."""
        known = self.traits(s)
        if known.sums or not known.writes or any(not starts_anew(s.body, name) for name in overwritten(s)):
            return False
        if known.writes & overwritten(s) & self._results:
            return False
        if shared_variables(s):
            return False
        sums = any(isinstance(x, Set) for x in walk_stmts(s.body))
        return (bool(known.writes & self._results) or sums) and self._outline(s) is not None

    def _outline(self, s: For) -> tuple[Access, ...] | None:
        if id(s) not in self._outlines:
            self._outlines[id(s)] = accesses(s.body, self.deciding)
        return self._outlines[id(s)]

    def _leave_out(self, s: For, at: Values, start: Array, counts: Array, sharing: Sharing | None) -> None:
        """Iterations are not run; what they touch is known to be touched."""
        memory = self.known_memory
        found = self._outline(s)
        assert found is not None, "iterations are left out of loops that have an outline"
        for write in (True, False):
            for access in found:
                if access.write is not write:
                    continue

                def touch(inner: Values, access: Access = access) -> None:
                    spots = self._spots(access, inner)
                    if access.write:
                        memory.forget(access.tensor, spots)
                    else:
                        memory.require(access.tensor, spots)
                    if sharing is not None:
                        sharing.touch(access.tensor, spots, sharing.number(inner.leaf(s.axis)), access.write)

                for up, axis in iterations(s, at, start, counts, _MOST):
                    batch = Batch(len(axis), at.batch, up, {})
                    batch.values[s.axis.name] = axis
                    self._within(access.around, self.values(batch, None), touch)

    def _spots(self, access: Access, at: Values) -> Array:
        """The elements [points, places and lanes] of an access; raises LoopFault outside of a tensor."""
        first = at.index(access.at)
        low, high = access.places[0], access.places[-1]
        memory = self.known_memory
        memory.spots(access.tensor, first + low, 1)
        memory.spots(access.tensor, first + high, access.lanes)
        if access.tensor not in memory.written:  # that it is inside is all there is to know of a parameter
            return first + low
        places = np.asarray(access.places)[:, None] + np.arange(access.lanes)
        return first + places.ravel()

    def _within(self, around: tuple[Around, ...], at: Values, do: Callable[[Values], None]) -> None:
        """`do` with every combination of iterations of some loops."""
        if not around:
            do(at)
            return
        first, *rest = around
        match first:
            case Loop(axis, start, stop, step):
                first_value, end = (np.broadcast_to(at.index(e), (at.rows, 1)) for e in (start, stop))
                counts = np.maximum(0, -(-(end - first_value) // step))[:, 0]
                loop = For(axis, start, stop, (), step)
                for up, values in iterations(loop, at, first_value, counts, _MOST):
                    batch = Batch(len(values), at.batch, up, {})
                    batch.values[axis.name] = values
                    self._within(tuple(rest), self.values(batch, None), do)
            case Guard(condition, holds):
                chosen = at.split(condition)[0 if holds else 1]
                if chosen is None or len(chosen):
                    self._within(tuple(rest), self.values(at.batch, chosen), do)
            case Let(local, value):
                found = at.converted(value, local.dtype, local.lanes)
                kept = found if at.active is None else everywhere(found, at.batch.count, at.active)
                batch = Batch(at.batch.count, at.batch, np.arange(at.batch.count), {})
                batch.values[local.name] = kept
                self._within(tuple(rest), self.values(batch, at.active), do)

    # ---- parallel loops ----
    def _sharing(self, s: For, start: int) -> Sharing:
        shared = self.traits(s).writes - set(s.own)
        return Sharing({name: self.memory.tensors[name].size for name in shared}, start, s.step)

    def _parallel(self, s: For, at: Values, start: Array, counts: Array, sharing: Sharing) -> None:
        """Iterations none of which may see what another one writes: together, or one by one with own buffers."""
        assert at.rows == 1, "loops around a parallel one run in order"
        alone = bool(s.own) or any(isinstance(x, For) and x.parallel for x in walk_stmts(s.body))
        most = 1 if alone else max(1, AT_ONCE // self.traits(s).lanes)
        for up, axis in iterations(s, at, start, counts, most):
            self.known_memory.clear(s.own)
            batch = Iterations(sharing.number(axis), at.batch, up, sharing)
            batch.values[s.axis.name] = axis
            self.run(s.body, batch, None)

    def known(self, name: str) -> Array:
        """Which elements of a result were computed from known values."""
        return self.known_memory.known(name)

    def writer_of(self, name: str, element: int) -> int:
        """The number of the statement that wrote an element of a result."""
        return int(self.known_memory.writers[name][element])

    def axes_at(self, access: Access, element: int) -> Mapping[str, int]:
        """The values of axes with which an access reaches an element for the last time; none where it does not."""
        found: dict[str, int] = {}

        def look(at: Values) -> None:
            rows = np.flatnonzero((self._spots(access, at) == element).any(axis=1))
            if len(rows):
                found.update(at.batch.values_at(int(at.points[rows[-1]])))

        root = Batch(1, None, np.zeros(1, np.int64), {})
        with np.errstate(all="ignore"):
            self._within(access.around, self.values(root, None), look)
        return found
