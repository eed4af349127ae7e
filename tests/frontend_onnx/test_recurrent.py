"""Recurrent layers against onnxruntime: the reference ignores lengths, activations, clipping and coupled gates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from building import compare, model_of, parse, runtime
from onnx import helper

from dlc import DlcError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 5, 2


@dataclass
class Layer:
    op: str
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    direction: str = "forward"
    given: tuple[str, ...] = ("B",)
    """Optional operands."""
    lengths: tuple[int, ...] = (4, 4, 4)
    opset: int = 14


BOTH = "bidirectional"
LAYERS = [
    *(Layer(op, direction=d) for op in GATES for d in ("forward", "reverse", BOTH)),
    *(Layer(op, given=(), opset=7) for op in GATES),
    *(Layer(op, given=("B", "initial_h"), direction=BOTH) for op in GATES),
    *(Layer(op, given=("lengths",), lengths=(2, 4, 0), direction=BOTH) for op in GATES),
    *(Layer(op, {"clip": 0.3}) for op in GATES),
    Layer("GRU", {"linear_before_reset": 1}, direction=BOTH),
    Layer("GRU", {"activations": ["HardSigmoid", "Softsign"]}),
    Layer("LSTM", given=("B", "initial_h", "initial_c", "P"), direction=BOTH),
    Layer("LSTM", {"input_forget": 1}),
    Layer("LSTM", {"activations": ["Sigmoid", "LeakyRelu", "Elu"], "activation_alpha": [0.2, 0.7]}),
    Layer(
        "RNN",
        {"activations": ["Relu", "ScaledTanh"], **{f"activation_{k}": [0.5] for k in ("alpha", "beta")}},
        "bidirectional",
    ),
    Layer("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
]


def model_and_feeds(layer: Layer, fixed: bool) -> tuple[Any, dict[str, Any]]:
    random = np.random.default_rng(1)
    directions, gates = (2 if layer.direction == "bidirectional" else 1), GATES[layer.op]
    shapes = {
        "x": (STEPS, BATCH, INPUTS),
        "W": (directions, gates * HIDDEN, INPUTS),
        "R": (directions, gates * HIDDEN, HIDDEN),
        "B": (directions, 2 * gates * HIDDEN),
        "lengths": (BATCH,),
        "initial_h": (directions, BATCH, HIDDEN),
        "initial_c": (directions, BATCH, HIDDEN),
        "P": (directions, 3 * HIDDEN),
    }
    values: dict[str, Any] = {k: random.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    values["lengths"] = np.array(layer.lengths, np.int32)
    names = [k if k in ("x", "W", "R", *layer.given) else "" for k in shapes]
    names = names[: max(k for k, n in enumerate(names) if n) + 1]
    outputs = ["y", "h", "c"][: 3 if layer.op == "LSTM" else 2]
    node = helper.make_node(layer.op, names, outputs, hidden_size=HIDDEN, direction=layer.direction, **layer.attributes)
    weights = {k: values[k] for k in names if k and (k in ("W", "R", "B", "P") or (fixed and k != "x"))}
    feeds = {k: values[k] for k in names if k and k not in weights}
    return model_of([node], feeds, outputs, weights, layer.opset), feeds


@pytest.mark.parametrize("fixed", [True, False], ids=["constant", "computed"])
@pytest.mark.parametrize("k", range(len(LAYERS)), ids=[f"{x.op}-{x.direction}-{k}" for k, x in enumerate(LAYERS)])
def test_a_layer_gives_what_onnxruntime_gives(k: int, fixed: bool) -> None:
    model, feeds = model_and_feeds(LAYERS[k], fixed)
    compare(model, feeds, runtime)


@pytest.mark.parametrize("op", GATES)
def test_the_batch_may_come_first(op: str) -> None:
    model, feeds = model_and_feeds(Layer(op, {"layout": 1}), fixed=True)
    feeds["x"] = np.ascontiguousarray(feeds["x"].swapaxes(0, 1))
    for d, extent in zip(model.graph.input[0].type.tensor_type.shape.dim, feeds["x"].shape, strict=True):
        d.dim_value = extent
    compare(model, feeds)


def test_a_layer_of_very_many_steps_is_refused() -> None:
    model, _ = model_and_feeds(Layer("RNN"), fixed=True)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 100_000
    with pytest.raises(DlcError, match=r"the recurrent layer has .* steps; the limit is 1,024"):
        parse(model)
