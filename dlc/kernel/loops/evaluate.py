"""Numpy evaluator of loops: what a program means on any machine, without a compiler and without the machine.

It is strict about what C leaves undefined: an access outside of a tensor, a read of an element of a buffer or result
that nobody wrote before, a variable without a value, and an element of a result that is never written are errors.

Loops run as a graphics processor would run them: all iterations at once, each statement for all of them. That is exact
where no iteration sees what another wrote, which is watched; where one does, the loop is taken back and runs in order.
Variables that iterations add to (or take the maximum of) are combined at the loop's end, so that sums of floating point
may be rounded in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dlc.base.types import Array, DType, in_compute_type
from dlc.kernel.evaluate import Interpreter
from dlc.kernel.expr import Apply, Axis, Expr, Load
from dlc.kernel.loops.memory import Batch, Conflict, LoopFault, Memory, Touched
from dlc.kernel.loops.program import (
    Block,
    Dots,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Local,
    LoopProgram,
    Prefetch,
    Set,
    Stmt,
    Store,
    Words,
    dtype_of,
)
from dlc.kernel.loops.traits import Traits, traits
from dlc.kernel.nest import identity
from dlc.kernel.scalar import SCALARS, combine_runs

_ELEMENTS = 1 << 18
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
    machine = _Machine(Memory(given, empty), dtypes, stored)
    with np.errstate(all="ignore"):
        machine.run(program.body, Batch(1, None, np.zeros(1, np.int64), {}), None)
    return tuple(machine.memory.result(r.name).reshape(r.shape) for r in program.results)


class _Machine:
    """Runs statements for the points of a batch; `active` are those that take part (None: all)."""

    def __init__(self, memory: Memory, dtypes: dict[str, DType], stored: Mapping[str, DType]) -> None:
        self.memory, self.dtypes, self.stored = memory, dtypes, stored
        self.types: dict[Expr, DType | None] = {}
        self.literals: dict[tuple[int, str, DType | None], tuple[DType | None, ...]] = {}
        """By identity of the arguments, which the program keeps: a loop in order asks as often as it has iterations."""
        self._traits: dict[int, Traits] = {}
        self._in_order: set[int] = set()

    def run(self, body: Sequence[Stmt], batch: Batch, active: Array | None) -> None:
        """Statements in order; variables that they declare end with them."""
        hidden: dict[str, Array | None] = {}
        for s in body:
            if isinstance(s, Let):
                hidden.setdefault(s.local.name, batch.values.get(s.local.name))
            self._step(s, batch, active)
        for name, old in hidden.items():
            if old is None:
                del batch.values[name]
            else:
                batch.values[name] = old

    def _step(self, s: Stmt, batch: Batch, active: Array | None) -> None:
        at = _Values(self, batch, active)
        match s:
            case For():
                self._loop(s, batch, active)
            case If(condition, then, otherwise):
                for chosen, body in zip(at.split(condition), (then, otherwise), strict=True):
                    if body and (chosen is None or len(chosen)):
                        self.run(body, batch, chosen)
            case Let(local, value):
                found = at.converted(value, local.dtype, local.lanes)
                batch.values[local.name] = found if active is None else _everywhere(found, batch.count, active)
            case Set(local, value):
                self._set(local, value, at)
            case Store(out, place, value, lanes):
                spots = at.spots(out, place, lanes)
                values = at.converted(value, self.dtypes[out], lanes)
                batch.note(out, spots, active, write=True)
                to = self.stored.get(out)
                self.memory.write(out, spots, values if to is None else SCALARS[to.name].value(values))
            case Prefetch(tensor, place, _):
                at.spots(tensor, place, 1)
            case Block(body):
                self.run(body, batch, active)

    def _set(self, local: Local, value: Expr, at: _Values) -> None:
        batch, active = at.batch, at.active
        if local.name in batch.values or local.name not in batch.sums:
            batch.assign(local.name, at.converted(value, local.dtype, local.lanes), active)
            return
        assert isinstance(value, Apply), "the variable is combined with a value"
        self._combine(batch, local.name, at.converted(value.args[1], local.dtype, local.lanes), active)

    @staticmethod
    def _combine(batch: Batch, name: str, value: Array, active: Array | None) -> None:
        """Combine a value into a variable of this batch, or into what its points add to one outside."""
        if name in batch.values:
            raise AssertionError(name)
        fn, old = batch.sums[name]
        combine: Callable[[Array, Array], Array] = SCALARS[fn].value
        if active is None:
            batch.sums[name] = fn, combine(old, value)
        else:
            old = old.copy()
            old[active] = combine(old[active], value)
            batch.sums[name] = fn, old

    # ---- loops ----
    def _loop(self, s: For, batch: Batch, active: Array | None) -> None:
        at = _Values(self, batch, active)
        start, stop = (np.broadcast_to(at.index(e), (at.rows, 1)) for e in (s.start, s.stop))
        counts = np.maximum(0, -(-(stop - start) // s.step))[:, 0]
        if not counts.any():
            return
        if id(s) not in self._in_order and int(counts.max()) > 1 and self._together(s, at, start, counts):
            return
        self._one_by_one(s, at, start, counts)

    def _one_by_one(self, s: For, at: _Values, start: Array, counts: Array) -> None:
        """Iterations in order, each for all points that have it."""
        batch, points = at.batch, at.points
        for k in range(int(counts.max())):
            going = counts > k
            whole = at.active is None and bool(going.all())
            chosen = None if whole else points[going]
            value = start + k * s.step
            old = batch.values.get(s.axis.name)
            batch.values[s.axis.name] = value if whole else _everywhere(value[going], batch.count, points[going])
            self.run(s.body, batch, chosen)
            if old is None:
                del batch.values[s.axis.name]
            else:
                batch.values[s.axis.name] = old

    def _together(self, s: For, at: _Values, start: Array, counts: Array) -> bool:
        """All iterations at once; False, with nothing changed, when that may differ from running them in order."""
        known = self._traits.get(id(s))
        if known is None:
            known = self._traits[id(s)] = traits(s)
        if known.ordered:
            self._in_order.add(id(s))
            return False
        saved = self.memory.saved(known.writes)
        try:
            found = self._batches(s, known, at, start, counts)
        except (Conflict, LoopFault) as problem:
            if isinstance(problem, Conflict) and _encloses(problem.batch, at.batch):
                raise
            # What looks like a fault may come from running out of order: in order it is found again if it is one.
            self.memory.restore(saved)
            self._in_order.add(id(s))
            return False
        for name, points, value in found:
            self._combined(at.batch, name, points, known.sums[name], value)
        return True

    def _batches(
        self, s: For, known: Traits, at: _Values, start: Array, counts: Array
    ) -> list[tuple[str, Array, Array]]:
        """What the points of the loop add to variables outside: (variable, points outside, values)."""
        up = np.repeat(at.points, counts)
        ends = np.cumsum(counts)
        number = np.arange(len(up)) - np.repeat(ends - counts, counts)
        axis = np.repeat(start[:, 0], counts) + number * s.step
        size = max(1, _ELEMENTS // known.lanes)
        found: list[tuple[str, Array, Array]] = []
        for first in range(0, len(up), size):
            chosen = slice(first, first + size)
            touched = {name: Touched.none(self.memory.tensors[name].size) for name in known.writes}
            inner = Batch(len(axis[chosen]), at.batch, up[chosen], touched)
            inner.values[s.axis.name] = axis[chosen][:, None]
            for name, fn in known.sums.items():
                local = known.locals[name]
                zero = np.full((inner.count, local.lanes), identity(fn, local.dtype), local.dtype.numpy)
                inner.sums[name] = fn, zero
            self.run(s.body, inner, None)
            outside, cuts = np.unique(up[chosen], return_index=True)
            for name, (fn, values) in inner.sums.items():
                found.append((name, outside, combine_runs(fn, values, cuts)))
        return found

    def _combined(self, batch: Batch, name: str, points: Array, fn: str, value: Array) -> None:
        chosen = None if len(points) == batch.count else points
        if name not in batch.values and name in batch.sums:
            self._combine(batch, name, value, chosen)
            return
        old = batch.lookup(name)
        old = old if len(old) == 1 or chosen is None else old[chosen]
        batch.assign(name, np.asarray(SCALARS[fn].value(old, value)), chosen)


def _encloses(batch: Batch, inner: Batch | None) -> bool:
    while inner is not None and inner is not batch:
        inner = inner.parent
    return inner is batch


def _everywhere(value: Array, count: int, active: Array) -> Array:
    """Values of the active points as values of all `count` points, of which the others are never asked."""
    whole = np.zeros((count, value.shape[1]), value.dtype)
    whole[active] = value
    return whole


class _Values(Interpreter):
    """Values of expressions at the active points of a batch, as arrays [points, lanes]."""

    def __init__(self, machine: _Machine, batch: Batch, active: Array | None) -> None:
        self._machine, self.batch, self.active = machine, batch, active
        self._known: dict[tuple[int, DType | None], Array] = {}

    @property
    def rows(self) -> int:
        """How many points take part."""
        return self.batch.count if self.active is None else len(self.active)

    @property
    def points(self) -> Array:
        """The points that take part."""
        return np.arange(self.batch.count) if self.active is None else self.active

    def dtype(self, e: Expr) -> DType | None:
        return dtype_of(e, self._machine.dtypes, self._machine.types)

    def literal_dtypes(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> tuple[DType | None, ...]:
        """Found once for every place of the program."""
        key = (id(args), fn, like)
        found = self._machine.literals.get(key)
        if found is None:
            found = self._machine.literals[key] = super().literal_dtypes(fn, args, like)
        return found

    def leaf(self, e: Expr) -> Array:
        match e:
            case Axis(name, _) | Local(name, _, _):
                found = self.batch.lookup(name)
                return found if self.active is None or len(found) == 1 else found[self.active]
            case Load(name, (place,)):
                return self._read(name, place, 1)
            case Lanes(Load(name, (place,)), lanes):
                return self._read(name, place, lanes)
            case Words(Load(name, (place,)), lanes):
                return np.ascontiguousarray(self._read(name, place, 4 * lanes)).view(np.int32)
            case Dots(a, b):
                x, y = (np.ascontiguousarray(self.leaf(v)) for v in (a, b))
                terms = x.view(np.uint8).astype(np.int32) * y.view(np.int8)
                return terms.reshape(len(terms), -1, 4).sum(-1, dtype=np.int32)
            case Fold(fn, vector):
                found = self.leaf(vector)
                while found.shape[1] > 1:
                    half = found.shape[1] // 2
                    found = SCALARS[fn].value(found[:, :half], found[:, half:])
                return found
            case _:
                raise AssertionError(e)

    def value(self, e: Expr, like: DType | None) -> Array:
        """The value, computed once for every use in a statement."""
        if not isinstance(e, Apply):
            return super().value(e, like)
        key = (id(e), like)
        if key not in self._known:
            self._known[key] = super().value(e, like)
        return self._known[key]

    def applied(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> Array:
        """As C: what follows a decided `and` or `or` is not evaluated."""
        if fn not in ("and", "or"):
            return super().applied(fn, args, like)
        first = self._matrix(self.value(args[0], None))
        decided = first if fn == "or" else ~first
        if not decided.any():
            return self._matrix(self.value(args[1], None))
        return first if decided.all() else self._merged(decided, None, args[1], first)

    def select(self, args: tuple[Expr, ...], like: DType | None) -> Array:
        """As C: only the chosen argument is evaluated."""
        condition, then, otherwise = args
        chosen = self._matrix(self.value(condition, None))
        if chosen.all() or not chosen.any():
            return self.value(then if chosen.all() else otherwise, like)
        return self._merged(chosen, then, otherwise, None, like)

    def _merged(
        self, chosen: Array, then: Expr | None, otherwise: Expr, known: Array | None, like: DType | None = None
    ) -> Array:
        """`then` (or what is known) at the chosen points, `otherwise` at the others."""
        yes = chosen[:, 0]
        a = known[yes] if then is None and known is not None else self._among(yes).value(then or otherwise, like)
        b = self._among(~yes).value(otherwise, like)
        out = np.zeros((len(yes), 1), np.result_type(a, b))
        out[yes], out[~yes] = a, b
        return out

    def _among(self, chosen: Array) -> _Values:
        return _Values(self._machine, self.batch, self.points[chosen])

    def split(self, condition: Expr) -> tuple[Array | None, Array | None]:
        """The points at which a condition holds, and the others."""
        holds = self._matrix(self.value(condition, None))[:, 0]
        if len(holds) == 1 or holds.all() or not holds.any():
            everyone, nobody = self.active, np.zeros(0, np.int64)
            return (everyone, nobody) if holds[0] else (nobody, everyone)
        return self.points[holds], self.points[~holds]

    def index(self, e: Expr) -> Array:
        """A subscript [points, 1]."""
        return self._matrix(self.value(e, None)).astype(np.int64, copy=False)

    def spots(self, name: str, place: Expr, lanes: int) -> Array:
        """Positions of elements [points, lanes]."""
        return self._machine.memory.spots(name, self.index(place), lanes)

    def converted(self, e: Expr, dtype: DType, lanes: int) -> Array:
        """A value to be kept in a variable or tensor of this type and so many lanes."""
        found = self._matrix(self.value(e, dtype)).astype(dtype.numpy, copy=False)
        return found if found.shape[1] == lanes else np.broadcast_to(found, (len(found), lanes))

    def _read(self, name: str, place: Expr, lanes: int) -> Array:
        spots = self.spots(name, place, lanes)
        self.batch.note(name, spots, self.active, write=False)
        found = self._machine.memory.read(name, spots)
        if name not in self._machine.stored:
            return found
        return in_compute_type(found).astype(self._machine.dtypes[name].numpy, copy=False)

    @staticmethod
    def _matrix(value: Array) -> Array:
        return value if value.ndim == 2 else np.reshape(value, (1, 1))
