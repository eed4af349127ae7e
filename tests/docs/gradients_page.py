"""`docs/gradients.md` from what the tests of gradients compare: operators of ONNX, and points that leave a choice."""

from collections import Counter
from typing import Any

import numpy as np
from dlc_frontend_onnx.functions import has_body
from dlc_frontend_onnx.rules import own_rules
from onnx import defs

from tests.ops.test_gradient_conventions import TABLE
from tests.ops.torch_cases import elementwise, movement, networks, recurrent, reduction, sampling, selection, windows

_NAMES = """
    Abs Acos Acosh Add Asin Asinh Atan Atanh AveragePool BatchNormalization Cast CastLike CausalConvWithState Celu
    CenterCropPad Clip Col2Im Compress Concat Conv ConvTranspose Cos Cosh CumProd CumSum DepthToSpace Det Div Dropout
    Einsum Elu Erf Exp Expand Flatten GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool
    GlobalMaxPool GridSample GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization LRN LSTM
    LeakyRelu LinearAttention Log LogSoftmax LpNormalization LpPool MatMul Max MaxPool MaxRoiPool MaxUnpool Mean
    MeanVarianceNormalization Min Mish Mod Mul Neg NegativeLogLikelihoodLoss PRelu Pad Pow RNN Reciprocal ReduceL1
    ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
    Reshape Resize Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sin Sinh Slice Softmax SoftmaxCrossEntropyLoss
    Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum SwiGLU Swish Tan Tanh TensorScatter ThresholdedRelu Tile
    TopK Transpose Trilu Unsqueeze Where
"""
OPERATORS = tuple(_NAMES.split())
"""Operators that the schemas of ONNX (release 1.23) mark as differentiable in at least one operand."""
_MODULES = (elementwise, movement, networks, recurrent, reduction, sampling, selection, windows)
CASES = [case for m in _MODULES for case in m.CASES]
"""What `tests/ops/test_gradients_torch*.py` compares with PyTorch."""

HEAD = """\
<!-- Written by `pytest tests/docs --update` from the tests of gradients; a test compares. Change those, not this. -->
# Gradients

dlc derives the gradient of an op from its definition: from the ops that it is composed of, or from the adjoint of its
loops. This page lists which operators of ONNX can be differentiated, and which gradient dlc computes at points where
the mathematical function is not differentiable.

"""


def differentiable() -> set[str]:
    """Operators that the installed schemas mark, in any version."""
    mark = defs.OpSchema.DifferentiationCategory.Differentiable
    found = (s for s in defs.get_all_schemas_with_history() if s.domain == "")
    return {s.name for s in found if any(i.differentiation_category == mark for i in s.inputs)}


def imports() -> dict[str, str]:
    """How the frontend reads each operator; "" where it does not."""
    rules = {name for domain, name, _ in own_rules().support() if not domain}
    newest = defs.onnx_opset_version()
    functions = {name for name in OPERATORS if has_body("", name, newest)}
    return {n: "by a rule" if n in rules else "as the function of the standard" * (n in functions) for n in OPERATORS}


def page() -> str:
    """The whole page."""
    return HEAD + "\n\n".join([*operators(), *points()]) + "\n"


def operators() -> list[str]:
    """The list of operators."""
    how, compared = imports(), Counter(case.op for case in CASES)
    imported = [n for n in OPERATORS if how[n]]
    alike = [case for case in CASES if not case.chosen]
    rows = [f"| {n} | {how[n] or 'no'} | {gradient(n, how[n], compared[n])} |" for n in OPERATORS]
    return [
        "## Operators of ONNX",
        f"ONNX marks {len(OPERATORS)} operators as differentiable. {len(imported)} are imported, and all of these have "
        f"a gradient. {len(alike)} tests compare it with PyTorch's autograd in double precision, at points such as "
        "ties, zeros and infinities, and with duplicate indices, broadcast operands, padding and strides. Three "
        "operators that are imported as functions of the ONNX standard (CausalConvWithState, LinearAttention, "
        "MeanVarianceNormalization) compute in single precision and are compared in single precision.",
        "\n".join(["| operator | imported | gradient |", "|---|---|---|", *rows]),
    ]


def gradient(name: str, how: str, count: int) -> str:
    """What there is, or why there is nothing."""
    if not how:
        return "no: it is not imported: dlc has no import rule, and the standard has no function body for it"
    kind = "yes, 0 everywhere (the function is piecewise constant)" if name == "Hardmax" else "yes"
    return f"{kind}; {count} test{'s' * (count > 1)} against PyTorch"


def points() -> list[str]:
    """What is chosen."""
    rows = [f"| {title} | {values(args)} | {values(expected)} |" for title, _, args, expected in TABLE]
    return [
        "## Points without a unique gradient",
        "The table lists one gradient for each operand, for a cotangent of 1 in every element of the result. PyTorch "
        "computes the same gradients, except in two rows: for a log-sum-exp of elements that are all -∞ its gradient "
        "is NaN, and for elements that are scattered to the same place it passes the gradient to all of them, although "
        "only the last one is in the result. LpNormalization divides a row of zeros by 1, PyTorch divides it by 1e-12.",
        "\n".join(["| point | operands | gradients |", "|---|---|---|", *rows]),
    ]


def values(arrays: list[Any]) -> str:
    """Arrays as text."""
    return ", ".join(f"`{literal(np.asarray(a))}`" for a in arrays)


def literal(a: Any) -> str:
    """An array with at most three digits per number."""
    if a.ndim:
        return f"[{' '.join(literal(x) for x in a)}]"
    if a.dtype.kind == "b":
        return str(bool(a)).lower()
    return f"{float(a):.3g}".replace("inf", "∞")
