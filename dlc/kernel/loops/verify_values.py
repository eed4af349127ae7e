"""Types and lanes of expressions of loops, and what is wrong with them: see `verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from dlc.base.types import DType, bool_, i32
from dlc.kernel.expr import Apply, Const, Expr, Load
from dlc.kernel.loops.program import Dots, Fold, Lanes, Pick, Shuffle, Words, dtype_of, lanes_of
from dlc.kernel.scalar import SCALARS, result_dtype

_FOLDS: Final = ("add", "mul", "min", "max")


class Wrong(Exception):
    """A statement is wrong."""


class Values:
    """Types and lanes of the expressions of one program, each of which is looked at once."""

    def __init__(self, tensors: Mapping[str, DType]) -> None:
        """`tensors`: their types, by name."""
        self._tensors = tensors
        self._types: dict[int, DType | None] = {}
        self._lanes: dict[int, int] = {}

    def check(self, e: Expr) -> None:
        """Raise Wrong where an expression, whose operands were checked, is wrong."""
        if check := _CHECKS.get(type(e)):
            check(self, e)

    def dtype(self, e: Expr) -> DType | None:
        """The type of an expression; None of a literal, and of a choice between literals."""
        if isinstance(e, Const):
            return None
        key = id(e)  # the program keeps it; equality would compare whole expressions
        if key not in self._types:
            try:
                if isinstance(e, Apply):
                    self._types[key] = result_dtype(e.fn, tuple([self.dtype(a) for a in e.args]))
                else:
                    self._types[key] = dtype_of(e, self._tensors, {})
            except TypeError as wrong:
                raise Wrong(str(wrong)) from None
        return self._types[key]

    def lanes(self, e: Expr) -> int:
        """How many lanes a value has."""
        found = self._lanes.get(id(e))
        if found is None:
            found = self._lanes[id(e)] = lanes_of(e, self.lanes)
        return found

    def integer(self, e: Expr, what: str) -> None:
        """Raise Wrong where a value is no integer."""
        found = self.dtype(e)
        if self.lanes(e) != 1:
            raise Wrong(f"{what} has {self.lanes(e)} lanes")
        if not (found.is_integer if found is not None else not isinstance(e, Const) or type(e.value) is int):
            raise Wrong(f"{what} is of type {found or 'f32'}, which is no integer")

    def fits(self, e: Expr, dtype: DType, lanes: int, what: str) -> None:
        """A value that goes to something of a type and so many lanes."""
        found = self.dtype(e)
        if found is not None and found is not dtype and not (lanes > 1 and found in _held(dtype)):
            raise Wrong(f"a value of {found} goes to {what}, which is of {dtype}")
        if found is None:
            self.literals(e, dtype)
        n = self.lanes(e)
        if n not in (1, lanes) and not isinstance(e, Words):
            raise Wrong(f"a value of {n} lanes goes to {what}, which has {lanes}")

    def literals(self, e: Expr, dtype: DType) -> None:
        """A literal, or a choice between some, as a value of a type."""
        match e:
            case Const(v) if type(v) is bool and dtype is not bool_:
                raise Wrong(f"the literal {v} is used as a value of {dtype}")
            case Const(v) if type(v) is float and not dtype.is_float:
                raise Wrong(f"the literal {v} is used as a value of {dtype}")
            case Const(v) if dtype is bool_ and type(v) is not bool:
                raise Wrong(f"the literal {v} is used as a truth value")
            case Apply("select", (_, then, otherwise)):
                self.literals(then, dtype)
                self.literals(otherwise, dtype)
            case Apply(fn, args) if SCALARS[fn].rule == "same":
                domain = SCALARS[fn].domain
                if (domain == "float" and not dtype.is_float) or (domain == "int" and not dtype.is_integer):
                    raise Wrong(f"{fn} of literals is used as a value of {dtype}")
                for a in args:
                    self.literals(a, dtype)
            case _:
                pass


def _apply(self: Values, e: Expr) -> None:
    assert isinstance(e, Apply)
    self.dtype(e)
    counts = {self.lanes(a) for a in e.args} - {1}
    if len(counts) > 1:
        raise Wrong(f"{e.fn} of vectors of {' and '.join(map(str, sorted(counts)))} lanes")
    scalar = SCALARS[e.fn]
    if scalar.rule == "select":
        condition = self.dtype(e.args[0])
        if condition is not bool_ and not (isinstance(e.args[0], Const) and type(e.args[0].value) is bool):
            raise Wrong(f"select by a condition of type {condition or 'a number'}")
    if scalar.to is not None:
        return
    values = e.args[1:] if scalar.rule == "select" else e.args
    common = next((d for a in values if (d := self.dtype(a)) is not None), None)
    if scalar.domain == "bool" and common not in (None, bool_):
        raise Wrong(f"{e.fn} of {common}, which is defined for truth values")
    if common is None and scalar.domain == "bool":
        common = bool_
    for a in values:
        if common is not None and self.dtype(a) is None:
            self.literals(a, common)


def _load(self: Values, e: Expr) -> None:
    assert isinstance(e, Load)
    if len(e.index) != 1:
        raise Wrong(f"{e.param} is read with {len(e.index)} subscripts")
    self.integer(e.index[0], "a subscript")


def _lanes(_: Values, e: Expr) -> None:
    assert isinstance(e, Lanes | Words)
    if e.lanes < 1 or e.step < 1:
        raise Wrong(f"a vector of {e.lanes} elements by {e.step}")


def _fold(_: Values, e: Expr) -> None:
    assert isinstance(e, Fold)
    if e.fn not in _FOLDS or e.vector.lanes & (e.vector.lanes - 1):
        raise Wrong(f"{e.fn} of {e.vector.lanes} lanes")


def _dots(_: Values, e: Expr) -> None:
    assert isinstance(e, Dots)
    if e.a.dtype is not e.b.dtype or (e.a.lanes not in (1, e.b.lanes) and e.b.lanes != 1):
        a, b = (kind(x.dtype, x.lanes) for x in (e.a, e.b))
        raise Wrong(f"dots of {a} and {b}")


def _shuffle(_: Values, e: Expr) -> None:
    assert isinstance(e, Shuffle)
    if e.a.dtype is not e.b.dtype or e.a.lanes != e.b.lanes:
        raise Wrong(f"a shuffle of {kind(e.a.dtype, e.a.lanes)} and {kind(e.b.dtype, e.b.lanes)}")
    if any(not 0 <= k < 2 * e.a.lanes for k in e.order):
        raise Wrong(f"a shuffle of {2 * e.a.lanes} lanes by {max(e.order, key=abs)}")


def _pick(self: Values, e: Expr) -> None:
    assert isinstance(e, Pick)
    if any(x.lanes != e.places.lanes or x.dtype is not e.parts[0].dtype for x in e.parts):
        raise Wrong("a pick of vectors that differ")
    if self.dtype(e.places) is not i32:
        raise Wrong(f"a pick by {self.dtype(e.places)}")


_CHECKS: Final[Mapping[type, Callable[[Values, Expr], None]]] = {
    Apply: _apply,
    Load: _load,
    Lanes: _lanes,
    Words: _lanes,
    Fold: _fold,
    Dots: _dots,
    Shuffle: _shuffle,
    Pick: _pick,
}


def _held(dtype: DType) -> Iterator[DType]:
    """Types of vectors that hold values of a type: those of narrow ones and of bytes are wider."""
    yield dtype.compute
    if dtype.bits == 8:
        yield i32


def kind(dtype: DType, lanes: int) -> str:
    """A type as messages have it."""
    return f"{dtype}x{lanes}" if lanes > 1 else str(dtype)
