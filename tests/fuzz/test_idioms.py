"""Models of idioms: a small sample of them, what they consist of, and what their judge notices.

`benchmarks/graph_fuzz.py --idioms` draws by the thousand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dlc.verify.differences import Differences
from tests.frontend_onnx.building import parse
from tests.fuzz.case import Case, Tools, drawn
from tests.fuzz.derivative import along_a_direction
from tests.fuzz.idioms.table import IDIOMS, QUANTISED
from tests.fuzz.judge import judged
from tests.fuzz.model import Model, Node
from tests.fuzz.sensitivity import Evaluator, Runtime
from tests.fuzz.tools import IDIOM_TOOLS

SEEDS = {"forward": 7, "named dimensions": 29, "gradient": 5, "train": 39}
S2TRAIN = Tools(target="s2train")


@pytest.mark.parametrize("seed", SEEDS.values(), ids=list(SEEDS))
def test_a_sample_on_c(seed: int) -> None:
    case = drawn(seed, IDIOM_TOOLS[0], idioms=True)
    (verdict,) = judged([case], case.tools)
    assert verdict.what == "same", f"{verdict.kind}\n{verdict.detail}"


@pytest.mark.parametrize("seed", [20022, 20023])
def test_a_sample_on_s2train(seed: int) -> None:
    (verdict,) = judged([drawn(seed, S2TRAIN, idioms=True)], S2TRAIN)
    assert verdict.what == "same", f"{verdict.kind}\n{verdict.detail}"


@pytest.mark.parametrize("seed", [6, 8, 9, 15, 16, 20])
def test_the_judge_decides(seed: int) -> None:
    """Powers, masks, norms, choices: what perturbations allow is a few units in nearly all elements."""
    model = drawn(seed, S2TRAIN, idioms=True).model
    given = model.at(model.calls[0]).inputs if model.calls else model.inputs
    found = Runtime(model).spreads(given, 4, 2.0, seed)
    for name, spread in found.items():
        assert np.median(spread.most) < 1e-5 * np.abs(spread.value).max(), name


def test_models_are_large_and_various() -> None:
    cases = [drawn(seed, Tools(), idioms=True) for seed in range(50)]
    assert all(c.idioms and len(c.model.nodes) < 300 for c in cases)
    assert sum(len(c.model.nodes) > 29 for c in cases) > 40
    names = {name for c in cases for name in c.idioms}
    every = {f.__name__ for table in (IDIOMS, QUANTISED) for rows in table.values() for _, f in rows}
    assert len(names & every) > 0.7 * len(every)
    counts = Counter(c.kind for c in cases)
    assert counts["forward"] > 25 and counts["train"] > 5 and counts["gradient"] > 0
    limits = [limit for c in cases for limit in c.model.ranges.values()]
    assert "" in limits and any(limits)


def _layer() -> Model:
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((6, 4)).astype(np.float32), "b": rng.standard_normal(4).astype(np.float32)}
    nodes = (
        Node("MatMul", ("x", "w"), ("m",)),
        Node("Add", ("m", "b"), ("a",)),
        Node("Softmax", ("a",), ("y",), {"axis": -1}),
        Node("Transpose", ("x",), ("t",), {"perm": [1, 0]}),
    )
    return Model(nodes, {"x": rng.standard_normal((3, 6)).astype(np.float32)}, constants, ("y", "t"), 17)


@pytest.mark.parametrize("judge", ["onnxruntime", "the reference"])
def test_a_judge_knows_rounding_from_faults(judge: str) -> None:
    model = _layer()
    one: Runtime | Evaluator = Runtime(model) if judge == "onnxruntime" else Evaluator(parse(model.onnx))
    right = one.results(model.inputs)
    rounded = {**right, "y": np.nextafter(right["y"], np.float32(2))}
    assert one.differing(model.inputs, rounded, 0)[0] == []
    for changed in (right["y"] * np.float32(1.0001), np.where(right["y"] == right["y"].max(), np.nan, right["y"])):
        assert one.differing(model.inputs, {**right, "y": changed.astype(np.float32)}, 0)[0] == ["y"]
    if judge == "onnxruntime":  # what only moves has the bits of what was moved
        moved = {**right, "t": np.nextafter(right["t"], np.float32(9))}
        assert one.differing(model.inputs, moved, 0)[0] == ["t"]


def test_a_choice_that_rounding_turns_is_undecided() -> None:
    model = Model((Node("Round", ("x",), ("y",)),), {"x": np.array([0.5, 1.7], np.float32)}, {}, ("y",), 17)
    runtime = Runtime(model)
    right = runtime.results(model.inputs)["y"]
    assert runtime.differing(model.inputs, {"y": right + np.array([1, 0], np.float32)}, 0)[0] == []
    assert runtime.differing(model.inputs, {"y": right + np.array([0, 1], np.float32)}, 0)[0] == ["y"]


@pytest.mark.parametrize("kind", ["gradient", "train"])
def test_a_wrong_gradient_is_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(replace(_layer(), outputs=("y",)).live(), kind=kind, train="loss=mse", idioms=("layer",))  # pyright: ignore[reportArgumentType]
    assert along_a_direction(case) == ""
    at = Differences.at

    def off(subject: object) -> Differences:
        found = at(subject)  # pyright: ignore[reportArgumentType]
        return replace(found, arrays={w: g * 1.001 for w, g in found.arrays.items()})

    monkeypatch.setattr(Differences, "at", off)
    assert "by differences" in along_a_direction(case)
