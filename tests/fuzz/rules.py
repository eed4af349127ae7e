"""The rules by which onnxruntime may differ from the reference: what ONNX leaves open, and what it is known to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.fuzz.model import Array, Node
from tests.fuzz.narrow import INTEGERS, code
from tests.fuzz.rounding import leaves_range

Values = Mapping[str, Array]


@dataclass(frozen=True)
class Rule:
    """A deviation of onnxruntime that is known, and counted by its name."""

    name: str
    ops: tuple[str, ...]
    applies: Callable[[Node, Values, Values], bool]
    """Of a node, the values of its operands, and those that the reference gives it."""
    undefined: bool = False
    """Whether onnxruntime gives what lay in its memory, which may be another value in another run, or the right one."""


def _floats(node: Node, values: Values) -> list[Array]:
    return [v for n in node.inputs if (v := values.get(n)) is not None and v.dtype.kind == "f"]


def _has_nan(node: Node, values: Values, wanted: Values) -> bool:
    del wanted
    return any(np.isnan(v).any() for v in _floats(node, values))


def not_finite(node: Node, values: Values, wanted: Values) -> bool:
    del wanted
    return any(not np.isfinite(v).all() for v in _floats(node, values))


def _nearly(error: float, relative: float = 0.0) -> Callable[[Node, Values, Values], bool]:
    """Within an absolute error, and a relative one."""

    def applies(node: Node, values: Values, wanted: Values) -> bool:
        pairs = [(values[o], wanted[o]) for o in node.outputs if o in values]
        return all(np.allclose(a, b, rtol=relative, atol=error, equal_nan=True) for a, b in pairs)

    return applies


def _half(node: Node, values: Values, wanted: Values) -> bool:
    """Whether a function of f16 is exact to an absolute error of a unit below 1."""
    return wanted[node.outputs[0]].dtype == np.float16 and _nearly(2e-3, 4e-3)(node, values, wanted)


def _no_integer(node: Node, values: Values, wanted: Values) -> bool:
    """Whether a conversion to an integer has operands outside of its range."""
    x, to = values[node.inputs[0]].astype(np.float64), wanted[node.outputs[0]].dtype
    return to.kind in "iu" and not bool(np.all((x > float(np.iinfo(to).min) - 1) & (x < float(np.iinfo(to).max) + 1)))


def _four_bits(node: Node, values: Values, wanted: Values) -> bool:
    """Whether a conversion to four bits is to the nearest integer, in place of the next one towards 0."""
    x, name = values[node.inputs[0]], node.outputs[0]
    if node.attributes.get("to") not in [code(name) for name in INTEGERS] or x.dtype.kind != "f":
        return False
    near = np.abs(values[name].astype(np.float64) - x.astype(np.float64)) <= 0.5
    return bool(np.all((values[name] == wanted[name]) | near))


def _single(node: Node, values: Values, wanted: Values) -> bool:
    """Whether f64 is exact to single precision, where variances are differences of larger numbers."""
    return wanted[node.outputs[0]].dtype == np.float64 and _nearly(1e-4, 1e-4)(node, values, wanted)


def _logistic(node: Node, values: Values, wanted: Values) -> bool:
    """Whether a logistic function of onnxruntime's own operands is exact to an absolute error."""
    del wanted
    with np.errstate(over="ignore"):
        exact = 1.0 / (1.0 + np.exp(-values[node.inputs[0]].astype(np.float64)))
    return np.allclose(values[node.outputs[0]], exact, rtol=1e-6, atol=1e-6, equal_nan=True)


def _swish(node: Node, values: Values, wanted: Values) -> bool:
    """Whether a number times its logistic function, one function in onnxruntime, has that one's absolute error."""
    name = node.outputs[0]
    a, b = (values[n].astype(np.float64) for n in node.inputs)
    if a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        pairs = [x for x, y in ((a, b), (b, a)) if np.allclose(1.0 / (1.0 + np.exp(-x)), y, 1e-5, 1e-6, equal_nan=True)]
        close = [
            np.abs(values[name].astype(np.float64) - wanted[name]) <= 1e-6 * np.maximum(np.abs(x), 1) for x in pairs
        ]
    return any(bool(np.all(c | (values[name] == wanted[name]) | np.isnan(wanted[name]))) for c in close)


def _cubic(node: Node, values: Values, wanted: Values) -> bool:
    """Whether a cubic interpolation has the error of places in single precision."""
    x = values[node.inputs[0]].astype(np.float64)
    size = max((float(abs(v)) for v in x.reshape(-1).tolist() if np.isfinite(v)), default=0.0)
    return node.attributes.get("mode") == "cubic" and _nearly(2e-6 * size)(node, values, wanted)


def _wraps(node: Node, values: Values, wanted: Values) -> bool:
    """Whether a sum, product or power of integers may leave the range of their type."""
    del wanted
    x = values[node.inputs[0]]
    if x.dtype.kind not in "iu":
        return False
    sizes = [abs(v) for v in x.reshape(-1).tolist()]
    if node.op == "Pow":
        exponents = np.nan_to_num(values[node.inputs[1]].astype(np.float64)).clip(0, 64)  # no type is wider
        largest = max(sizes, default=0) ** math.ceil(max(exponents.reshape(-1).tolist(), default=0.0))
    else:
        largest = sum(sizes) if node.op == "ReduceSum" else math.prod(max(v, 1) for v in sizes)
    return largest > np.iinfo(x.dtype).max


def _may_leave_range(node: Node, values: Values, wanted: Values) -> bool:
    del wanted
    return leaves_range(values[node.inputs[0]])


def _of_nothing(node: Node, values: Values, wanted: Values) -> bool:
    """Whether results have elements although operands have none."""
    return wanted[node.outputs[0]].size > 0 and any(not values[n].size for n in node.inputs[:2] if n in values)


def _empty(node: Node, values: Values, wanted: Values) -> bool:
    del wanted
    return any(not values[n].size for n in node.inputs[:1] if n in values)


def _fraction(node: Node, values: Values, wanted: Values) -> bool:
    """Whether coordinates depend on a length that is no whole number, or is 1."""
    if len(node.inputs) > 3:  # sizes in place of scales
        lengths = [float(e) for e in wanted[node.outputs[0]].shape]
    else:
        operands = list(node.inputs)
        lengths = [e * float(s) for e, s in zip(values[operands[0]].shape, values[operands[2]], strict=True)]
    way = node.attributes.get("coordinate_transformation_mode", "")
    return way in ("align_corners", "pytorch_half_pixel") and any(n != int(n) or n == 1 for n in lengths)


def _powers_leave_range(node: Node, values: Values, wanted: Values) -> bool:
    """Whether powers of finite float16 operands, or their sum, overflow in float16 or lose digits by underflow."""
    del wanted
    x, p = values[node.inputs[0]], node.attributes.get("p", 2)
    if x.dtype != np.float16 or not np.isfinite(x).all():
        return False
    powers = np.abs(x.astype(np.float64)) ** p
    return bool(powers.sum() >= 65520 or np.any((powers > 0) & (powers < np.finfo(np.float16).smallest_normal)))


def _nearly_equal(node: Node, values: Values, wanted: Values) -> bool:
    """Whether float16 operands are a few units apart wherever a comparison differs."""
    a, b = (values[n] for n in node.inputs)
    name = node.outputs[0]
    close = np.isclose(a.astype(np.float64), b.astype(np.float64), rtol=4e-3, atol=1e-7)
    return a.dtype == np.float16 and bool((close | (values[name] == wanted[name])).all())


def _zero_to_negative(node: Node, values: Values, wanted: Values) -> bool:
    """Whether an integer power of 0 has a negative exponent: infinity, converted to an integer."""
    del wanted
    base, exponent = (values[n] for n in node.inputs)
    return base.dtype.kind == "i" and bool(np.any((base == 0) & (exponent < 0)))


PRODUCTS: Final = "products of many numbers that leave the range of their type in one order and not in another"
RULES: Final = (
    Rule("0 to a negative power, of integers: 0 here", ("Pow",), _zero_to_negative),
    # Where NaN stands among numbers, ONNX does not say; the reference follows numpy, onnxruntime the vector unit.
    Rule(
        "NaN is not ordered: a maximum, minimum or place depends on the order of comparisons",
        (
            "ReduceMax",
            "ScatterElements",
            "ScatterND",
            "ReduceMin",
            "MaxPool",
            "GlobalMaxPool",
            "Clip",
            "Min",
            "Max",
            "Hardmax",
            "ArgMax",
            "ArgMin",
            "TopK",
            "Unique",
        ),
        _has_nan,
    ),
    Rule(
        "a softmax or logarithm of sums with NaN or infinities: onnxruntime's maximum ignores NaN",
        ("Softmax", "LogSoftmax", "ReduceLogSumExp", "SoftmaxCrossEntropyLoss"),
        not_finite,
    ),
    # Of f32 it is a rational function on [-18, 18], exact to an absolute error of a few 2^-24, not a relative one.
    Rule("onnxruntime's logistic function has a small absolute error", ("If",), _nearly(1e-6, 1e-6)),
    Rule("onnxruntime's logistic function has a small absolute error", ("Sigmoid",), _logistic),
    Rule("onnxruntime's logistic function has a small absolute error", ("Mul",), _swish),
    # log(1 + e^x), where 1 + e^x is rounded.
    Rule("onnxruntime's Softplus of f64 has a small absolute error", ("Softplus",), _nearly(5e-16, 1e-15)),
    # It takes them in floating point, and what a processor makes of a float without an integer is its own.
    Rule("integers that overflow: they wrap here", ("Pow", "ReduceProd", "ReduceSum"), _wraps),
    Rule(PRODUCTS, ("ReduceProd",), _may_leave_range),
    Rule(
        "sums of no products: undefined in onnxruntime, 0 here", ("MatMulInteger", "QLinearMatMul"), _of_nothing, True
    ),
    Rule("the same in a loop", ("Loop", "Scan"), _nearly(1e-5, 1e-4)),
    # e^13 is infinite in f16, in which the reference takes every step; onnxruntime takes them in f32.
    Rule(
        "functions of f16 in several steps",
        ("Sigmoid", "Softplus", "Mish", "HardSwish", "Erf", "Gelu", "LSTM", "GRU", "RNN", "Mod"),
        _half,
    ),
    Rule("onnxruntime's hyperbolic tangent loses digits of numbers that underflow", ("Tanh",), _nearly(1e-37, 1e-6)),
    Rule(
        "float16 between nodes that onnxruntime runs in f32 is not rounded before it is compared",
        ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
        _nearly_equal,
    ),
    # It adds the next square to a running sum and subtracts the last one: infinity - infinity.
    Rule("onnxruntime's LRN carries what is not finite along the channels", ("LRN",), not_finite),
    Rule(
        "powers that float16 cannot hold: onnxruntime takes them in f32",
        ("LRN", "LpPool", "GlobalLpPool", "LpNormalization", "ReduceL2"),
        _powers_leave_range,
    ),
    # `stash_type` 1, the default, is single precision for the first stage.
    Rule(
        "f64 has a stage in f32", ("GroupNormalization", "LayerNormalization", "Shrink", "Gelu", "HardSwish"), _single
    ),
    Rule("the sign of NaN of float16 is 0 in onnxruntime, NaN in numpy and here", ("Sign",), _has_nan),
    Rule("NaN has no integer", ("QuantizeLinear", "QLinearConv"), _has_nan),
    # ONNX's reference leaves them as they are.
    Rule(
        "where there is no bound, onnxruntime's is the largest number, not infinity",
        ("Clip", "MaxPool", "GlobalMaxPool"),
        not_finite,
    ),
    Rule("the range of values that are not finite", ("DynamicQuantizeLinear",), not_finite),
    Rule("onnxruntime rounds floats to integers of four bits, which ONNX truncates", ("Cast",), _four_bits),
    Rule("a float without an integer: what the processor gives, in onnxruntime", ("Cast",), _no_integer),
    Rule("onnxruntime's recurrent layers use short polynomials", ("LSTM", "GRU", "RNN"), _nearly(2e-5, 1e-4)),
    Rule("onnxruntime's recurrent layers cut NaN off with what is large", ("LSTM", "GRU", "RNN"), not_finite),
    # `length_resized` is scale · extent in ONNX's reference and the tests made with it, of which onnxruntime leaves
    # out those of align_corners; it takes the whole number.
    Rule("onnxruntime takes a resized length to be whole", ("Resize",), _fraction),
    Rule("onnxruntime's cubic interpolation has places in f32", ("Resize",), _cubic),
    Rule("a weight of 0 times infinity or NaN in an interpolation: skipped here", ("Resize",), not_finite),
    Rule(
        "the mean of nothing: undefined by ONNX, NaN here, 0 in onnxruntime",
        ("ReduceMean", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
        _empty,
    ),
)
