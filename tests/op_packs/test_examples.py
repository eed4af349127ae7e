"""The packs of examples/ops: their own checks, and what Python declarations, onnxruntime's operators and torch give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import ModelProto, helper

import dlc
from dlc import DlcError, Op, Report, Source, Spec
from dlc.api.program import Port, Signature
from dlc.cache import open_cache
from dlc.driver.program import Compiler
from dlc.graph import Graph, Input, evaluate, make_graph, print_graph
from dlc.graph.gradient import gradients
from dlc.op_packs.load import load_pack
from dlc.plugins.discovery import load_registry
from dlc.verify.op_packs import check_packs, failed
from tests.frontend_onnx.building import QUICK, model_of

Array = Any
PACKS = Path(__file__).parents[2] / "examples" / "ops"
ROUGH = 2e-2
"""Of the largest value: what fp16 memory costs an S2Train program."""


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(load_registry(packs=[PACKS]), open_cache(None, "off"))


WAYS = {"example", "text", "composition", "gradient", "declared", QUICK, "s2train"}


def test_every_op_passes_its_checks() -> None:
    found = [
        *check_packs([PACKS / "vision.ops.yaml"], [QUICK, "s2train"]),
        *check_packs([PACKS / "contrib.ops.yaml"], []),
    ]
    assert failed(found) == []
    assert len({c.op for c in found}) == sum(len(load_pack(file).ops) for file in PACKS.glob("*.yaml")) >= 20
    assert {c.what.partition(" ")[0] for c in found} == WAYS


class Wrong:
    """A program whose results are too large by one."""

    def __init__(self, compiler: Compiler, source: Source) -> None:
        self.graph = compiler.registry.frontend(Spec("dlc")).parse(source, Report())
        self.signature = Signature(tuple(Port(i.name, i.type) for i in self.graph.inputs), ())

    def __call__(self, **feeds: Array) -> dict[str, Array]:
        return {name: array + 1 for name, array in evaluate(self.graph, feeds).items()}


def test_a_program_that_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiler, "program", lambda compiler, source, target: Wrong(compiler, source))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    found = [c for c in check_packs([PACKS / "vision.ops.yaml"], ["c"]) if not c.ok]
    assert {c.what for c in found} >= {"c", "c dx", "c dgamma"}
    assert {c.what.partition(" ")[0] for c in found} == {"c"}


def test_every_operator_is_in_a_test_below() -> None:
    names = {onnx.name for file in PACKS.glob("*.yaml") for op in load_pack(file).ops for onnx in op.read.record.onnx}
    assert names == {*NODES, *(n.op_type for n in network().graph.node if n.domain), "SigmoidFocalLoss", "ResidualRelu"}


def random(*shape: int) -> Array:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


X, C = random(2, 3, 5, 8), random(8)
Y = random(2, 5, 8)
NODES: Mapping[str, tuple[Sequence[Array], Mapping[str, Any]]] = {
    "BiasGelu": ((Y, C), {}),
    "FastGelu": ((Y, C), {}),
    "QuickGelu": ((Y,), {"alpha": 1.5}),
    "GeluGrad": ((Y, Y + 0.5), {}),
    "TanhGrad": ((Y, np.tanh(Y)), {}),
    "BiasAdd": ((Y, C, Y * 2), {}),
    "BiasSplitGelu": ((Y, C), {}),
    "SkipLayerNormalization": ((Y, Y[::-1].copy(), C, C + 1, C - 1), {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": ((Y, Y[::-1].copy(), C, C - 1), {"epsilon": 1e-5}),
    "GroupNorm": ((X, C, C + 1), {"groups": 4, "epsilon": 1e-5, "activation": 1, "channels_last": 1}),
    "ComplexMul": ((random(3, 4, 2), random(4, 2)), {}),
    "ComplexMulConj": ((random(3, 4, 2), random(4, 2)), {}),
    "RotaryEmbedding": ((X, np.array([[0, 2, 1, 4, 3], [1, 1, 0, 3, 2]]), random(6, 4), random(6, 4) * 2), {}),
}


@pytest.fixture(scope="module")
def both(compiler: Compiler) -> tuple[Graph, dict[str, Array]]:
    """Every operator in both domains, and its gradients by all operands: outputs of one graph."""
    nodes: list[Any] = []
    feeds: dict[str, Array] = {}
    names: list[str] = []
    for operator, (arrays, attributes) in NODES.items():
        inputs = [f"{operator}.{k}" for k in range(len(arrays))]
        feeds |= dict(zip(inputs, arrays, strict=True))
        for domain in ("com.microsoft", "org.example.contrib"):
            names.append(f"{operator} {domain}")
            nodes.append(helper.make_node(operator, inputs, names[-1:], domain=domain, **attributes))
    model = model_of(nodes, feeds, names, domains=("com.microsoft", "org.example.contrib"))
    source = Source(data=model.SerializeToString(), label="both.onnx")
    graph = compiler.registry.frontend(Spec("onnx")).parse(source, Report())
    outputs: dict[str, Op] = dict(zip(graph.names, graph.outputs, strict=True))
    seeds: dict[str, Input] = {}
    for name, op in list(outputs.items()):
        operator, domain = name.split(" ")
        seed = seeds.setdefault(operator, Input(f"{operator}.seed", op.type))
        wrt = [i for i in graph.inputs if i.name.startswith(f"{operator}.") and i.dtype.is_float]
        found = gradients([op], [seed], wrt)
        outputs |= {f"{operator}.d{k} {domain}": g for k, g in enumerate(found)}
    feeds |= {i.name: random(*i.shape) for i in seeds.values()}
    return make_graph([*graph.inputs, *seeds.values()], outputs), feeds


def agree(found: Mapping[str, Array], relative: float) -> None:
    """Both domains, in every output."""
    for name in found:
        what, domain = name.split(" ")
        if domain == "com.microsoft":
            got, want = found[f"{what} org.example.contrib"], found[name]
            scale = float(np.abs(want).max()) or 1.0
            np.testing.assert_allclose(got, want, rtol=relative, atol=relative * scale, err_msg=what)


def test_values_and_gradients_equal_those_of_python_declarations(both: tuple[Graph, dict[str, Array]]) -> None:
    graph, feeds = both
    assert len(graph.names) > 4 * len(NODES)
    agree(evaluate(graph, feeds), 2e-5)


def test_programs_in_c_equal_python_declarations(both: tuple[Graph, dict[str, Array]], compiler: Compiler) -> None:
    graph, feeds = both
    ours = {n: o for n, o in zip(graph.names, graph.outputs, strict=True) if n.endswith("org.example.contrib")}
    got = built(compiler, make_graph(graph.inputs, ours), feeds, QUICK)
    theirs = {n: a for n, a in evaluate(graph, feeds).items() if n not in ours}
    assert len(got) == len(theirs)
    agree(got | theirs, 1e-4)


def test_programs_for_s2train_equal_those_of_python_declarations(
    both: tuple[Graph, dict[str, Array]], compiler: Compiler
) -> None:
    graph, feeds = both
    values = {n: o for n, o in zip(graph.names, graph.outputs, strict=True) if ".d" not in n}
    smaller = make_graph([i for i in graph.inputs if not i.name.endswith(".seed")], values)
    agree(built(compiler, smaller, feeds, "s2train"), ROUGH)


def built(compiler: Compiler, graph: Graph, feeds: Mapping[str, Array], target: str) -> dict[str, Array]:
    program: Any = compiler.program(Source(data=print_graph(graph).encode()), target)
    return program(**{p.name: feeds[p.name] for p in program.signature.inputs})


# ---- a model
WEIGHTS = {name: random(*shape) * 0.3 + 0.6 for name, shape in {
    "w": (8, 3, 3, 3), "scale": (8,), "bias": (8,), "mean": (8,), "grn": (8,), "gamma": (8,), "fc": (8, 4)
}.items()}  # fmt: skip
WEIGHTS["var"] = np.abs(random(8)) + 0.5
IMAGE = random(1, 3, 8, 8)


def network() -> ModelProto:
    """A small network of layers that ONNX does not have, between some that it has."""

    def vision(operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
        return helper.make_node(operator, inputs, [output], domain="org.example.vision", **attributes)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        vision("FrozenBatchNorm", ["a", "scale", "bias", "mean", "var"], "b"),
        vision("Squareplus", ["b"], "c", beta=2.0),
        vision("ChannelShuffle", ["c"], "d", groups=4),
        vision("BlurPool", ["d"], "e"),
        vision("PixelNorm", ["e"], "f"),
        helper.make_node("Transpose", ["f"], ["g"], perm=[0, 2, 3, 1]),
        vision("GlobalResponseNorm", ["g", "grn", "bias"], "h"),
        vision("LayerScale", ["h", "gamma"], "i"),
        helper.make_node("ReduceMean", ["i"], ["j"], axes=[1, 2], keepdims=0),
        helper.make_node("MatMul", ["j", "fc"], ["y"]),
    ]
    return model_of(nodes, {"x": IMAGE}, ["y"], WEIGHTS, domains=["org.example.vision"])


def by_torch() -> Array:
    at: Any = torch
    w: dict[str, Any] = {k: at.tensor(v) for k, v in WEIGHTS.items()}
    x = F.conv2d(at.tensor(IMAGE), w["w"], padding=1)
    x = F.batch_norm(x, w["mean"], w["var"], w["scale"], w["bias"], False, 0.0, 1e-5)
    x = F.channel_shuffle((x + at.sqrt(x * x + 2.0)) / 2, 4)
    ramp = at.tensor([1.0, 2.0, 1.0])
    blur = (at.outer(ramp, ramp) / 16).expand(8, 1, 3, 3)
    x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), blur, stride=2, groups=8)
    x = x / at.sqrt((x * x).mean(1, keepdim=True) + 1e-8)
    x = x.permute(0, 2, 3, 1)
    g = at.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
    x = x + w["bias"] + w["grn"] * x * (g / (g.mean(-1, keepdim=True) + 1e-6))
    return at.matmul((x * w["gamma"]).mean((1, 2)), w["fc"]).numpy()


def test_a_composition_beside_statements_is_what_an_accelerator_has_instructions_for(compiler: Compiler) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("ResidualRelu", ["a", "r"], ["y"], domain="org.example.vision"),
    ]
    residual = random(1, 8, 8, 8)
    model = model_of(nodes, {"x": IMAGE, "r": residual}, ["y"], {"w": WEIGHTS["w"]}, domains=["org.example.vision"])
    source = Source(data=model.SerializeToString(), label="block.onnx")
    program: Any = compiler.program(source, "s2train", ["s2-select.fallback=none"])
    at: Any = torch
    want = F.relu(F.conv2d(at.tensor(IMAGE), at.tensor(WEIGHTS["w"]), padding=1) + at.tensor(residual)).numpy()
    np.testing.assert_allclose(program(x=IMAGE, r=residual)["y"], want, atol=ROUGH * float(want.max()))


def test_python_builds_it_too() -> None:
    with pytest.raises(DlcError, match=r"org\.example\.vision"):
        dlc.build(network().SerializeToString(), QUICK, cache="off")
    program: Any = dlc.build(network().SerializeToString(), "s2train", ops=[PACKS], cache="off")
    assert program(x=IMAGE)["y"].shape == (1, 4)


@pytest.mark.parametrize(("target", "relative"), [(QUICK, 1e-5), ("s2train", ROUGH)])
def test_a_model_of_pack_ops_is_built_and_run(compiler: Compiler, target: str, relative: float) -> None:
    program: Any = compiler.program(Source(data=network().SerializeToString(), label="network.onnx"), target)
    want = by_torch()
    np.testing.assert_allclose(program(x=IMAGE)["y"], want, rtol=relative, atol=relative * float(np.abs(want).max()))
