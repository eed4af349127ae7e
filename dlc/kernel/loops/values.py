"""Values of the expressions of loops at all points of a batch, computed with numpy at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlc.base.types import Array, DType, f32
from dlc.kernel.evaluate import Arithmetic, Interpreter
from dlc.kernel.expr import Apply, Axis, Expr, Load
from dlc.kernel.loops.memory import Batch, LoopFault, Memory
from dlc.kernel.loops.program import WORD, Dots, Fold, Lanes, Local, Pick, Shuffle, Words, dtype_of


class Tensors:
    """The tensors of a program that runs, and the arithmetic of their elements."""

    def __init__(
        self, memory: Memory, dtypes: dict[str, DType], stored: Mapping[str, DType], numbers: Arithmetic
    ) -> None:
        """Tensors in a memory; `dtypes` are theirs, `stored` the narrow ones of some."""
        self.memory, self.dtypes, self.stored, self.numbers = memory, dtypes, stored, numbers
        self.types: dict[Expr, DType | None] = {}
        self.literals: dict[tuple[int, str, int], tuple[DType | None, ...]] = {}
        """By identity of the arguments, which the program keeps: a loop in order asks as often as it has iterations."""
        self._places: dict[int, tuple[Expr, int]] = {}
        self._formulas: dict[Expr, int] = {}

    def formula(self, e: Expr) -> int:
        """A number that equal expressions share: comparing them each time would cost more than their values."""
        found = self._places.get(id(e))
        if found is None:
            number = self._formulas.setdefault(e, len(self._formulas))
            found = self._places[id(e)] = e, number  # kept with it, so that nothing else gets its identity
        return found[1]

    def values(self, batch: Batch, active: Array | None) -> Values:
        """What evaluates the expressions of a statement."""
        return Values(self, batch, active)


def everywhere(value: Array, count: int, active: Array) -> Array:
    """Values of the active points as values of all `count` points, of which the others are never asked."""
    whole = np.zeros((count, value.shape[1]), value.dtype)
    whole[active] = value
    return whole


class Values(Interpreter):
    """Values of expressions at the active points of a batch, as arrays [points, lanes]."""

    def __init__(self, tensors: Tensors, batch: Batch, active: Array | None) -> None:
        """At the active points of a batch."""
        self.numbers = tensors.numbers
        self._tensors, self.batch, self.active = tensors, batch, active
        self._known: dict[tuple[int, int], Array] = {}  # types by identity: there is one object of each

    @property
    def rows(self) -> int:
        """How many points take part."""
        return self.batch.count if self.active is None else len(self.active)

    @property
    def points(self) -> Array:
        """The points that take part."""
        return np.arange(self.batch.count) if self.active is None else self.active

    def dtype(self, e: Expr) -> DType | None:
        return dtype_of(e, self._tensors.dtypes, self._tensors.types)

    def literal_dtypes(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> tuple[DType | None, ...]:
        """Found once for every place of the program."""
        key = (id(args), fn, id(like))
        found = self._tensors.literals.get(key)
        if found is None:
            found = self._tensors.literals[key] = super().literal_dtypes(fn, args, like)
        return found

    def leaf(self, e: Expr) -> Array:
        match e:
            case Axis(name, _) | Local(name, _, _):
                found = self.batch.lookup(name)
                return found if self.active is None or len(found) == 1 else found[self.active]
            case Load(name, (place,)):
                return self._read(name, place, 1)
            case Lanes(Load(name, (place,)), _, step):
                return self._read(name, place, e.span)[:, ::step]
            case Words(Load(name, (place,)), lanes):
                if name in self._tensors.stored and e.step == 1:
                    return self._read(name, place, lanes * WORD // self._tensors.stored[name].itemsize)
                found = self._read(name, place, e.span(1))[:, :: e.step]
                bytes_ = found if e.step == 1 else found.astype(np.uint8)
                return np.ascontiguousarray(bytes_).view(np.int32)
            case Dots(a, b) if e.dtype is f32:
                x, y = (self.numbers.loaded(self.leaf(v), f32) for v in (a, b))
                terms = self.numbers.applied("mul", f32, x, y)
                return self.numbers.applied("add", f32, terms[:, ::2], terms[:, 1::2])
            case Dots(a, b):
                x, y = (np.ascontiguousarray(self.leaf(v)) for v in (a, b))
                terms = x.view(np.uint8).astype(np.int32) * y.view(np.int8)
                return terms.reshape(len(terms), -1, 4).sum(-1, dtype=np.int32)
            case Shuffle(a, b, order):
                return np.concatenate(np.broadcast_arrays(self.leaf(a), self.leaf(b)), axis=1)[:, order]
            case Pick(parts, places, ahead):
                of = np.concatenate(np.broadcast_arrays(*(self.leaf(x) for x in parts)), axis=1)
                return _picked(of, self.leaf(places) + ahead)
            case Fold(fn, vector):
                found = self.leaf(vector)
                while found.shape[1] > 1:
                    half = found.shape[1] // 2
                    found = self.numbers.applied(fn, vector.dtype, found[:, :half], found[:, half:])
                return found
            case _:
                raise AssertionError(e)

    def value(self, e: Expr, like: DType | None) -> Array:
        """The value, computed once for every use in a statement."""
        if not isinstance(e, Apply | Load):
            return super().value(e, like)
        key = (self._tensors.formula(e), id(like))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = super().value(e, like)
        return found

    def applied(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> Array:
        """As C: what follows a decided `and` or `or` is not evaluated."""
        if fn not in ("and", "or"):
            return super().applied(fn, args, like)
        first = self.matrix(self.value(args[0], None))
        decided = first if fn == "or" else ~first
        if not decided.any():
            return self.matrix(self.value(args[1], None))
        return first if decided.all() else self._merged(decided, None, args[1], first)

    def select(self, args: tuple[Expr, ...], like: DType | None) -> Array:
        """As C: only the chosen argument is evaluated."""
        condition, then, otherwise = args
        chosen = self.matrix(self.value(condition, None))
        if chosen.all() or not chosen.any():
            return self.value(then if chosen.all() else otherwise, like)
        return self._merged(chosen, then, otherwise, None, like)

    def _merged(
        self, chosen: Array, then: Expr | None, otherwise: Expr, known: Array | None, like: DType | None = None
    ) -> Array:
        """`then` (or what is known) at the chosen points, `otherwise` at the others."""
        yes = chosen[:, 0]
        a = known[yes] if then is None and known is not None else self.among(yes).value(then or otherwise, like)
        b = self.among(~yes).value(otherwise, like)
        out = np.zeros((len(yes), 1), np.result_type(a, b))
        out[yes], out[~yes] = a, b
        return out

    def among(self, chosen: Array) -> Values:
        """The same at some of the points."""
        return self._tensors.values(self.batch, self.points[chosen])

    def split(self, condition: Expr) -> tuple[Array | None, Array | None]:
        """The points at which a condition holds, and the others."""
        holds = self.matrix(self.value(condition, None))[:, 0]
        if len(holds) == 1 or holds.all() or not holds.any():
            everyone, nobody = self.active, np.zeros(0, np.int64)
            return (everyone, nobody) if holds[0] else (nobody, everyone)
        return self.points[holds], self.points[~holds]

    def index(self, e: Expr) -> Array:
        """A subscript [points, 1]."""
        return self.matrix(self.value(e, None)).astype(np.int64, copy=False)

    def spots(self, name: str, place: Expr, lanes: int) -> Array:
        """Positions of elements [points, lanes]."""
        return self._tensors.memory.spots(name, self.index(place), lanes)

    def converted(self, e: Expr, dtype: DType, lanes: int) -> Array:
        """A value to be kept in a variable or tensor of this type and so many lanes."""
        found = self.numbers.kept(self.matrix(self.value(e, dtype)), dtype)
        if found.shape[1] == 1 < lanes:
            return np.broadcast_to(found, (len(found), lanes))
        return found if found.shape[1] == lanes else np.tile(found, lanes // found.shape[1])  # one word for all

    def _read(self, name: str, place: Expr, lanes: int) -> Array:
        spots = self.spots(name, place, lanes)
        self.batch.note(name, spots, self.active, write=False)
        found = self._tensors.memory.read(name, spots)
        if name not in self._tensors.stored:
            return found
        return self.numbers.loaded(found, self._tensors.dtypes[name])

    @staticmethod
    def matrix(value: Array) -> Array:
        """As [points, lanes]."""
        return value if value.ndim == 2 else np.reshape(value, (1, 1))


def _picked(of: Array, places: Array) -> Array:
    """Of each row [points, elements] the elements at some places [points, lanes]; either may be the same for all."""
    wrong = (places < 0) | (places >= of.shape[1])
    if wrong.any():
        row = int(wrong.any(axis=1).argmax())
        raise LoopFault(f"there is no lane {int(places[wrong][0])} of {of.shape[1]}", row)
    rows = max(len(of), len(places))
    of, places = (np.broadcast_to(x, (rows, x.shape[1])) for x in (of, places))
    return np.take_along_axis(of, places, axis=1)
