"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final

from dlc.base.types import Type, bool_, f64
from dlc.graph import Op, Splat
from dlc.ops import elementwise as e
from dlc.ops.linear import Det, MatMul
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.ops.conversion import converted
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported

UNARY: Final[Mapping[str, Callable[[Op], Op]]] = {
    "Abs": e.Abs,
    "Acos": e.Acos,
    "Acosh": e.Acosh,
    "Asin": e.Asin,
    "Asinh": e.Asinh,
    "Atan": e.Atan,
    "Atanh": e.Atanh,
    "BitwiseNot": e.BitNot,
    "Ceil": e.Ceil,
    "Cos": e.Cos,
    "Cosh": e.Cosh,
    "Erf": e.Erf,
    "Exp": e.Exp,
    "Floor": e.Floor,
    "HardSwish": e.HardSwish,
    "IsNaN": e.IsNan,
    "Log": e.Log,
    "Mish": e.Mish,
    "Neg": e.Neg,
    "Not": e.Not,
    "Reciprocal": e.Reciprocal,
    "Relu": e.Relu,
    "Round": e.Round,
    "Sigmoid": e.Sigmoid,
    "Sign": e.Sign,
    "Sin": e.Sin,
    "Sinh": e.Sinh,
    "Softplus": e.Softplus,
    "Softsign": e.Softsign,
    "Sqrt": e.Sqrt,
    "Tan": e.Tan,
    "Tanh": e.Tanh,
}
BINARY: Final[Mapping[str, Callable[[Op, Op], Op]]] = {
    "Add": e.Add,
    "And": e.And,
    "BitwiseAnd": e.BitAnd,
    "BitwiseOr": e.BitOr,
    "BitwiseXor": e.BitXor,
    "Div": e.Div,
    "Equal": e.Equal,
    "Greater": e.Greater,
    "GreaterOrEqual": e.GreaterOrEqual,
    "Less": e.Less,
    "LessOrEqual": e.LessOrEqual,
    "Mul": e.Mul,
    "Or": e.Or,
    "Sub": e.Sub,
    "Xor": e.Xor,
}


@onnx(*UNARY)
def unary(node: Node) -> Op:
    """One op of the same meaning."""
    node.ignore("consumed_inputs")
    return UNARY[node.proto.op_type](node.x())


@onnx(*BINARY)
def binary(node: Node) -> Op:
    """One op of the same meaning; operands broadcast."""
    a, b = node.x(0), node.x(1)
    if node.version < 7 and node.flag("broadcast") and node.has("axis"):  # b begins at a dimension of a
        b = reshaped(b, (*b.shape, *(1,) * (len(a.shape) - node.axis() - len(b.shape))))
    return BINARY[node.proto.op_type](a, b)


@onnx("Sum")
def sum_(node: Node) -> Op:
    """y = Σ operands."""
    return reduce(e.Add, node.all())


@onnx("Mean")
def mean(node: Node) -> Op:
    """y = Σ operands / n."""
    total = reduce(e.Add, node.all())
    return e.Div(total, number(len(node.inputs), total))


@onnx("Max")
def maximum(node: Node) -> Op:
    """y = max of the operands."""
    return reduce(e.Maximum, node.all())


@onnx("Min")
def minimum(node: Node) -> Op:
    """y = min of the operands."""
    return reduce(e.Minimum, node.all())


@onnx("Mod")
def mod(node: Node) -> Op:
    """y = a mod b, sign of b, or of a with fmod."""
    return e.Mod(node.x(0), node.x(1), fmod=node.flag("fmod"))


@onnx("Pow")
def power(node: Node) -> Op:
    """y = a ** b in the type of a."""
    a, b = node.x(0), node.x(1)
    if a.dtype == b.dtype:
        return _simple_power(node, a, b)
    # The exponent's type may be any: an integer base with a fractional exponent computes in floating point.
    wide = f64 if not a.dtype.is_float and b.dtype.is_float else a.dtype
    return cast(_simple_power(node, cast(a, wide), cast(b, wide)), a.dtype)


def _simple_power(node: Node, a: Op, b: Op) -> Op:
    """Small constant exponents are products and roots: exact where pow need not be, and far cheaper."""
    value = node.maybe_constant(1)
    if value is not None and value.size == 1 and a.dtype.is_float and len(b.shape) <= len(a.shape):
        match float(value.reshape(-1)[0]):
            case 2.0:
                return e.Mul(a, a)
            case 0.5:
                return e.Sqrt(a)
            case 1.0:
                return a
            case _:
                pass
    return e.Pow(a, b)


@onnx("IsInf")
def is_inf(node: Node) -> Op:
    """Whether x is infinite, of the signs asked for."""
    x = node.x()
    negative, positive = node.flag("detect_negative", True), node.flag("detect_positive", True)
    if negative and positive:
        return e.IsInf(x)
    if not negative and not positive:
        return Splat(False, Type(bool_, x.shape))
    sign = e.Greater(x, number(0, x)) if positive else e.Less(x, number(0, x))
    return e.And(e.IsInf(x), sign)


@onnx("Clip")
def clip_by_attributes(node: Node) -> Op:
    """y = min(max(x, min), max), bounds as attributes."""
    return e.Clip(
        node.x(),
        low=node.float("min") if node.has("min") else None,
        high=node.float("max") if node.has("max") else None,
    )


@onnx("Clip", since=11)
def clip(node: Node) -> Op:
    """y = min(max(x, min), max), bounds as operands."""
    x = node.x()
    low, high = (_bound(node, k) for k in (1, 2))
    constant_low, constant_high = (None if isinstance(b, Op) else b for b in (low, high))
    y: Op = x if constant_low is None and constant_high is None else e.Clip(x, low=constant_low, high=constant_high)
    if isinstance(low, Op):
        y = e.Clip(e.Maximum(x, low), high=constant_high)
    return e.Minimum(y, high) if isinstance(high, Op) else y


def _bound(node: Node, k: int) -> float | int | Op | None:
    """A bound as a number, as an operand when it is computed, or None."""
    operand = node.optional(k)
    value = node.maybe_constant(k)
    if operand is None or value is None:
        return operand
    found = value.reshape(-1)[0]
    return float(found) if operand.dtype.is_float else int(found)


@onnx("Cast")
def cast_(node: Node) -> Op:
    """x in another element type."""
    return converted(node, node.x(), node.dtype("to"))


@onnx("CastLike")
def cast_like(node: Node) -> Op:
    """x in the element type of another operand."""
    return converted(node, node.x(), node.x(1).dtype)


@onnx("Where")
def where(node: Node) -> Op:
    """y = a where the condition holds, else b."""
    return e.Where(node.x(0), node.x(1), node.x(2))


@onnx("BitShift")
def bit_shift(node: Node) -> Op:
    """The bits of x moved by n to the left or right."""
    x, n, direction = node.x(0), node.x(1), node.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise Unsupported(f"a shift in the direction {direction!r}", "LEFT and RIGHT are defined")
    return e.ShiftLeft(x, n) if direction == "LEFT" else e.ShiftRight(x, n)


@onnx("BitCast", since=26)
def bit_cast(node: Node) -> Op:
    """The bits of x read as another element type of the same size."""
    x, to = node.x(), node.dtype("to")
    if to.itemsize != x.dtype.itemsize:
        sizes = f"{x.dtype.itemsize * 8} bits of {x.dtype} as {to}, which has {to.itemsize * 8}"
        raise Unsupported(sizes, "BitCast is for types of the same size; Cast converts")
    return x if to is x.dtype else e.BitCast(x, to=to)


@onnx("Identity")
def identity(node: Node) -> Op:
    """y = x."""
    return node.x()


@onnx("MatMul")
def matmul(node: Node) -> Op:
    """Matrix product, batched."""
    return MatMul(node.x(0), node.x(1))


@onnx("Det", since=11)
def det(node: Node) -> Op:
    """The determinant of each square matrix."""
    return Det(node.x())
