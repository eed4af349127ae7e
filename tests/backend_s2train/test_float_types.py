"""Models in float16 and bfloat16: for the device they are the same model in float32 with the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import dlc
from dlc.base.types import Array
from dlc.cli.frame import run

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
tiny ({0}[2,3,8,8] x) => ({0}[2,5] y) {{
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    n = BatchNormalization(c, scale, shift, mean, var)
    r = Relu(n)
    c2 = Conv<pads = [1, 1, 1, 1]>(r, w2, b2)
    q = Sigmoid(c2)
    a = Add(r, q)
    k = Clip(a, low, high)
    p = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(k)
    f = Flatten(p)
    z = Gemm<transB = 1>(f, head, bias)
    s = Softmax(z)
    l = LayerNormalization(z, gain, base)
    t = Mul(l, two)
    y = Add(s, t)
}}"""
SHAPES: dict[str, tuple[int, ...]] = {
    "w": (4, 3, 3, 3),
    "w2": (4, 4, 3, 3),
    "b2": (4,),
    "scale": (4,),
    "shift": (4,),
    "mean": (4,),
    "var": (4,),
    "head": (5, 64),
    "bias": (5,),
    "gain": (5,),
    "base": (5,),
    "low": (),
    "high": (),
    "two": (),
}
KINDS: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TRAIN = "loss=cross-entropy optimizer=sgd{lr=0.0625 momentum=0.5}"


def model(kind: str, values: Any) -> onnx.ModelProto:
    """The model in an element type, its numbers rounded to `values` before."""
    made = parser.parse_model(MODEL.format(kind))
    random = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        drawn = random.uniform(-0.5, 0.5, shape) + (name in ("scale", "var", "gain"))
        drawn = {"low": -1.0, "high": 3.0, "two": 2.0}.get(name, drawn)
        array = np.asarray(drawn, np.float32).astype(values)
        if kind == "bfloat16":
            tensor = helper.make_tensor(name, onnx.TensorProto.BFLOAT16, shape, array.tobytes(), raw=True)
        else:
            tensor = numpy_helper.from_array(array.astype("float32" if kind == "float" else kind), name)
        made.graph.initializer.append(tensor)
    return made


def given(values: Any) -> Array:
    return np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(values).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_the_model_in_float32(kind: str, tmp_path: Path) -> None:
    found: list[Array] = []
    for name in (kind, "float"):
        dlc.build(model(name, KINDS[kind]).SerializeToString(), "s2train", output=tmp_path / name, cache="off")
        program: Any = dlc.load(tmp_path / name)
        found.append(program(x=given(KINDS[kind]))["y"])
    np.testing.assert_array_equal(found[0], found[1])


def test_a_step_is_that_of_the_model_in_float32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the trained model is in float16 again."""
    np.savez(tmp_path / "data.npz", x=np.tile(given(np.float16), (4, 1, 1, 1)), y=np.arange(8) % 5)
    weights: list[dict[str, Array]] = []
    hosts: list[str] = []
    for kind in ("float16", "float"):
        path, out = tmp_path / f"{kind}.onnx", tmp_path / kind
        path.write_bytes(model(kind, np.float16).SerializeToString())
        line = ["build", str(path), "--target", "s2train", "--train", TRAIN, "--json"]
        assert run([*line, "-o", str(out), "--cache", "off"]) == 0
        hosts.append(json.loads(capsys.readouterr().out)["memory"]["host"])
        trained = tmp_path / f"trained-{kind}.onnx"
        line = ["train", str(out), "--data", str(tmp_path / "data.npz"), "--epochs", "2", "--seed", "0", "-q"]
        assert run([*line, "--export", str(trained)]) == 0
        capsys.readouterr()
        proto = onnx.ModelProto.FromString(trained.read_bytes())
        wanted = onnx.TensorProto.FLOAT16 if kind == "float16" else onnx.TensorProto.FLOAT
        assert {t.data_type for t in proto.graph.initializer} == {wanted}
        weights.append({t.name: numpy_helper.to_array(t) for t in proto.graph.initializer})
    assert hosts[0] == hosts[1]
    before = {t.name: numpy_helper.to_array(t) for t in model("float16", np.float16).graph.initializer}
    assert any((before[name] != weights[0][name]).any() for name in before)
    for name, values in weights[1].items():
        np.testing.assert_allclose(weights[0][name].astype(np.float32), values, rtol=0, atol=2.0**-9, err_msg=name)


@pytest.mark.parametrize("reference", ["auto", "numpy"])
@pytest.mark.parametrize("kind", KINDS)
def test_verify_compares_with_the_model_in_its_own_type(
    kind: str, reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.onnx").write_bytes(model(kind, KINDS[kind]).SerializeToString())
    line = ["verify", str(tmp_path / "m.onnx"), "--target", "s2train", "--json", "--cache", "off"]
    atol = ["--atol", "0.05"] if kind == "bfloat16" else []  # its own results have three digits
    assert run([*line, "--reference", reference, *atol]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [y["name"] for y in found["outputs"]] == ["y"]
    if (kind, reference) == ("float16", "auto"):
        assert found["reference"] == "onnxruntime"


def test_values_of_bfloat16_that_fp16_cannot_hold_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = model("bfloat16", ml_dtypes.bfloat16)
    (head,) = (t for t in made.graph.initializer if t.name == "head")
    head.raw_data = np.full(SHAPES["head"], 1e30, ml_dtypes.bfloat16).tobytes()
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    line = ["build", str(tmp_path / "m.onnx"), "--target", "s2train", "--json", "--cache", "off"]
    assert run([*line, "-o", str(tmp_path / "out")]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert warning["code"] == "value-range"
    assert "320 of 320" in warning["message"]
