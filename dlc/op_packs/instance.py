"""A statement of an op pack for given operands and attributes: dimensions and axes become numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.base.extents import Dim
from dlc.base.types import DType, f32
from dlc.kernel.define import Comp, ShapeError, grid, same
from dlc.kernel.expr import SIZE, Apply, Axis, Const, Expr, Load, Number, apply, lift, loads, walk
from dlc.kernel.nest import Param, dtype_of
from dlc.kernel.print import print_expr
from dlc.kernel.scalar import SCALARS
from dlc.op_packs.dims import REST, OperandType
from dlc.op_packs.statements import REST_AXIS, Statement
from dlc.ops.pointwise import broadcast

Attributes: TypeAlias = Mapping[str, Number]

_WHOLE: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}
_TRUTH: Mapping[str, Callable[[Number, Number], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
}


@dataclass(frozen=True)
class Condition:
    """A condition on dimensions and attributes, and its text."""

    value: Expr
    text: str


@dataclass(frozen=True)
class Definition:
    """What an op with one statement computes."""

    operands: Mapping[str, OperandType]
    attributes: tuple[str, ...]
    """Those that are numbers."""
    require: tuple[Condition, ...]
    statement: Statement

    def comp(self, params: Sequence[Param | None], attributes: Attributes) -> Comp:
        """The comprehension for operands, of which optional ones may be None. Raises ShapeError: they do not fit."""
        return _Instance(self, params, attributes).comp()


def bound(
    operands: Mapping[str, OperandType], params: Sequence[Param | None]
) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """(size of each named dimension, dimensions in the place of `...` of each operand). Raises ShapeError."""
    known: dict[str, int] = {}
    rest: dict[str, tuple[int, ...]] = {}
    for (name, kind), param in zip(operands.items(), params, strict=True):
        if param is not None:
            rest[name] = kind.bind(name, param.type, known)
    return known, rest


def demand(conditions: Sequence[Condition], known: Mapping[str, Number]) -> None:
    """Raise ShapeError, with the numbers, where a condition does not hold."""
    for condition in conditions:
        if not number(condition.value, known):
            names = sorted({x.param.removeprefix(SIZE) for x in loads(condition.value)})
            given = ", ".join(f"{name} is {known[name]}" for name in names)
            raise ShapeError(f"{condition.text} does not hold: {given}")


def number(e: Expr, known: Mapping[str, Number]) -> Number:
    """The value of an expression over dimensions and attributes. Raises ShapeError: it has none."""
    match e:
        case Const(value):
            return value
        case Load(name, ()):
            found = known.get(name.removeprefix(SIZE))
            if found is None:
                raise ShapeError(f"{name.removeprefix(SIZE)} is not known: the operand that has it is left out")
            return found
        case Apply("neg", (a,)):
            return -number(a, known)
        case Apply("not", (a,)):
            return not number(a, known)
        case Apply(fn, (a, b)) if fn in _WHOLE or fn in _TRUTH:
            left, right = number(a, known), number(b, known)
            if fn in ("floordiv", "mod") and right == 0:
                raise ShapeError(f"{print_expr(e)}: division by 0".replace(SIZE, ""))
            if fn in _WHOLE and not (isinstance(left, Dim) or isinstance(right, Dim)):
                return _WHOLE[fn](left, right)  # pyright: ignore[reportArgumentType] - of floats as of ints
            return (_WHOLE.get(fn) or _TRUTH[fn])(left, right)  # pyright: ignore
        case _:
            raise ShapeError(f"{print_expr(e)} has no value before the program runs".replace(SIZE, ""))


class _Instance:
    """One statement with everything that is known of one op."""

    def __init__(self, of: Definition, params: Sequence[Param | None], attributes: Attributes) -> None:
        self.of = of
        self.params = dict(zip(of.operands, params, strict=True))
        self.dims, self.rest = bound(of.operands, params)
        self.known: dict[str, Number] = {**attributes, **self.dims}
        demand(of.require, self.known)
        present = [p for p in params if p is not None]
        self.types = {p.name: p.dtype for p in present}
        self.real = next((p.dtype for p in present if p.dtype.is_float), f32)
        self.outer = grid(broadcast(*self.rest.values()), "r")
        self.axes: dict[str, Axis] = {}

    def comp(self) -> Comp:
        s = self.of.statement
        for name in (*s.places, *s.bound):
            if name != REST:
                self.axes[name] = Axis(name, self._extent(name))
        index = [a for name in s.places for a in (self.outer if name == REST else (self.axes[name],))]
        reduced = [self.axes[name] for name in s.bound]
        body = self._typed(self._built(s.body))
        where = None if s.where is None else self._built(s.where)
        shape = tuple(a.extent for a in index)
        return Comp(tuple(index), (*index, *reduced), body, s.reduce, where, shape)

    def _extent(self, name: str) -> int:
        """As the statement says, else of the dimensions that it subscribes."""
        s = self.of.statement
        if name in s.extents:
            found = number(s.extents[name], self.known)
            if isinstance(found, bool) or not isinstance(found, int):
                raise ShapeError(f"the extent of {name} is {found}, not a whole number")
            if not isinstance(found, Dim) and found < 0:
                raise ShapeError(f"the extent of {name} would be {found}")
            return found
        size: int | None = None
        for e in (s.body, *(() if s.where is None else (s.where,))):
            for load in loads(e):
                for k, i in enumerate(load.index):
                    if isinstance(i, Axis) and i.name == name:
                        own = self._dimension(load, k)
                        if own is not None:
                            size = own if size is None else same(size, own, f"dimensions that {name} runs over")
        if size is None:
            raise ShapeError(f"the extent of {name} is not known: write {name}<…")
        return size

    def _dimension(self, load: Load, k: int) -> int | None:
        """Size of what subscript `k` selects from; None of an operand that is left out."""
        param = self.params[load.param]
        if param is None:
            return None
        after = len(load.index) - k
        return param.shape[k] if REST_AXIS not in load.index[:k] else param.shape[len(param.shape) - after]

    def _built(self, e: Expr) -> Expr:
        """With numbers for dimensions and attributes, parameters for operands, and their kinds of literals."""
        match e:
            case Axis():
                return self.axes[e.name]
            case Load(name, ()) if name.startswith(SIZE):
                return lift(number(e, self.known))
            case Load():
                return self._element(e)
            case Apply(fn, args):
                return self._applied(fn, [self._built(a) for a in args])
            case _:
                return e

    def _element(self, e: Load) -> Expr:
        param, kind = self.params[e.param], self.of.operands[e.param]
        if param is None:
            assert kind.default is not None
            return Const(kind.default)
        own = self.rest[e.param]
        behind = self.outer[len(self.outer) - len(own) :]
        out: list[Expr] = []
        for i in e.index:
            if i == REST_AXIS:
                out += [Const(0) if size == 1 else a for size, a in zip(own, behind, strict=True)]
            else:
                out.append(self._built(i))
        return param[tuple(out)]

    def _applied(self, fn: str, args: list[Expr]) -> Expr:
        """A function, whose arguments that are no elements of operands take the type of those that are."""
        scalar = SCALARS[fn]
        if scalar.rule in ("cast", "bits"):
            return apply(fn, *args)
        values = args[1:] if scalar.rule == "select" else args
        found = {d for a in values if not self._weak(a) and (d := dtype_of(a, self.types))}
        to = next((d for d in found if d.is_float), None)
        if to is None and not found and scalar.domain == "float":
            to = self.real
        if to is not None:
            values = [self._converted(a, to) if self._weak(a) else a for a in values]
        return apply(fn, *([args[0], *values] if scalar.rule == "select" else values))

    def _weak(self, e: Expr) -> bool:
        """Whether it is made of literals, axes and sizes alone, and no conversion."""
        return not any(
            (isinstance(x, Load) and not x.param.startswith(SIZE))
            or (isinstance(x, Apply) and SCALARS[x.fn].rule in ("cast", "bits"))
            for x in walk(e)
        )

    def _converted(self, e: Expr, to: DType) -> Expr:
        if isinstance(e, Const):
            return e if isinstance(e.value, bool) else Const(float(e.value))
        dtype = dtype_of(e, self.types)
        return e if dtype is None or dtype.is_float else apply(to.name, e)

    def _typed(self, e: Expr) -> Expr:
        """A body that is a literal alone, in the type of the first operand with a fraction if it has one."""
        if isinstance(e, Const) and isinstance(e.value, float):
            return apply(self.real.name, e) if self.real is not f32 else e
        return e
