"""Random graphs: the faults that were found, replayed, and a small sample of new ones.

`benchmarks/graph_fuzz.py` draws by the thousand; what it finds becomes a file in `tests/data/fuzz`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet

from tests.frontend_onnx.building import parse
from tests.fuzz.batch import Ran
from tests.fuzz.build import program_of
from tests.fuzz.case import Case, Tools, drawn
from tests.fuzz.judge import Verdict, compared, judged
from tests.fuzz.model import Model, Node, dumps
from tests.fuzz.narrow import narrow_types
from tests.fuzz.oracle import opinion, ran
from tests.fuzz.rounding import Spread, differing, wrong
from tests.fuzz.shrink import PLAIN, shrunk
from tests.fuzz.tools import TOOLS

FOUND = Path(__file__).parent.parent / "data" / "fuzz"
SAMPLE = 20


def found_faults() -> list[ParameterSet]:
    """Each with the compiler that it needs."""
    files = {p.stem: json.loads(p.read_text()) for p in sorted(FOUND.glob("*.json"))}
    return [pytest.param(d, marks=pytest.mark.needs(Case.from_json(d).tools.cc), id=n) for n, d in files.items()]


@pytest.mark.parametrize("data", found_faults())
def test_a_fault_that_was_found_stays_mended(data: dict[str, Any]) -> None:
    assert data["cause"], "say what was wrong"
    case = Case.from_json(data)
    (verdict,) = judged([case], case.tools, oracle=data.get("oracle", True))
    assert verdict.what == data.get("verdict", "same"), f"{verdict.kind}\n{verdict.detail}"


@pytest.mark.uses("clang")
@pytest.mark.parametrize("number", range(3))
def test_a_sample_of_random_graphs(number: int) -> None:
    tools = TOOLS[number % len(TOOLS)]
    first = 1_000_000 + number * SAMPLE
    verdicts = judged([drawn(seed, tools) for seed in range(first, first + SAMPLE)], tools)
    assert [v for v in verdicts if v.what == "fault"] == []
    same = [v for v in verdicts if v.what == "same"]
    assert len(same) > 0.8 * SAMPLE
    assert sum(v.compared for v in same) > 4 * sum(v.undecided for v in same)
    assert sum(v.oracle is not None and v.oracle.ran for v in same) > SAMPLE / 2


def test_a_case_is_its_file() -> None:
    for seed in range(60):
        case = drawn(seed, Tools())
        again = Case.from_json(json.loads(dumps(case.to_json())))
        assert again.model.bytes == case.model.bytes
        assert all(
            a.tobytes() == b.tobytes()
            for a, b in zip(again.model.inputs.values(), case.model.inputs.values(), strict=True)
        )
        assert (again.settings, again.without, again.kind, again.train) == (
            case.settings,
            case.without,
            case.kind,
            case.train,
        )


def test_what_rounding_explains() -> None:
    want = Spread(np.array([1.0, 2.0, np.inf, np.nan, 0.0], np.float32), np.array([1e-6, 0.0, 0.0, 0.0, np.inf]))
    assert wrong(want.value, want).tolist() == [False] * 5
    near = np.array([1.000004, 2.0, np.inf, np.nan, 7.0], np.float32)
    assert wrong(near, want).tolist() == [False] * 5
    far = np.array([1.1, 2.0000002, -np.inf, 3.0, np.nan], np.float32)
    assert wrong(far, want).tolist() == [True, True, True, True, False]


def test_a_fault_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(cases: Sequence[Case], tools: Tools) -> list[Verdict]:
        """As if whatever has a Tanh were compiled wrongly."""
        assert tools in PLAIN
        model = cases[0].model
        parse(model.onnx)
        ops = [n.op for n in model.nodes]
        return [Verdict(0, "fault", "wrong") if "Tanh" in ops else Verdict(0, "same")]

    monkeypatch.setattr("tests.fuzz.shrink.judged", broken)
    cases = (drawn(seed, PLAIN[0]) for seed in range(400))
    large = next(c for c in cases if len(c.model.nodes) > 12 and any(n.op == "Tanh" for n in c.model.nodes))
    small = shrunk(large, "wrong", 60)
    assert [n.op for n in small.model.nodes] == ["Tanh"]
    (x,) = small.model.inputs.values()
    assert x.size == 1 and not x.any()
    assert not small.without and not small.settings


def test_what_is_wrong_is_reported() -> None:
    """A program that gives something else than the reference, made by changing what is expected of it."""
    case = Case(Model((Node("Relu", ("x",), ("y",)),), {"x": np.ones(3, np.float32)}, {}, ("y",), 17), tools=TOOLS[0])
    program = program_of(case, "g0")
    good = Ran({"y": np.ones(3, np.float32)})
    assert compared(program, [good]).what == "same"
    bad = compared(program, [Ran({"y": np.array([1, 1, 1.0000001], np.float32)})])
    assert (bad.what, bad.kind) == ("fault", "C differs from the reference (forward)")
    assert compared(program, [Ran(None, "ends with -11")]).kind == "C: ends with -#"


def test_narrow_types_are_judged_by_onnxruntime() -> None:
    """It has neither products nor sums of bfloat16, and takes no arrays of it."""
    given = {name: np.array([[1.0, 2.5, -3.0]], np.dtype("bfloat16")) for name in ("a", "b")}
    weights = {"w": np.array([[3], [-2], [7]], np.dtype("int4")), "s": np.array(0.5, np.float32)}
    nodes = (
        Node("Mul", ("a", "b"), ("c",)),
        Node("Cast", ("c",), ("f",), {"to": 1}),
        Node("DequantizeLinear", ("w", "s"), ("v",)),
        Node("MatMul", ("f", "v"), ("y",)),
    )
    model = Model(nodes, given, weights, ("y", "c"), 21)
    assert narrow_types(model) == {"bfloat16", "int4"}
    same = opinion(model, parse(model.onnx))
    assert same.ran and not same.reason
    other = replace(model, nodes=(Node("Add", ("a", "b"), ("c",)), *nodes[1:]))
    results = ran(model, parse(model.onnx))
    assert differing(parse(other.onnx), given, results, widely=True)[0] == ["y", "c"]


def test_every_feature_is_drawn() -> None:
    """By the thousand, a run has hundreds of each."""
    cases = [drawn(seed, Tools()) for seed in range(2_000_000, 2_000_400)]
    counts = Counter(trait for case in cases for trait in case.traits)
    narrow = sum(bool(narrow_types(case.model)) for case in cases)
    assert counts["with named dimensions"] > 60 and counts["with sizes that a call finds"] > 8 and narrow > 25
    assert all(counts[f"with {name}"] > 3 for name in ("If", "Loop", "Scan", "bfloat16", "uint4"))
    assert counts["gradient"] > 20 and counts["train"] > 10
