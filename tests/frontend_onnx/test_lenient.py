"""What exporters write against the standard: refused with the flag that reads it, and read with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.frontend import Onnx
from onnx import helper

from dlc import DlcError, Report, Source
from dlc.graph import evaluate
from tests.frontend_onnx.building import model_of, parse

Array = Any
X = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
W = np.arange(12, dtype=np.float32).reshape(3, 4) / 7


def node(op: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), ["y"], **attributes)


QUIRKS: dict[str, tuple[onnx.NodeProto, dict[str, Array], Array, str]] = {
    "squeeze": (node("Squeeze", "x", axes=[1]), {"x": X}, X[:, 0], "axes is an attribute"),
    "squeeze-number": (node("Squeeze", "x", axes=1), {"x": X}, X[:, 0], "attribute axes is a number"),
    "unsqueeze": (node("Unsqueeze", "x", axes=[0]), {"x": X}, X[None], "has operands: 1, and should have 2"),
    "reshape": (node("Reshape", "x", shape=[3, 2]), {"x": X}, X.reshape(3, 2), "has operands: 1, and should have 2"),
    "gemm": (
        node("Gemm", "x", "w", "c", alpha=0.5, beta=2.0),
        {"x": X, "w": W, "c": np.ones(4, np.float32)},
        X @ W * 0.5 + 2,
        "more than two dimensions",
    ),
    "gemm-transposed": (
        node("Gemm", "x", "w", transA=1, transB=1),
        {"x": X.transpose(0, 2, 1), "w": W.T.copy()},
        X @ W,
        "more than two dimensions",
    ),
    "attribute": (
        node("Relu", "x", description="[Forward pass]"),
        {"x": X},
        X,
        "attribute description is not understood",
    ),
    "domain": (node("QuickGelu", "x", alpha=1.0), {"x": X}, X / (1 + np.exp(-X)), "there is no rule for this operator"),
    "sgd": (
        node("SGD", "w", "g", lr=0.5),
        {"w": W, "g": np.ones_like(W)},
        W - 0.5,
        "the standard has no such operator",
    ),
}


@pytest.mark.parametrize("name", QUIRKS)
def test_a_quirk_is_refused_and_read_with_the_flag(name: str) -> None:
    proto, feeds, want, reason = QUIRKS[name]
    model = model_of([proto], feeds, ["y"])
    with pytest.raises(DlcError, match=reason):
        parse(model)
    report = Report()
    graph = Onnx(lenient=True).parse(Source(data=model.SerializeToString(), label="quirk.onnx"), report)
    np.testing.assert_allclose(evaluate(graph, feeds)["y"], want, rtol=1e-5)
    if name not in ("unsqueeze", "reshape"):  # the number of operands says it there
        assert any(proto.op_type in subject for subject, _ in report.misses)
    assert report.missed_as == "read leniently" and all(": read " in reading for _, reading in report.misses)


def test_all_quirks_are_refused_at_once_and_name_the_flag() -> None:
    nodes = [
        helper.make_node("Squeeze", ["x"], ["a"], "first", axes=1),
        helper.make_node("Relu", ["a"], ["b"], "second", description="text"),
        helper.make_node("SGD", ["b", "b"], ["y"], "third"),
    ]
    with pytest.raises(DlcError) as problem:
        parse(model_of(nodes, {"x": X}, ["y"]))
    found = problem.value.diagnostics
    assert len(found) == 4 and all(d.help.startswith("--lenient reads it ") for d in found)


def test_too_many_operands_stay_an_error() -> None:
    with pytest.raises(DlcError, match="it has operands: 2, and should have 1"):
        parse(model_of([node("Relu", "x", "x")], {"x": X}, ["y"]), lenient=True)


def test_one_sensible_reading_is_needed() -> None:
    """Sizes that do not fit are errors with the flag, too."""
    for proto in (node("Gemm", "x", "w", transA=1), node("Squeeze", "x", axes=[0])):
        with pytest.raises(DlcError):
            parse(model_of([proto], {"x": X, "w": W}, ["y"]), lenient=True)
