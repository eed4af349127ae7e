"""Builds for S2Train warn of numbers that its types cannot hold, once for each tensor, and of no others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from dlc.base.types import Array
from dlc.cli.frame import run
from tests.models.test_light import light

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
tiny (float[2,1,8,8] x) => (float[2,5] y) {
    [Convolution] c = Conv<pads = [1, 1, 1, 1]>(x, w)
    [Norm] n = BatchNormalization<epsilon = 1e-20>(c, scale, shift, mean, var)
    [Factor] m = Mul(n, factor)
    [Rectify] r = Relu(m)
    [Pool] p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    [Flat] f = Flatten(p)
    [Head] y = Gemm<transB = 1>(f, head, bias)
}"""
SHAPES = {
    "w": (4, 1, 3, 3),
    "scale": (4,),
    "shift": (4,),
    "mean": (4,),
    "var": (4,),
    "factor": (1, 4, 1, 1),
    "head": (5, 64),
    "bias": (5,),
}
TRAIN = {"inference": (), "training": ("--train", "loss=cross-entropy optimizer=sgd{lr=0.01 momentum=0.9}")}
Built = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def warned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Built:
    """The warnings of a build for S2Train, by `--json`."""

    def build(model: onnx.ModelProto, *flags: str, target: str = "s2train") -> list[dict[str, Any]]:
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        line = ["build", str(path), "--target", target, "--cache", "off", "--json", "-o", str(tmp_path / "out")]
        assert run([*line, *flags]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)["diagnostics"]

    return build


def tiny(changed: Mapping[str, Callable[[Array], Array]]) -> onnx.ModelProto:
    model = parser.parse_model(MODEL)
    random = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        values = random.uniform(0.1, 0.5, shape) + (name in ("scale", "var"))
        values = changed.get(name, lambda v: v)(values).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


def at_two(value: float) -> Callable[[Array], Array]:
    """Two elements become a value."""

    def change(values: Array) -> Array:
        values.reshape(-1)[[1, 2]] = value
        return values

    return change


CASES: dict[str, tuple[str, Callable[[Array], Array], tuple[str, ...], str]] = {
    "weights beyond": ("w", at_two(-1e5), ('"w"', "2 of 36", "too large", "100000"), "Convolution"),
    "weights flushed": ("head", lambda v: v * 1e-9, ('"head"', "320 of 320", "become 0"), "Head"),
    "weights subnormal": ("head", lambda v: v * 1e-5, ('"head"', "320 of 320", "digits"), "Head"),
    "biases": ("bias", at_two(7e4), ('"bias"', "2 of 5", "too large"), "Head"),
    "1/std": ("var", at_two(1e-10), ('1/std of "Norm', "2 of 4", "100000"), "Norm"),
    "means": ("mean", at_two(-1e6), ('mean of "Norm', "2 of 4"), "Norm"),
    "factors": ("factor", lambda v: v * 1e6, ("4 of 4", "too large"), "Factor"),
}


@pytest.mark.parametrize("train", TRAIN)
@pytest.mark.parametrize("case", CASES)
def test_numbers_that_fp16_cannot_hold_are_told(case: str, train: str, warned: Built) -> None:
    name, change, said, node = CASES[case]
    found = warned(tiny({name: change}), *TRAIN[train])
    if case == "factors" and train == "inference":
        # Scale and shift of the norm are multiplied by them; where they are trained, they stay what they are.
        assert [d["message"].partition(",")[0] for d in found] == ['scale of "Norm', 'shift of "Norm']
        assert all(d["nodes"] == ["Norm", "Factor"] for d in found)
        return
    (warning,) = found
    assert (warning["code"], warning["severity"]) == ("value-range", "warning")
    assert all(part in warning["message"] for part in said), warning["message"]
    assert warning["location"]["node"] == node
    assert "scale" in warning["help"]


def test_several_kinds_of_one_tensor_are_one_warning(warned: Built) -> None:
    def change(values: Array) -> Array:
        values.reshape(-1)[:4] = 1e6, 1e-9, 1e-10, -1e7
        return values

    (warning,) = warned(tiny({"w": change}))
    assert "2 of 36" in warning["message"]
    assert "1e+07" in warning["message"]
    assert len(warning["notes"]) == 1
    assert "2 of 36" in warning["notes"][0]
    assert "become 0" in warning["notes"][0]


def test_a_product_of_factors_that_fp16_holds_is_exact(warned: Built) -> None:
    """Neither of the two is: what is stored is rounded once."""
    assert not warned(tiny({"scale": lambda v: v * 1e6, "shift": lambda v: v * 1e6, "factor": lambda v: v * 1e-6}))


@pytest.mark.parametrize("train", TRAIN)
def test_what_fp16_holds_is_not_warned_of(train: str, warned: Built) -> None:
    """Variances of channels that are never used, which the device does not store, among it."""
    assert not warned(tiny({"w": at_two(65519.0), "mean": at_two(-65504.0), "head": at_two(0.0)}), *TRAIN[train])
    assert not warned(tiny({"var": at_two(3e-9), "bias": lambda v: 0 * v}), *TRAIN[train])


@pytest.mark.parametrize(
    ("target", "number"),
    [("s2train", "lr=1e-50"), ("s2train", "weight-decay=1e-60"), ("c", "lr=1e-50")],
)
def test_numbers_of_the_optimizer(target: str, number: str, warned: Built) -> None:
    train = f"loss=cross-entropy optimizer=sgd{{{number} momentum=0.9}}"
    (warning,) = warned(tiny({}), "--train", train, "--stop-after", "autodiff", target=target)
    key, _, value = number.partition("=")
    assert warning["message"].startswith(f'{key} of "sgd": {value} becomes 0 in f32')


def test_real_and_random_networks_are_built_without_a_warning(warned: Built) -> None:
    assert not warned(
        onnx.ModelProto.FromString(
            (Path(__file__).parents[1] / "data" / "models" / "mnist_cntk" / "model.onnx").read_bytes()
        )
    )
    assert not warned(light("squeezenet", 1))
