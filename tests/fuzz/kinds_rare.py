"""Kinds of nodes that few models have: quantised products, branches and loops, norms of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.drawing import Maker
from tests.fuzz.kinds_elementwise import scalar
from tests.fuzz.narrow import code
from tests.fuzz.sizes import Refused, Size
from tests.fuzz.values import Value


def quantized_product(m: Maker) -> None:
    x = m.any("f", 2, 2, lambda v: v.dtype == "float32")
    y, scale, zero = m.nodes_of("DynamicQuantizeLinear", 3, x)
    w = m.constant(m.rng.integers(0, 9, (x.shape[1], m.one(1, 3, 5, 16))), "uint8")
    own = m.constant(np.array(m.one(0, 2), np.uint8))
    if m.chance(0.5):
        total = m.node("MatMulInteger", y, w, zero, own)
        m.node("Mul", m.node("Cast", total, to=onnx.TensorProto.FLOAT), scale)
    else:
        fixed = m.constant(np.array(m.one(0.05, 0.1), np.float32))
        a = m.node("QuantizeLinear", x, fixed, own)
        m.node("QLinearMatMul", a, fixed, own, w, fixed, own, fixed, own)


def quantized_convolution(m: Maker) -> None:
    shape = (m.one(1, 2), m.one(1, 2, 3), m.one(3, 5), m.one(3, 4, 7))
    x = m.input(array=m.rng.integers(0, 20, shape).astype(np.uint8))
    w = m.constant(m.rng.integers(0, 9, (m.one(1, 2, 5), shape[1], 3, 2)), "uint8")
    zero = m.constant(np.array(m.one(0, 3), np.uint8))
    figures: dict[str, Any] = {"pads": [1, 0, 1, 1], "strides": [1, m.one(1, 2)]}
    if m.chance(0.5):
        m.node("ConvInteger", x, w, zero, zero, **figures)
    else:
        scale = m.constant(np.array(m.one(0.05, 0.1), np.float32))
        m.node("QLinearConv", x, scale, zero, w, scale, zero, scale, zero, **figures)


def grouped_norm(m: Maker) -> None:
    x = m.any("f", 3, 5)
    channels = x.shape[1]
    if m.opset < 21 or not channels:
        raise Refused("no such norm")
    groups = m.one(*(g for g in range(1, channels + 1) if channels % g == 0))
    scale, bias = m.weight(x.dtype, channels), m.weight(x.dtype, channels)
    m.known("GroupNormalization", [x], x, scale, bias, num_groups=groups)


def _graph(name: str, nodes: list[Any], inputs: list[Any], outputs: list[tuple[str, Value]]) -> Any:
    return helper.make_graph(nodes, name, inputs, [_info(n, v.dtype, v.shape) for n, v in outputs])


def graph_of(
    name: str, nodes: list[Any], inputs: Sequence[tuple[str, Value]], outputs: Sequence[tuple[str, Value]]
) -> Any:
    """A graph for a node's attribute."""
    return _graph(name, nodes, [_info(n, v.dtype, v.shape) for n, v in inputs], list(outputs))


def _info(name: str, dtype: str, shape: Sequence[int]) -> Any:
    """A value of a graph inside a node; sizes that a call tells stay open."""
    known = [None if isinstance(e, Size) else e for e in shape]
    return helper.make_tensor_value_info(name, code(dtype), known)


def branch(m: Maker) -> None:
    """Two branches, on a constant or on an input; a softmax is dear enough for only one of them to run."""
    x = m.any("f", 1)
    flag = np.array(m.chance(0.5))
    condition = m.constant(flag) if m.chance(0.3) else m.input(array=flag)
    op, other = m.one("Neg", "Tanh", "Relu", "Softmax"), m.one("Abs", "Identity", "Sigmoid", "Softmax")
    then = _graph("then", [helper.make_node(op, [x.name], ["t"])], [], [("t", x)])
    otherwise = _graph("otherwise", [helper.make_node(other, [x.name], ["e"])], [], [("e", x)])
    m.known("If", [x], condition, reads=(x,), then_branch=then, else_branch=otherwise)


def loop(m: Maker) -> None:
    """A state that is carried; of a fixed number of turns what each leaves, or a number that is an input."""
    x = m.any("f", 1, 3)
    turns, fixed = m.one(1, 2, 3), m.chance(0.5)
    inputs = [_info("k", "int64", ()), _info("go", "bool", ()), _info("s", x.dtype, x.shape)]
    nodes = [
        helper.make_node("Identity", ["go"], ["on"]),
        helper.make_node(m.one("Tanh", "Sigmoid"), ["s"], ["f"]),
        helper.make_node(m.one("Add", "Mul"), ["f", x.name], ["next"]),
        *([helper.make_node("Neg", ["f"], ["left"])] if fixed else []),
    ]
    flag = Value("on", "bool", ())
    body = _graph("body", nodes, inputs, [("on", flag), ("next", x), *([("left", x)] if fixed else [])])
    rows = [Value("", x.dtype, (turns, *x.shape))] if fixed else []
    count = m.constant(np.array(turns)) if fixed else m.input(array=np.array(m.one(0, 1, 3)))
    m.known("Loop", [x, *rows], count, m.constant(np.array(True)), x, reads=(x,), body=body)


def scan(m: Maker) -> None:
    """A sum of the rows of a tensor, which is carried, and what is made of each of them."""
    x = m.any("f", 2, 4, lambda v: v.shape[0] > 0)
    row = Value("", x.dtype, x.shape[1:])
    start = m.weight(x.dtype, *row.shape)
    inputs = [_info(n, x.dtype, row.shape) for n in ("s", "r")]
    nodes = [
        helper.make_node(m.one("Tanh", "Sigmoid", "Relu"), ["r"], ["f"]),
        helper.make_node("Add", ["s", "f"], ["next"]),
        helper.make_node(m.one("Tanh", "Neg"), ["next"], ["left"]),
    ]
    body = _graph("body", nodes, inputs, [("next", row), ("left", row)])
    directions = {"scan_input_directions": [m.one(0, 1)], "scan_output_directions": [m.one(0, 1)]}
    m.known("Scan", [row, x], start, x, body=body, num_scan_inputs=1, **directions)


def rest(m: Maker) -> None:
    match m.random.randrange(5):
        case 0:
            x = m.any("n")
            m.node("CastLike", x if x.of("i") else m.any("i"), m.any("f")) if m.opset >= 15 else None
        case 1:
            x = m.any("n", 1)
            if not x.shape[0] or isinstance(x.shape[0], Size):
                raise Refused("empty, or of no fixed length")
            chosen = m.rng.random(x.shape[0]) < 0.6
            chosen[0] = True
            m.known("Compress", [Value("", x.dtype, (int(chosen.sum()), *x.shape[1:]))], x, m.constant(chosen), axis=0)
        case 2:
            x = m.any("f", 1)
            m.node("ReduceLogSum", m.node("Add", m.node("Abs", x), scalar(m, x, 1)), keepdims=m.one(0, 1))
        case 3:
            m.node("GlobalLpPool", m.any("f", 3, 5), p=2)
        case _:
            x = m.any("n")
            value = helper.make_tensor("v", code(x.dtype), [1], [1])
            m.node("Add", x, m.node("ConstantOfShape", m.node("Shape", x), value=value))


KINDS = (
    *((1, quantized_product), (1, quantized_convolution), (2, grouped_norm), (1, branch), (1, loop), (1, scan)),
    (3, rest),
)
