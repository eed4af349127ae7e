"""Losses of classifiers: every node test that ONNX has of them, in both versions, and what cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import pytest
from building import compare, model_of, parse
from onnx import helper

from dlc import DlcError
from dlc.graph import evaluate

Array = Any
OPERATORS = {
    "SoftmaxCrossEntropyLoss": "softmax_cross_entropy_loss",
    "NegativeLogLikelihoodLoss": "negativeloglikelihoodloss",
}


def node_tests() -> list[Any]:
    """ONNX's node tests of the two operators; collecting those of all operators takes many seconds."""
    package: Any = import_module("onnx.backend.test.case.node")
    for module in OPERATORS.values():
        import_module(f"onnx.backend.test.case.node.{module}")
    found = [c for c in package._NodeTestCases if c.name.removeprefix("test_").startswith(("sce", "nll"))]
    return sorted(found, key=lambda case: case.name)


NODE_TESTS = node_tests()


def test_all_node_tests_are_there() -> None:
    assert len(NODE_TESTS) == 104
    assert sum(c.model.graph.node[0].op_type in OPERATORS for c in NODE_TESTS) == 52


def taken(model: onnx.ModelProto, feeds: Mapping[str, Array], expected: list[Array], rtol: float, atol: float) -> None:
    graph = parse(model)
    got = evaluate(graph, dict(feeds))
    for name, want in zip(graph.names, expected, strict=True):
        assert got[name].dtype == np.asarray(want).dtype
        assert got[name].shape == np.shape(want)
        np.testing.assert_allclose(got[name], want, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("case", NODE_TESTS, ids=lambda c: c.name)
def test_a_node_test_of_onnx_passes(case: Any) -> None:
    names = [i.name for i in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        taken(case.model, dict(zip(names, inputs, strict=True)), outputs, case.rtol, case.atol)


RNG = np.random.default_rng(2)
SCORES = RNG.standard_normal((3, 5, 2)).astype(np.float32)
LABELS = RNG.integers(0, 5, (3, 2))
WEIGHTS = RNG.uniform(0.5, 2, 5).astype(np.float32)
IGNORED: list[dict[str, Any]] = [{}, {"ignore_index": 2}]


@pytest.mark.parametrize("opset", [12, 13, 22])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("op", OPERATORS)
def test_the_reference_agrees_in_every_version(op: str, reduction: str, opset: int) -> None:
    outputs = ["y", "log_prob"] if op == "SoftmaxCrossEntropyLoss" else ["y"]
    for names in (["x", "t"], ["x", "t", "w"]):
        for ignored in IGNORED:
            node = helper.make_node(op, names, outputs, reduction=reduction, **ignored)
            feeds = dict(zip(names, (SCORES, LABELS.astype(np.int32), WEIGHTS), strict=False))
            compare(model_of([node], feeds, outputs, opset=opset), feeds)


def test_logarithms_that_nobody_reads_are_not_in_the_graph() -> None:
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "t"], ["y"])
    graph = parse(model_of([node], {"x": SCORES, "t": LABELS}, ["y"]))
    assert [op.text_name for op in graph.ops] == ["input", "input", "cross_entropy"]


WRONG: list[tuple[dict[str, str], list[str], str]] = [
    ({"reduction": "median"}, ["x", "t"], "reduction median"),
    ({}, ["x", "s"], "must have the shape [3, 2]"),
    ({}, ["x", "t", "t"], "class weights"),
    ({}, ["x"], "it has operands: 1, and should have at least 2"),
]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(("attributes", "names", "message"), WRONG)
def test_a_loss_that_makes_no_sense_is_refused(
    op: str, attributes: dict[str, Any], names: list[str], message: str
) -> None:
    feeds = {"x": SCORES, "t": LABELS, "s": LABELS[:2]}
    with pytest.raises(DlcError) as caught:
        parse(model_of([helper.make_node(op, names, ["y"], **attributes)], feeds, ["y"]))
    assert message in str(caught.value)
