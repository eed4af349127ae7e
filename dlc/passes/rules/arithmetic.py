"""Algebra of single elements: units, zeros, involutions, constants to the right."""

from __future__ import annotations

import math

from dlc.api.rules import RewriteContext, as_shape, equation, full, rule, unit
from dlc.base.types import DType
from dlc.graph.constants import is_number, number
from dlc.graph.op import Op
from dlc.graph.structure import Splat
from dlc.ops.elementwise import (
    Abs,
    Add,
    And,
    Cast,
    Ceil,
    Div,
    Equal,
    Floor,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Not,
    Or,
    Pow,
    Reciprocal,
    Relu,
    Round,
    Sign,
    Sqrt,
    Sub,
    Where,
    Xor,
)
from dlc.ops.pointwise import Pointwise, broadcast
from dlc.ops.shape import Expand

_COMMUTATIVE = (Add, Mul, Minimum, Maximum, And, Or, Xor, Equal)


@rule(*_COMMUTATIVE)
def constant_right(op: Op, context: RewriteContext) -> Op | None:
    """c ∘ x → x ∘ c for commutative ∘: other rules look for constants on the right only."""
    a, b = op.operands
    return op.with_operands([b, a]) if context.constant(a) and not context.constant(b) else None


@rule(Add)
def add_zero(op: Add, context: RewriteContext) -> Op | None:
    """x + 0 → x; for floats x + -0.0 → x, because -0.0 + 0.0 is 0.0; with `fast` also x + 0.0 → x."""
    zero = is_number(op.b, -0.0) or (is_number(op.b, 0) and (context.fast or not op.dtype.is_float))
    return as_shape(op.a, op.shape) if zero else None


@equation(Sub)
def sub_zero(op: Sub) -> Op | None:
    """x - 0 → x, exact for every x."""
    return as_shape(op.a, op.shape) if is_number(op.b, 0) else None


@rule(Sub)
def sub_constant(op: Sub, context: RewriteContext) -> Op | None:
    """x - c → x + -c: one form of adding a constant."""
    if not context.constant(op.b) or context.constant(op.a) or not op.dtype.is_float:
        return None
    value = number(op.b)
    return Add(op.a, Neg(op.b) if value is None else full(-value, op.b.type))


@equation(Mul, Div)
def times_one(op: Mul | Div) -> Op | None:
    """x · 1 → x; x / 1 → x."""
    return as_shape(op.a, op.shape) if is_number(op.b, 1) else None


@rule(Mul)
def times_zero(op: Mul, context: RewriteContext) -> Op | None:
    """x · 0 → 0 for integers; for floats only with `fast`."""
    zero = number(op.b) == 0
    return full(0, op.type) if zero and (context.fast or not op.dtype.is_float) else None


@rule(Sub)
def minus_itself(op: Sub, context: RewriteContext) -> Op | None:
    """x - x → 0 for integers; for floats only with `fast`."""
    return full(0, op.type) if op.a == op.b and (context.fast or not op.dtype.is_float) else None


@equation(Div, fast=True)
def divided_by_itself(op: Div) -> Op | None:
    """x / x → 1 for floats."""
    return full(1, op.type) if op.a == op.b and op.dtype.is_float else None


@equation(Div)
def divide_by_power_of_two(op: Div) -> Op | None:
    """x / 2ⁿ → x · 2⁻ⁿ for -14 ≤ n ≤ 14, where both constants are exact."""
    value = number(op.b)
    if not isinstance(value, float) or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    return Mul(op.a, full(1 / value, op.b.type)) if 2.0**-14 <= abs(value) <= 2.0**14 else None


@equation(Pow)
def power(op: Pow) -> Op | None:
    """x ** 1 → x; x ** 2 → x · x; x ** -1 → 1 / x."""
    value, x = number(op.b), op.a
    if x.shape != op.shape:
        return None
    if value == 1:
        return x
    if value == 2:
        return Mul(x, x)
    return Reciprocal(x) if value == -1 and op.dtype.is_float else None


@equation(Pow, fast=True)
def root(op: Pow) -> Op | None:
    """x ** ½ → √x, which differs for -0.0 and -∞ only."""
    return Sqrt(op.a) if number(op.b) == 0.5 and op.a.shape == op.shape else None


@rule(Add, Mul)
def collect_constants(op: Add | Mul, context: RewriteContext) -> Op | None:
    """(x ∘ c) ∘ d → x ∘ (c ∘ d) for floats, if |c|, |d| and |c ∘ d| are at least 0.001 and at most 1000."""
    inner = op.a
    if not isinstance(inner, (Add, Mul)) or type(inner) is not type(op) or not context.single(inner):
        return None
    c, d = number(inner.b), number(op.b)
    if c is None or d is None or not op.dtype.is_float:
        return None
    value = c + d if isinstance(op, Add) else c * d
    if not math.isfinite(value) or not 1e-3 <= abs(value) <= 1e3 or not all(1e-3 <= abs(v) <= 1e3 for v in (c, d)):
        return None
    return as_shape(type(op)(inner.a, unit(value, op.dtype)), op.shape)


@equation(Neg, Not)
def twice(op: Neg | Not) -> Op | None:
    """-(-x) → x; not not x → x."""
    return op.x.x if isinstance(op.x, (Neg, Not)) and type(op.x) is type(op) else None


_ROUNDED = (Floor, Ceil, Round)


@equation(Relu, Abs, Sign, Floor, Ceil, Round)
def idempotent(op: Op) -> Op | None:
    """f(f(x)) → f(x) for relu, abs, sign; f(g(x)) → g(x) for rounding functions f and g."""
    (x,) = op.operands
    again = type(x) is type(op) or (isinstance(op, _ROUNDED) and isinstance(x, _ROUNDED))
    return x if again else None


@equation(Abs)
def sign_is_lost(op: Abs) -> Op | None:
    """|-x| → |x|."""
    return Abs(op.x.x) if isinstance(op.x, Neg) else None


@rule(Add, Sub)
def add_negated(op: Add | Sub, context: RewriteContext) -> Op | None:
    """a + -b → a - b; -a + b → b - a; a - -b → a + b."""
    match op:
        case Add(a=a, b=Neg(x=b)) if not context.constant(b):
            return Sub(a, b)
        case Add(a=Neg(x=a), b=b) if not context.constant(b):
            return Sub(b, a)
        case Sub(a=a, b=Neg(x=b)):
            return Add(a, b)
        case _:
            return None


@equation(Minimum, Maximum, And, Or)
def with_itself(op: Op) -> Op | None:
    """x ∘ x → x for min, max, and, or."""
    a, b = op.operands
    return a if a == b else None


@equation(And, Or, Xor)
def logic_with_constant(op: And | Or | Xor) -> Op | None:
    """x and true → x; x and false → false; x or false → x; x or true → true; x xor false → x; x xor true → not x."""
    value = number(op.b)
    if value is None:
        return None
    keeps = isinstance(op, And) == bool(value)
    if isinstance(op, Xor):
        return as_shape(Not(op.a) if value else op.a, op.shape)
    return as_shape(op.a, op.shape) if keeps else full(bool(value), op.type)


@equation(Where)
def where(op: Where) -> Op | None:
    """where(true, a, b) → a; where(false, a, b) → b; where(c, a, a) → a; where(not c, a, b) → where(c, b, a)."""
    if (value := number(op.condition)) is not None:
        return as_shape(op.a if value else op.b, op.shape)
    if op.a == op.b:
        return as_shape(op.a, op.shape)
    return Where(op.condition.x, op.b, op.a) if isinstance(op.condition, Not) else None


@equation(Cast)
def cast(op: Cast) -> Op | None:
    """cast(x: t, t) → x; cast(cast(x, wide), u) → cast(x, u) if the type wide, of the same kind, represents every x."""
    if op.to == op.x.dtype:
        return op.x
    match op.x:
        case Cast(x=x, to=middle) if _widens(x.dtype, middle):
            return Cast(x, op.to)
        case _:
            return None


def _widens(have: DType, want: DType) -> bool:
    """Whether a conversion keeps every value, and a later conversion cannot tell."""
    if have.kind == "bool":
        return not want.narrow  # one of them has no zero
    if want.is_float and want.narrow:
        return have is want
    kinds = {("uint", "int")} if want.bits > have.bits else set[tuple[str, str]]()
    return want.bits >= have.bits and (have.kind == want.kind or (have.kind, want.kind) in kinds)


@equation(Pointwise)
def broadcast_late(op: Pointwise) -> Op | None:
    """f(expand(x), y) → f(x, y); f(splat[3,4], y) → f(splat[], y): if the result has the same shape."""
    operands = list(op.operands)
    if len(operands) < 2:
        return None
    for k, x in enumerate(operands):
        smaller = x.x if isinstance(x, Expand) else unit(x.value, x.dtype) if isinstance(x, Splat) and x.shape else None
        if smaller is None:
            continue
        others = [o.shape for j, o in enumerate(operands) if j != k]
        if broadcast(smaller.shape, *others) == op.shape:
            operands[k] = smaller
    return op.with_operands(operands) if tuple(operands) != op.operands else None


RULES = (
    constant_right,
    add_zero,
    sub_zero,
    sub_constant,
    times_one,
    times_zero,
    minus_itself,
    divided_by_itself,
    divide_by_power_of_two,
    power,
    root,
    collect_constants,
    twice,
    idempotent,
    sign_is_lost,
    add_negated,
    with_itself,
    logic_with_constant,
    where,
    cast,
    broadcast_late,
)
