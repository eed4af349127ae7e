"""Sequences and optional values, which are resolved when a model is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from building import compare, model_of, parse, runtime
from onnx import TensorProto, helper

from dlc import DlcError

X = np.arange(24, dtype=np.float32).reshape(6, 4)
node = helper.make_node
NUMBERS = {f"n{k}".replace("-", "m"): np.array(k) for k in (-2, -1, 0, 1, 2)} | {"parts": np.array([1, 3, 2])}
CASES: dict[str, list[onnx.NodeProto]] = {
    "construct, at, length": [
        node("Neg", ["x"], ["z"]),
        node("SequenceConstruct", ["x", "z", "x"], ["s"]),
        node("SequenceAt", ["s", "nm2"], ["y"]),
        node("SequenceLength", ["s"], ["length"]),
    ],
    "insert and erase": [
        node("SequenceEmpty", [], ["s0"], dtype=TensorProto.FLOAT),
        node("SequenceInsert", ["s0", "x"], ["s1"]),
        node("Neg", ["x"], ["z"]),
        node("SequenceInsert", ["s1", "z", "n0"], ["s2"]),
        node("Exp", ["x"], ["w"]),
        node("SequenceInsert", ["s2", "w", "nm1"], ["s3"]),
        node("SequenceErase", ["s3", "n0"], ["s4"]),
        node("SequenceErase", ["s4"], ["s5"]),
        node("ConcatFromSequence", ["s4"], ["all"], axis=0),
        node("ConcatFromSequence", ["s5"], ["y"], axis=1, new_axis=1),
        node("SequenceLength", ["s5"], ["length"]),
    ],
    "split by one": [node("SplitToSequence", ["x"], ["s"], axis=1), node("SequenceAt", ["s", "n2"], ["y"])],
    "split without the dimension": [
        node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
        node("ConcatFromSequence", ["s"], ["y"], axis=1, new_axis=1),
    ],
    "split by a length": [node("SplitToSequence", ["x", "n2"], ["s"], axis=1), node("SequenceAt", ["s", "n1"], ["y"])],
    "split by lengths": [node("SplitToSequence", ["x", "parts"], ["s"]), node("SequenceAt", ["s", "n1"], ["y"])],
    "a position that is computed": [
        node("SplitToSequence", ["x"], ["s"]),
        node("ReduceMax", ["x"], ["top"], keepdims=0),
        node("Cast", ["top"], ["number"], to=TensorProto.INT64),
        node("Mod", ["number", "n2"], ["at"]),
        node("SequenceAt", ["s", "at"], ["y"]),
    ],
    "optional values": [
        node("Optional", ["x"], ["o"]),
        node("OptionalHasElement", ["o"], ["has"]),
        node("OptionalGetElement", ["o"], ["y"]),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_what_onnxruntime_gives(name: str) -> None:
    nodes = CASES[name]
    outputs = [n for n in ("y", "length", "all", "has") if any(n in x.output for x in nodes)]
    read = {i for n in nodes for i in n.input}
    compare(model_of(nodes, {"x": X}, outputs, {k: v for k, v in NUMBERS.items() if k in read}, 18), {"x": X}, runtime)


def test_a_sequence_that_a_loop_builds() -> None:
    """As exporters write a list that a Python loop appends to."""
    info = helper.make_tensor_value_info
    sequence = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [
            node("Gather", ["x", "t"], ["row"]),
            node("Tanh", ["row"], ["value"]),
            node("SequenceInsert", ["before", "value"], ["next"]),
            node("Identity", ["on"], ["go"]),
        ],
        "body",
        [
            info("t", TensorProto.INT64, []),
            info("on", TensorProto.BOOL, []),
            sequence("before", TensorProto.FLOAT, None),
        ],
        [info("go", TensorProto.BOOL, []), sequence("next", TensorProto.FLOAT, None)],
    )
    nodes = [
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["count", "", "empty"], ["s"], body=body),
        node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1),
    ]
    model = model_of(nodes, {"x": X}, ["y"], {"count": np.array(6)}, 18)
    compare(model, {"x": X}, runtime)
    compare(model, {"x": X}, runtime, unroll=0)


@pytest.mark.parametrize("condition", [True, False])
def test_branches_that_give_sequences(condition: bool) -> None:
    sequence = helper.make_tensor_sequence_value_info("r", TensorProto.FLOAT, None)
    graphs = [
        helper.make_graph([node(f, ["x"], ["z"]), node("SequenceConstruct", ["x", "z"], ["r"])], "b", [], [sequence])
        for f in ("Neg", "Tanh")
    ]
    nodes = [
        node("If", ["c"], ["s"], then_branch=graphs[0], else_branch=graphs[1]),
        node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    feeds: dict[str, Any] = {"x": X, "c": np.array(condition)}
    compare(model_of(nodes, feeds, ["y"], {}, 18), feeds, runtime)


def test_every_element_of_a_sequence_mapped() -> None:
    """SequenceMap is a function of the standard: a loop over sequences."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", ["a", "b"], ["c"])], "body", [info("a", 1, None), info("b", 1, None)], [info("c", 1, None)]
    )
    nodes = [
        node("SplitToSequence", ["x", "parts"], ["s"]),
        node("Exp", ["row"], ["z"]),
        node("SequenceMap", ["s", "z"], ["m"], body=body),
        node("ConcatFromSequence", ["m"], ["y"], axis=0),
    ]
    feeds = {"x": X, "row": X[:1]}
    compare(model_of(nodes, feeds, ["y"], {"parts": NUMBERS["parts"]}, 18), feeds)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node("SequenceConstruct", ["x"], ["y"])], "output, 1 node: it is a sequence of 1"),
        ([node("SequenceConstruct", ["x"], ["s"]), node("Neg", ["s"], ["y"])], "operand 0 is a sequence of 1"),
        ([node("SequenceLength", ["x"], ["y"])], "operand 0 is f32[6,4], not a sequence"),
        ([node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "n2"], ["y"])], "position 2 of a sequence"),
        ([node("SequenceEmpty", [], ["s"]), node("SequenceErase", ["s"], ["y"])], "an empty sequence has nothing"),
        ([node("SplitToSequence", ["x", "n0"], ["s"]), node("SequenceAt", ["s", "n0"], ["y"])], "parts of length 0"),
        ([node("SplitToSequence", ["x", "nm1"], ["s"]), node("SequenceAt", ["s", "n0"], ["y"])], "parts of length -1"),
        (
            [
                node("Optional", [], ["o"], type=helper.make_tensor_type_proto(TensorProto.FLOAT, None)),
                node("OptionalGetElement", ["o"], ["y"]),
            ],
            "the optional value is absent",
        ),
    ],
)
def test_what_is_refused(nodes: list[onnx.NodeProto], words: str) -> None:
    read = {i for n in nodes for i in n.input}
    with pytest.raises(DlcError) as caught:
        parse(model_of(nodes, {"x": X}, ["y"], {k: v for k, v in NUMBERS.items() if k in read}, 18))
    assert words in str(caught.value)
    assert all(d.help for d in caught.value.diagnostics)


def test_an_element_at_a_position_of_the_input_among_tensors_of_several_types() -> None:
    nodes = [
        node("Transpose", ["x"], ["z"]),
        node("SequenceConstruct", ["x", "z"], ["s"]),
        node("SequenceAt", ["s", "at"], ["y"]),
    ]
    with pytest.raises(DlcError, match="a position in a sequence is computed from the model's inputs"):
        parse(model_of(nodes, {"x": X, "at": np.array(0)}, ["y"], {}, 18))
