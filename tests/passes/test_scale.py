"""Work grows with the length of a model as n log n at most: every join looks at what it changes."""

import cProfile
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from pstats import Stats
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.frontend import Onnx
from onnx import TensorProto, helper, numpy_helper

import dlc.kernel.print
import dlc.passes.fuse
from dlc.api.source import Source
from dlc.base.report import Report
from dlc.graph import Graph
from dlc.graph.structure import Call
from dlc.kernel.fusion.merge import join
from dlc.passes.presets import PIPELINES
from dlc.spec import Spec
from tests.passes.test_properties import PASSES

Nodes = tuple[list[onnx.NodeProto], list[onnx.TensorProto], list[str]]


def tanhs(n: int) -> Nodes:
    """One after another."""
    return [helper.make_node("Tanh", [f"t{k}"], [f"t{k + 1}"]) for k in range(n)], [], [f"t{n}"]


def residuals(n: int) -> Nodes:
    """Every third adds what came two before it, which has two readers."""
    nodes = [
        helper.make_node("Add", [f"t{k}", f"t{k - 1}"], [f"t{k + 1}"])
        if k % 3 == 2
        else helper.make_node("Sigmoid", [f"t{k}"], [f"t{k + 1}"])
        for k in range(n)
    ]
    return nodes, [], [f"t{n}"]


def biases(n: int) -> Nodes:
    """Each adds a constant tensor of its own."""
    nodes = [helper.make_node("Add", [f"t{k}", f"w{k}"], [f"t{k + 1}"]) for k in range(n)]
    values = np.random.default_rng(0).standard_normal((n, 64), np.float32)
    return nodes, [numpy_helper.from_array(v, f"w{k}") for k, v in enumerate(values)], [f"t{n}"]


def softmaxes(n: int) -> Nodes:
    """Reductions with maps between them: most kernels stay apart."""
    nodes = [helper.make_node(("Softmax", "Exp")[k % 2], [f"t{k}"], [f"t{k + 1}"]) for k in range(n)]
    return nodes, [], [f"t{n}"]


def outputs(n: int) -> Nodes:
    """Each value is an output."""
    return tanhs(n)[0], [], [f"t{k + 1}" for k in range(n)]


def _write(path: Path, parts: Nodes) -> Path:
    nodes, weights, results = parts
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, [64])],
        [helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in results],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def _compiled(path: Path) -> Sequence[object]:
    """What every step leaves, from the file to the plan."""
    states: list[object] = [Onnx().parse(Source(path), Report())]
    for spec in Spec.parse_pipeline(PIPELINES["infer"], "infer"):
        states.append(PASSES[spec.name].from_spec(spec).run(states[-1], Report()))
    return states


def _calls(path: Path) -> int:
    """How many functions are called from the file to the plan: a measure of work that no other process disturbs."""
    profile = cProfile.Profile()
    profile.enable()
    _compiled(path)
    profile.disable()
    return Stats(profile).total_calls  # type: ignore[attr-defined]


@pytest.mark.parametrize("chain", [tanhs, residuals, biases, softmaxes, outputs])
def test_work_grows_as_n_log_n(chain: Callable[[int], Nodes], tmp_path: Path) -> None:
    small, large = 250, 1000
    _calls(_write(tmp_path / "warm.onnx", chain(10)))  # what is imported and computed once
    work = {n: _calls(_write(tmp_path / f"{n}.onnx", chain(n))) for n in (small, large)}
    growth = (large * math.log(large)) / (small * math.log(small))
    assert work[large] / work[small] < growth * 1.02, work


def test_a_join_prints_only_what_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 300
    printed = 0
    once = dlc.kernel.print._line

    def counted(*args: object) -> str:
        nonlocal printed
        printed += 1
        return once(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(dlc.kernel.print, "_line", counted)
    _compiled(_write(tmp_path / "chain.onnx", tanhs(n)))
    assert n < printed <= 3 * n


def blocks(n: int) -> Nodes:
    """Equal blocks that cannot become one: each value between two blocks is an output."""
    kinds = ("Tanh", "Sigmoid", "Exp", "Neg")
    nodes = [helper.make_node(kinds[k % 4], [f"t{k}"], [f"t{k + 1}"]) for k in range(4 * n)]
    return nodes, [], [f"t{4 * k + 4}" for k in range(n)]


def test_equal_blocks_are_joined_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []

    def counted(*args: Any) -> object:
        joined.append(1)
        return join(*args)

    monkeypatch.setattr(dlc.passes.fuse, "join", counted)
    fused = next(s for s in reversed(_compiled(_write(tmp_path / "b.onnx", blocks(20)))) if isinstance(s, Graph))
    calls = [op for op in fused.ops if isinstance(op, Call)]
    assert len(calls) == 20
    assert len({id(op.body) for op in calls}) == 1
    assert len(joined) == 3


def test_a_joined_kernel_has_as_many_arguments_as_c_promises(tmp_path: Path) -> None:
    fused = next(s for s in reversed(_compiled(_write(tmp_path / "b.onnx", biases(300)))) if isinstance(s, Graph))
    calls = [op for op in fused.ops if isinstance(op, Call)]
    assert [len(op.args) for op in calls] == [127, 127, 49]
