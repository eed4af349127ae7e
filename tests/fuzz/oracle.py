"""onnxruntime as an oracle that nobody of this project wrote, and the rules by which it may differ."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from dlc.graph import Graph, evaluate
from tests.frontend_onnx.building import parse, runtime
from tests.fuzz.model import Array, Model, Node
from tests.fuzz.rounding import differing, leaves_range, of_another_type

Values = Mapping[str, Array]


@dataclass(frozen=True)
class Rule:
    """A deviation of onnxruntime that is known, and counted by its name."""

    name: str
    ops: tuple[str, ...]
    applies: Callable[[Node, Values, Values], bool]
    """Of a node, the values of its operands, and those that the reference gives it."""


def _floats(node: Node, values: Values) -> list[Array]:
    return [v for n in node.inputs if (v := values.get(n)) is not None and v.dtype.kind == "f"]


def _has_nan(node: Node, values: Values, wanted: Values) -> bool:
    del wanted
    return any(np.isnan(v).any() for v in _floats(node, values))


def _not_finite(node: Node, values: Values, wanted: Values) -> bool:
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


def _single(node: Node, values: Values, wanted: Values) -> bool:
    """Whether f64 is exact to single precision."""
    return wanted[node.outputs[0]].dtype == np.float64 and _nearly(1e-5, 1e-5)(node, values, wanted)


def _logistic(node: Node, values: Values, wanted: Values) -> bool:
    """Whether a logistic function of onnxruntime's own operands is exact to an absolute error."""
    del wanted
    with np.errstate(over="ignore"):
        exact = 1.0 / (1.0 + np.exp(-values[node.inputs[0]].astype(np.float64)))
    return np.allclose(values[node.outputs[0]], exact, rtol=1e-6, atol=1e-6, equal_nan=True)


def _wraps(node: Node, values: Values, wanted: Values) -> bool:
    """Whether the factors of integers are too many for their type."""
    x, of = values[node.inputs[0]], wanted[node.outputs[0]]
    return x.dtype.kind in "iu" and math.prod(max(abs(int(v)), 1) for v in x.reshape(-1)) > np.iinfo(of.dtype).max


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
    del wanted
    lengths = [e * float(s) for e, s in zip(values[node.inputs[0]].shape, values[node.inputs[2]], strict=True)]
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
MOVEMENTS: Final = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "Expand", "Concat")
"""Operators whose results differ only where an operand does."""
OVERFLOWS: Final = "float16 that overflows between nodes: onnxruntime runs nodes that it has no float16 for in f32"
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
        ),
        _has_nan,
    ),
    Rule(
        "a softmax or logarithm of sums with NaN or infinities: onnxruntime's maximum ignores NaN",
        ("Softmax", "LogSoftmax", "ReduceLogSumExp", "SoftmaxCrossEntropyLoss"),
        _not_finite,
    ),
    # Of f32 it is a rational function on [-18, 18], exact to an absolute error of a few 2^-24, not a relative one.
    Rule("onnxruntime's logistic function has a small absolute error", ("If",), _nearly(1e-6, 1e-6)),
    Rule("onnxruntime's logistic function has a small absolute error", ("Sigmoid",), _logistic),
    # log(1 + e^x), where 1 + e^x is rounded.
    Rule("onnxruntime's Softplus of f64 has a small absolute error", ("Softplus",), _nearly(5e-16, 1e-15)),
    Rule("products of integers that overflow: onnxruntime's are the largest number", ("ReduceProd",), _wraps),
    Rule(PRODUCTS, ("ReduceProd",), _may_leave_range),
    Rule("sums of no products: undefined in onnxruntime, 0 here", ("MatMulInteger", "QLinearMatMul"), _of_nothing),
    Rule("the same in a loop", ("Loop",), _nearly(1e-5, 1e-4)),
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
    Rule("onnxruntime's LRN carries what is not finite along the channels", ("LRN",), _not_finite),
    Rule(
        "powers that float16 cannot hold: onnxruntime takes them in f32",
        ("LRN", "LpPool", "GlobalLpPool", "LpNormalization", "ReduceL2"),
        _powers_leave_range,
    ),
    # `stash_type` 1, the default, is single precision for the first stage.
    Rule("f64 has a stage in f32", ("GroupNormalization", "LayerNormalization", "Shrink", "Gelu"), _single),
    Rule("NaN has no integer", ("QuantizeLinear", "QLinearConv"), _has_nan),
    # ONNX's reference leaves them as they are.
    Rule(
        "where there is no bound, onnxruntime's is the largest number, not infinity",
        ("Clip", "MaxPool", "GlobalMaxPool"),
        _not_finite,
    ),
    Rule("the range of values that are not finite", ("DynamicQuantizeLinear",), _not_finite),
    Rule("a float without an integer: what the processor gives, in onnxruntime", ("Cast",), _no_integer),
    Rule("onnxruntime's recurrent layers use short polynomials", ("LSTM", "GRU", "RNN"), _nearly(2e-5, 1e-4)),
    Rule("onnxruntime's recurrent layers cut NaN off with what is large", ("LSTM", "GRU", "RNN"), _not_finite),
    # `length_resized` is scale · extent in ONNX's reference and the tests made with it, of which onnxruntime leaves
    # out those of align_corners; it takes the whole number.
    Rule("onnxruntime takes a resized length to be whole", ("Resize",), _fraction),
    Rule("a weight of 0 times infinity or NaN in an interpolation: skipped here", ("Resize",), _not_finite),
    Rule(
        "the mean of nothing: undefined by ONNX, NaN here, 0 in onnxruntime",
        ("ReduceMean", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
        _empty,
    ),
)


@dataclass(frozen=True)
class Opinion:
    """What onnxruntime says of the reference's results."""

    ran: bool
    reason: str = ""
    """Why it did not run, or the name of the rule by which it differs, or where it differs."""
    explained: bool = True
    detail: str = ""


def opinion(model: Model, graph: Graph) -> Opinion:
    """Whether onnxruntime computes what the reference does, and if not, at which node the two part."""
    try:
        got = runtime(model.onnx, graph.names, model.inputs)
    except Exception as problem:  # noqa: BLE001 - onnxruntime raises classes of its own, RuntimeError among them
        return Opinion(False, _reason(str(problem)))
    named = dict(zip(graph.names, got, strict=True))
    bad, _ = differing(graph, model.inputs, named)
    return _parting(model, {name: named[name] for name in bad}) if bad else Opinion(True)


def _parting(model: Model, outputs: Values) -> Opinion:
    """The first node, in the model's order, whose result differs although its operands do not.

    `outputs` are those of the model that differ, with what onnxruntime gave. How far rounding may move a result is
    sampled, so that one at the limit may pass as part of the whole, and what onnxruntime leaves undefined is another
    value in every run: these have differed, and are not judged again. Where they were only moved, neither is what they
    were moved from.
    """
    whole = model.whole
    try:
        graph = parse(whole.onnx)
        got = dict(zip(graph.names, runtime(whole.onnx, graph.names, model.inputs), strict=True))
    except Exception as problem:  # noqa: BLE001 - an output of each value may ask for what the model itself does not
        if _overflows(model):
            return Opinion(True, OVERFLOWS)
        return Opinion(True, f"somewhere; {_reason(str(problem))}", False)
    bad = {*differing(graph, model.inputs, got)[0], *outputs}
    got |= outputs
    values, wanted = {**model.inputs, **model.constants, **got}, evaluate(graph, model.inputs)
    for node in reversed(model.nodes):
        if node.op in MOVEMENTS and bad & set(node.outputs):
            operands = (n for n in node.inputs if n in wanted and n in got)
            bad |= {n for n in operands if not np.array_equal(got[n], wanted[n], equal_nan=got[n].dtype.kind == "f")}
    for node in model.nodes:
        if bad & set(node.outputs) and not bad & set(node.inputs):
            rule = next((r for r in RULES if node.op in r.ops and r.applies(node, values, wanted)), None)
            types = ", ".join(str(values[n].dtype) for n in node.inputs if n in values)
            special = " of values that are not finite" if _not_finite(node, values, wanted) else ""
            told = rule.name if rule else f"{node.op} ({types}){special}"
            name = next(o for o in node.outputs if o in bad)
            return Opinion(True, told, rule is not None, _shown(got[name], wanted[name]))
    return Opinion(True, "only where no value between is an output", False)


def _overflows(model: Model) -> bool:
    """Whether the reference gives a float16 value between nodes that is not finite, of operands that are."""
    given = {**model.inputs, **model.constants}
    if any(v.dtype == np.float16 and not np.isfinite(v).all() for v in given.values()):
        return False
    values = evaluate(parse(model.whole.onnx), model.inputs)
    return any(v.dtype == np.float16 and not np.isfinite(v).all() for v in values.values())


def _shown(got: Array, want: Array) -> str:
    """The first elements that are not close."""
    if of_another_type(got, want):
        return f"{got.dtype}{list(got.shape)} of onnxruntime, {want.dtype}{list(want.shape)} of dlc"
    far = ~np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5, atol=0.0, equal_nan=True)
    at = tuple(int(k) for k in np.argwhere(far if far.any() else got != want)[0])
    return f"at {list(at)} {got[at]} of onnxruntime, {want[at]} of dlc; {far.sum()} of {far.size} elements"


def _reason(text: str) -> str:
    """A message without what is particular to a model."""
    found = re.search(r"Could not find an implementation for (\w+)\(\d+\)", text)
    if found:
        return f"has no {found[1]} of this type"
    return re.sub(r"'[^']*'|\"[^\"]*\"|\b[vxc]\d+\b|\d+|\{[^}]*\}", "#", text)[:160]
