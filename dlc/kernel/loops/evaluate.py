"""Numpy evaluator of loops: what a program means on any machine, without a compiler and without the machine.

It is strict about what C leaves undefined: an access outside of a tensor, a read of an element of a buffer or result
that nobody wrote before, a variable without a value, and an element of a result that is never written are errors. So
is an iteration of a parallel loop that touches what another one writes.

Loops run as a graphics processor would run them: all iterations at once, each statement for all of them. That is exact
where no iteration sees what another wrote, which is watched; where one does, the loop is taken back and runs in order.
Variables that iterations add to (or take the maximum of) are combined at the loop's end, so that sums of floating point
may be rounded in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dlc.base.types import Array, DType
from dlc.kernel.evaluate import PLAIN, Arithmetic
from dlc.kernel.expr import Apply, Expr
from dlc.kernel.loops.memory import Batch, Conflict, LoopFault, Memory, Touched
from dlc.kernel.loops.program import Block, For, If, Let, Local, LoopProgram, Prefetch, Set, Stmt, Store
from dlc.kernel.loops.traits import Traits, traits
from dlc.kernel.loops.values import Tensors, Values, everywhere
from dlc.kernel.nest import identity

AT_ONCE = 1 << 18
"""Elements of one value of a batch: a few dozen of them are alive at once."""


def run_loops(program: LoopProgram, args: Sequence[Array]) -> tuple[Array, ...]:
    """Results of a program on arrays of its parameters' types and shapes.

    Raises:
        LoopFault: the program does what C leaves undefined, or does not write all of its results.
    """
    given = {p.name: np.ravel(np.asarray(a, p.storage.numpy)) for p, a in zip(program.params, args, strict=True)}
    empty = {r.name: np.zeros(r.type.capacity, r.storage.numpy) for r in program.results}
    empty |= {b.name: np.zeros(b.size, b.dtype.numpy) for b in program.buffers}
    dtypes = {p.name: p.dtype for p in (*program.params, *program.results, *program.buffers)}
    stored = {p.name: p.stored for p in (*program.params, *program.results) if p.stored is not None}
    machine = Machine(Memory(given, empty), dtypes, stored)
    machine.start(program.body)
    return tuple(machine.memory.result(r.name).reshape(r.shape) for r in program.results)


class Machine(Tensors):
    """Runs statements for the points of a batch; `active` are those that take part (None: all)."""

    def __init__(
        self, memory: Memory, dtypes: dict[str, DType], stored: Mapping[str, DType], numbers: Arithmetic = PLAIN
    ) -> None:
        """A machine with this memory; `dtypes` are those of its tensors, `stored` the narrow ones of some."""
        super().__init__(memory, dtypes, stored, numbers)
        self.known_traits: dict[int, Traits] = {}
        self._in_order: set[int] = set()

    def start(self, body: Sequence[Stmt]) -> None:
        """Run a program; raises LoopFault with the statements in which it happened."""
        with np.errstate(all="ignore"):
            self.run(body, Batch(1, None, np.zeros(1, np.int64), {}), None)

    def run(self, body: Sequence[Stmt], batch: Batch, active: Array | None) -> None:
        """Statements in order; variables that they declare end with them."""
        hidden: dict[str, Array | None] = {}
        for s in body:
            if isinstance(s, Let):
                hidden.setdefault(s.local.name, batch.values.get(s.local.name))
            try:
                self.step(s, batch, active)
            except LoopFault as fault:
                fault.inside(s, batch, active)
                raise
        for name, old in hidden.items():
            if old is None:
                del batch.values[name]
            else:
                batch.values[name] = old

    def step(self, s: Stmt, batch: Batch, active: Array | None) -> None:
        """One statement."""
        at = self.values(batch, active)
        match s:
            case For():
                self.loop(s, at)
            case If(condition, then, otherwise):
                for chosen, body in zip(at.split(condition), (then, otherwise), strict=True):
                    if body and (chosen is None or len(chosen)):
                        self.run(body, batch, chosen)
            case Let(local, value):
                found = at.converted(value, local.dtype, local.lanes)
                batch.values[local.name] = found if active is None else everywhere(found, batch.count, active)
            case Set(local, value):
                self._set(local, value, at)
            case Store(out, place, value, lanes):
                spots = at.spots(out, place, lanes)
                values = at.converted(value, self.dtypes[out], lanes)
                batch.note(out, spots, active, write=True)
                to = self.stored.get(out)
                self.memory.write(out, spots, values if to is None else self.numbers.stored(values, to))
            case Prefetch(tensor, place, _):
                at.spots(tensor, place, 1)
            case Block(body):
                self.run(body, batch, active)

    def _set(self, local: Local, value: Expr, at: Values) -> None:
        batch, active = at.batch, at.active
        if local.name in batch.values or local.name not in batch.sums:
            batch.assign(local.name, at.converted(value, local.dtype, local.lanes), active)
            return
        assert isinstance(value, Apply), "the variable is combined with a value"
        self._combine(batch, local, at.converted(value.args[1], local.dtype, local.lanes), active)

    def _combine(self, batch: Batch, local: Local, value: Array, active: Array | None) -> None:
        """Combine a value into what the points of this batch add to a variable outside."""
        fn, old = batch.sums[local.name]
        if active is None:
            batch.sums[local.name] = fn, self.numbers.applied(fn, local.dtype, old, value)
        else:
            old = old.copy()
            old[active] = self.numbers.applied(fn, local.dtype, old[active], value)
            batch.sums[local.name] = fn, old

    # ---- loops ----
    def loop(self, s: For, at: Values) -> None:
        """A loop, at the points that take part."""
        start, stop = (np.broadcast_to(at.index(e), (at.rows, 1)) for e in (s.start, s.stop))
        self.iterate(s, at, start, np.maximum(0, -(-(stop - start) // s.step))[:, 0])

    def iterate(self, s: For, at: Values, start: Array, counts: Array) -> None:
        """So many iterations at each point, from `start` [points, 1] on."""
        if not counts.any():
            return
        if s.parallel:
            self._at_once(s, at, start, counts)
            return
        if id(s) not in self._in_order and int(counts.max()) > 1 and self._together(s, at, start, counts):
            return
        self.in_order(s, at, start, counts)

    def _at_once(self, s: For, at: Values, start: Array, counts: Array) -> None:
        """Iterations that threads share: none may see what another one does.

        Raises:
            Conflict: several points around have such a loop, which must take turns: buffers of its own are one here.
            LoopFault: an iteration touches what another one writes, changes a variable from outside, or reads what it
                has to itself before it writes it.
        """
        if at.rows > 1:
            raise Conflict(at.batch)
        known, count = self.traits(s), int(counts[0])
        touched = {n: Touched.none(self.memory.tensors[n].size) for n in known.writes if n not in s.own}
        size = 1 if s.own or known.shares else max(1, AT_ONCE // known.lanes)
        for first in range(0, count, size):
            self.memory.clear(s.own)
            number = np.arange(first, min(count, first + size))
            inner = Batch(len(number), at.batch, np.repeat(at.points, len(number)), touched, first)
            inner.values[s.axis.name] = start[0, 0] + number[:, None] * s.step
            try:
                self.run(s.body, inner, None)
            except Conflict as problem:
                if problem.batch is not inner:
                    raise
                where = f"for {s.axis.name} from {inner.values[s.axis.name][0, 0]} on"
                raise LoopFault(f"{where}: iterations of a parallel loop are not independent") from None
        self.memory.clear(s.own)

    def in_order(self, s: For, at: Values, start: Array, counts: Array) -> None:
        """Iterations in order, each for all points that have it."""
        batch, points = at.batch, at.points
        for k in range(int(counts.max())):
            going = counts > k
            whole = at.active is None and bool(going.all())
            chosen = None if whole else points[going]
            value = start + k * s.step
            old = batch.values.get(s.axis.name)
            batch.values[s.axis.name] = value if whole else everywhere(value[going], batch.count, points[going])
            self.run(s.body, batch, chosen)
            if old is None:
                del batch.values[s.axis.name]
            else:
                batch.values[s.axis.name] = old

    def traits(self, s: For) -> Traits:
        """The properties of a loop, found once."""
        known = self.known_traits.get(id(s))
        if known is None:
            known = self.known_traits[id(s)] = traits(s)
        return known

    def _together(self, s: For, at: Values, start: Array, counts: Array) -> bool:
        """All iterations at once; False, with nothing changed, when that may differ from running them in order."""
        known = self.traits(s)
        if known.ordered:
            self._in_order.add(id(s))
            return False
        saved = self.memory.saved(known.writes)
        try:
            found = self._batches(s, known, at, start, counts)
        except (Conflict, LoopFault) as problem:
            if isinstance(problem, Conflict) and _encloses(problem.batch, at.batch):
                raise
            if isinstance(problem, LoopFault) and problem.in_any_order:
                raise
            # What looks like a fault may come from running out of order: in order it is found again if it is one.
            self.memory.restore(saved)
            self._in_order.add(id(s))
            return False
        for name, points, value in found:
            self._combined(at.batch, known.locals[name], points, known.sums[name], value)
        return True

    def _batches(
        self, s: For, known: Traits, at: Values, start: Array, counts: Array
    ) -> list[tuple[str, Array, Array]]:
        """What the points of the loop add to variables outside: (variable, points outside, values)."""
        found: list[tuple[str, Array, Array]] = []
        for up, axis in iterations(s, at, start, counts, max(1, AT_ONCE // known.lanes)):
            touched = {name: Touched.none(self.memory.tensors[name].size) for name in known.writes}
            inner = Batch(len(axis), at.batch, up, touched)
            inner.values[s.axis.name] = axis
            for name, fn in known.sums.items():
                local = known.locals[name]
                zero = self.numbers.literal(identity(fn, local.dtype), local.dtype)
                inner.sums[name] = fn, np.full((inner.count, local.lanes), zero)
            self.run(s.body, inner, None)
            outside, cuts = np.unique(up, return_index=True)
            for name, (fn, values) in inner.sums.items():
                runs = self.numbers.combined_runs(fn, known.locals[name].dtype, values, cuts)
                found.append((name, outside, runs))
        return found

    def _combined(self, batch: Batch, local: Local, points: Array, fn: str, value: Array) -> None:
        name, chosen = local.name, None if len(points) == batch.count else points
        if name not in batch.values and name in batch.sums:
            self._combine(batch, local, value, chosen)
            return
        old = batch.lookup(name)
        old = old if len(old) == 1 or chosen is None else old[chosen]
        batch.assign(name, self.numbers.applied(fn, local.dtype, old, value), chosen)


def iterations(s: For, at: Values, start: Array, counts: Array, most: int) -> Iterator[tuple[Array, Array]]:
    """All iterations of a loop, at most so many at once: (points around the loop, values of the axis [points, 1])."""
    up = np.repeat(at.points, counts)
    ends = np.cumsum(counts)
    number = np.arange(len(up)) - np.repeat(ends - counts, counts)
    axis = np.repeat(start[:, 0], counts) + number * s.step
    for first in range(0, len(up), most):
        chosen = slice(first, first + most)
        yield up[chosen], axis[chosen][:, None]


def _encloses(batch: Batch, inner: Batch | None) -> bool:
    while inner is not None and inner is not batch:
        inner = inner.parent
    return inner is batch
