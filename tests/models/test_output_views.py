"""Outputs that are views of inputs, of constants and of each other: each is its own buffer of the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dlc.cli.frame import run
from tests.models.building import Bench, random_inputs, reference
from tests.models.writing import Writer

X = {"x": (np.float32, (2, 3, 4))}
PARTS: Sequence[tuple[str, Callable[[Writer, str], str]]] = (
    ("identity", lambda g, v: g.op("Identity", v)),
    ("reshape", lambda g, v: g.op("Reshape", v, g.constant([1, -1, 1]))),
    ("flatten", lambda g, v: g.op("Flatten", v)),
    ("same type", lambda g, v: g.op("Cast", v, to=TensorProto.FLOAT)),
    ("whole", lambda g, v: g.op("Slice", v, g.constant([0]), g.constant([1 << 40]))),
    ("part", lambda g, v: g.op("Slice", v, g.constant([0]), g.constant([1]))),
    ("new axis", lambda g, v: g.op("Unsqueeze", v, g.constant([0]))),
    ("transpose", lambda g, v: g.op("Transpose", v)),
)


def with_outputs(g: Writer, names: Sequence[str]) -> onnx.ModelProto:
    model = g.model("views", X, {})
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    return onnx.shape_inference.infer_shapes(model)


def viewed(g: Writer, value: str, random: Random, longest: int = 3) -> str:
    for _ in range(random.randint(0, longest)):
        value = random.choice(PARTS)[1](g, value)
    return value


def checked(bench: Bench, model: onnx.ModelProto, place: Path, target: str = "c{flags=-O0}") -> None:
    built = bench.compile(model, place, target=target)
    feeds = random_inputs(built.program)
    want = reference(built.source, feeds)
    got = built(feeds)
    assert list(got) == list(want)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-6, err_msg=name, strict=True)


@pytest.mark.parametrize("name", [name for name, _ in PARTS])
def test_two_outputs_that_are_one_view_of_an_input(name: str, bench: Bench, place: Path) -> None:
    part = dict(PARTS)[name]
    g = Writer(0)
    checked(bench, with_outputs(g, [part(g, "x"), part(g, "x")]), place)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("target", ["c{flags=-O0}", "c{cpu=generic flags=-O0}"], ids=["native", "generic"])
def test_random_views(seed: int, target: str, bench: Bench, place: Path) -> None:
    random, g = Random(seed), Writer(seed)
    values = ["x", g.normal(2, 3, 4), g.op("Relu", "x")]
    values.append(g.op("Add", values[2], values[1]))
    outputs = list[str]()
    while len(outputs) < 8:
        # A name stands for one output only, so what is taken twice is an identity of itself.
        value = viewed(g, random.choice([*values, *outputs]), random)
        outputs.append(g.op("Identity", value) if value in outputs else value)
    checked(bench, with_outputs(g, outputs), place, target)


@pytest.mark.parametrize("seed", range(3))
def test_training_programs(seed: int, bench: Bench, place: Path) -> None:
    random, g = Random(seed), Writer(seed)
    first = g.op("MatMul", "x", g.normal(4, 5))
    outputs = [first]
    while len(outputs) < 6:
        value = viewed(g, random.choice(["x", g.normal(2, 3), *outputs]), random)
        outputs.append(g.op("Identity", value) if value in outputs else value)
    flags = ("--train", f"loss=mse,of={first}", "--verify-steps")
    built = bench.compile(with_outputs(g, outputs), place, *flags, target="c{cpu=generic}")
    assert {step["verdict"] for step in built.document["verify_steps"]} == {"same", "skipped"}
    assert run(["verify", str(built.directory), "-q"]) == 0
