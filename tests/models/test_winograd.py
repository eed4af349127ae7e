"""Convolutional networks by Winograd's algorithm: their error at the depth of networks, in C; and who has none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from tests.models.building import MAX_ERROR, Bench, Built
from tests.models.writing import Array, Writer

LAYERS, CHANNELS, SIZE = 16, 32, 24
SAME: Mapping[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
SIZES = "winograd.vector-bytes=32", "winograd.registers=16"
"""The numbers that estimates go by, the same on every computer."""


def network(batch: int | str = 1, layers: int = LAYERS) -> onnx.ModelProto:
    """As many layers as the convolutional networks of 2014 and 2015 have; every third adds what came two before."""
    w = Writer(5)
    y = w.op("Relu", w.op("Conv", "x", w.weight(CHANNELS, 3, 3, 3, fan_in=27, gain=2), w.normal(CHANNELS), **SAME))
    before = y
    for k in range(layers):
        scale = w.weight(CHANNELS, CHANNELS, 3, 3, fan_in=9 * CHANNELS, gain=2)
        sum_ = w.op("Conv", y, scale, w.normal(CHANNELS, scale=0.1), **SAME)
        before, y = y, w.op("Relu", w.op("Add", sum_, before) if k % 3 == 2 else sum_)
    y = w.op("Conv", y, w.weight(8, CHANNELS, 1, 1, fan_in=CHANNELS), w.normal(8))
    shape = (batch, 3, SIZE, SIZE)
    return w.model("deep", {"x": (np.float32, shape)}, {y: (np.float32, (batch, 8, SIZE, SIZE))})


def reference(model: onnx.ModelProto, x: Array) -> Array:
    """The network in double precision, by PyTorch."""
    values = {t.name: torch.tensor(numpy_helper.to_array(t), dtype=torch.float64) for t in model.graph.initializer}
    values["x"] = torch.tensor(x, dtype=torch.float64)
    for node in model.graph.node:
        a, *rest = (values[name] for name in node.input)
        match node.op_type:
            case "Conv":
                weight, bias = rest
                values[node.output[0]] = torch.nn.functional.conv2d(a, weight, bias, padding=weight.shape[-1] // 2)
            case "Add":
                values[node.output[0]] = a + rest[0]
            case _:
                values[node.output[0]] = torch.relu(a)
    return values[model.graph.output[0].name].numpy()


def counts(built: Built) -> Mapping[str, int]:
    """What the pass counted."""
    (step,) = [s for s in built.document["steps"] if s["step"].startswith("winograd")]
    return {name: n for name, n in step["counts"].items() if name.startswith("F(")}


def error(built: Built, model: onnx.ModelProto, batch: int = 1) -> float:
    """The largest difference from the network in double precision, relative to the largest output."""
    x = np.random.default_rng(3).standard_normal((batch, 3, SIZE, SIZE)).astype(np.float32)
    want = reference(model, x)
    (got,) = built({"x": x}).values()
    return float(np.abs(got - want).max() / np.abs(want).max())


@pytest.mark.parametrize("outputs", [2, 4])
def test_the_error_of_a_deep_network(bench: Bench, place: Path, outputs: int) -> None:
    model = network()
    options = [flag for size in (*SIZES, f"winograd.tile={outputs}") for flag in ("--set", size)]
    built = bench.compile(model, place / str(outputs), *options, target="c{flags=-O1}")
    assert counts(built) == {f"F({outputs}x{outputs},3x3)": LAYERS}
    assert error(built, model) < MAX_ERROR


def test_who_has_none(bench: Bench, place: Path) -> None:
    flags = [flag for size in SIZES for flag in ("--set", size)]
    batches = network("batch")
    for name, model, target, options in (
        ("strict", network(), "c{math=strict lib=none}", []),
        ("ordered", network(), "c{math=ordered lib=none}", []),
        ("portable", network(), "c{cpu=generic lib=none}", []),
        ("off", network(), "c{lib=none}", [*flags, "--set", "winograd.tile=off"]),
        ("open", batches, "c{lib=none}", [*flags, "--dim", "batch=1..4"]),
    ):
        assert not counts(bench.compile(model, place / name, *options, target=target)), name
