"""Random ONNX models with shared operands on S2Train, judged by onnxruntime without its optimisations.

What fp16 can do to a model's outputs is measured: the reference in float32 is computed again with each value rounded to
fp16 and moved by up to one unit of it. A program may be as far from onnxruntime as these are, times `SPREAD`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort  # pyright: ignore
from onnx import TensorProto, helper, numpy_helper

import dlc
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.types import Array, f32
from dlc.graph import Constant, Graph, Input, Op, Splat
from dlc.graph.walk import evaluate_ops
from dlc.ops.elementwise import Add, Maximum, Mul, Neg, Relu, Sigmoid, Sub, Tanh
from dlc.ops.linear import Conv, ConvTranspose, Gemm, MatMul
from dlc.ops.normalize import BatchNorm
from dlc.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from dlc.ops.shape import Concat, Reshape, Slice, Transpose
from dlc.verify.kit.random_graphs import convolution, feeds, norm, pool, product, random_graph, reshape, unary
from dlc.verify.kit.shared_graphs import SHARED

CASES: Final = Path(__file__).resolve().parents[1] / "data" / "s2train_models"
LARGEST: Final = 3e4
"""Of values that fp16 holds: models with larger ones are not judged."""
SPREAD: Final = 6.0
"""How many times as far as the perturbed references a program may be."""
DRAWS: Final = 4
KINDS: Final = (*SHARED, convolution, norm, product, pool, reshape, unary)
SPATIAL: Final = {"stride": "strides", "pads": "pads", "dilation": "dilations", "group": "group"}
runtime: Any = ort
Attributes = Callable[[Any], dict[str, Any]]


def _spatial(op: Any, **more: Any) -> dict[str, Any]:
    """Attributes of convolutions and pools, those that are given."""
    found = {name: getattr(op, field) for field, name in SPATIAL.items() if getattr(op, field, ())}
    return {**found, **more}


ONNX: Final[Mapping[type[Op], tuple[str, Attributes]]] = {
    **{kind: (name, lambda op: {}) for kind, name in ((Add, "Add"), (Sub, "Sub"), (Mul, "Mul"), (Maximum, "Max"))},
    **{kind: (kind.__name__, lambda op: {}) for kind in (Neg, Relu, Sigmoid, Tanh, MatMul, GlobalAveragePool)},
    Conv: ("Conv", _spatial),
    ConvTranspose: (
        "ConvTranspose",
        lambda op: _spatial(op, output_padding=op.output_pad) if op.output_pad else _spatial(op),
    ),
    MaxPool: ("MaxPool", lambda op: _spatial(op, kernel_shape=op.window)),
    AveragePool: ("AveragePool", lambda op: _spatial(op, kernel_shape=op.window)),
    BatchNorm: ("BatchNormalization", lambda op: {"epsilon": op.epsilon}),
    Gemm: (
        "Gemm",
        lambda op: {"alpha": op.alpha, "beta": op.beta, "transA": int(op.trans_a), "transB": int(op.trans_b)},
    ),
    Concat: ("Concat", lambda op: {"axis": op.axis}),
    Transpose: ("Transpose", lambda op: {"perm": op.perm}),
    Reshape: ("Reshape", lambda op: {}),
    Slice: ("Slice", lambda op: {}),
}
"""Ops that models are made of, their operators and attributes."""


def drawn(seed: int) -> Graph:
    """A graph of up to 24 ops that ONNX has, most of them of ops that read one value several times."""
    return random_graph(seed, 8 + seed % 17, f32, lambda op: type(op) in ONNX, KINDS)


def onnx_of(graph: Graph) -> onnx.ModelProto:
    """The graph as a model; constants that several ops read are one initializer."""
    names: dict[str, str] = {i.digest: i.name for i in graph.inputs}
    stored: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def hold(name: str, value: Any, dtype: Any) -> str:
        stored.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    for k, op in enumerate(graph.ops):
        if isinstance(op, Input):
            continue
        name = names[op.digest] = f"v{k}"
        if isinstance(op, Constant | Splat):
            hold(name, evaluate_ops((op,), {})[0], np.float32)
            continue
        kind, attributes = ONNX[type(op)]
        operands = [names[x.digest] for x in op.operands]
        if isinstance(op, Reshape):
            operands.append(hold(f"{name}.shape", op.type.shape, np.int64))
        if isinstance(op, Slice):
            ends = [s + n * d for s, n, d in zip(op.starts, op.sizes, op.steps, strict=True)]
            given = {"starts": op.starts, "ends": ends, "axes": range(len(ends)), "steps": op.steps}
            operands += [hold(f"{name}.{of}", list(value), np.int64) for of, value in given.items()]
        nodes.append(helper.make_node(kind, operands, [name], name=f"n{k}", **attributes(op)))
    for output, op in zip(graph.names, graph.outputs, strict=True):
        nodes.append(helper.make_node("Identity", [names[op.digest]], [output]))
    given = [helper.make_tensor_value_info(i.name, TensorProto.FLOAT, i.type.shape) for i in graph.inputs]
    pairs = zip(graph.names, graph.outputs, strict=True)
    wanted = [helper.make_tensor_value_info(name, TensorProto.FLOAT, op.type.shape) for name, op in pairs]
    made = helper.make_graph(nodes, "random", given, wanted, stored)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def wanted(model: onnx.ModelProto, values: Mapping[str, Array]) -> dict[str, Array]:
    """What onnxruntime computes of the model as it is."""
    options: Any = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session: Any = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    asked = {i.name for i in session.get_inputs()}
    names: list[str] = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {k: v for k, v in values.items() if k in asked}), strict=True))


def spread_of(graph: Graph, values: Mapping[str, Array]) -> tuple[dict[str, Array], float]:
    """How far rounding every value to fp16 takes the outputs, element by element, and the largest value of all."""
    largest = 0.0

    def run(rng: np.random.Generator | None) -> list[Array]:
        def value(op: Any, args: Any) -> Any:
            nonlocal largest
            found = np.asarray(op.evaluate(*args), np.float32)
            largest = max(largest, float(np.abs(found).max(initial=0)))
            if rng is None:
                return found
            with np.errstate(all="ignore"):
                moved = found * (1 + rng.uniform(-(2**-10), 2**-10, found.shape)).astype(np.float32)
                return moved.astype(np.float16).astype(np.float32)

        known: dict[Any, Array] = {i: values[i.name] for i in graph.inputs}
        return evaluate_ops(graph.outputs, known, value)

    exact = run(None)
    draws = [run(np.random.default_rng(k)) for k in range(DRAWS)]
    far = [np.max([np.abs(d[k] - x) for d in draws], 0) for k, x in enumerate(exact)]
    return dict(zip(graph.names, far, strict=True)), largest


@dataclass(frozen=True)
class Verdict:
    """What became of one model: same, refused (with a reason), large (beyond fp16), or fault."""

    seed: int
    what: str
    detail: str = ""


def judged(seed: int, target: str = "s2train") -> Verdict:
    """Build and run the model of a seed, and compare it."""
    graph = drawn(seed)
    values = feeds(graph, seed)
    return _compared(seed, onnx_of(graph), values, *spread_of(graph, values), target)


def judged_file(path: Path, target: str = "s2train") -> Verdict:
    """The same of a model's file, whose outputs may be as far off as `dlc verify` allows."""
    model = onnx.ModelProto.FromString(path.read_bytes())
    rng = np.random.default_rng(0)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    far = {name: 5e-3 * np.abs(w) / SPREAD for name, w in wanted(model, values).items()}
    return _compared(0, model, values, far, 0.0, target)


def _compared(
    seed: int,
    model: onnx.ModelProto,
    values: Mapping[str, Array],
    far: Mapping[str, Array],
    largest: float,
    target: str,
) -> Verdict:
    want = wanted(model, values)
    with tempfile.TemporaryDirectory(prefix="s2-random-") as place:
        try:
            dlc.build(model.SerializeToString(), target, output=Path(place), cache="off")
            program: Any = dlc.load(place)
            got: dict[str, Array] = program(**{p.name: values[p.name] for p in program.signature.inputs})
        except DlcError as problem:
            text = "; ".join(f"{d.code}: {d.message}" for d in problem.diagnostics)
            stated = problem.exit_code in (ExitCode.MODEL, ExitCode.LIMIT)
            return Verdict(seed, "refused" if stated else "fault", text)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is a fault of this model
            return Verdict(seed, "fault", f"{type(problem).__name__}: {problem} {problem.__cause__ or ''}")
    if not largest < LARGEST:
        return Verdict(seed, "large", f"{largest:.3g}")
    for name, expected in want.items():
        if got[name].shape != expected.shape:
            return Verdict(seed, "fault", f"{name} is {got[name].shape}, not {expected.shape}")
        allowed = SPREAD * (far[name] + np.median(far[name])) + 2**-9 * np.abs(expected).max(initial=0) + 1e-6
        wrong = ~(np.abs(got[name] - expected) <= allowed)
        if wrong.any():
            worst = float(np.abs(got[name] - expected)[wrong].max())
            return Verdict(seed, "fault", f"{name} differs in {wrong.sum()} of {wrong.size} elements, by {worst:.3g}")
    return Verdict(seed, "same")
