"""Dropout, random numbers and batch normalisation in training mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from building import compare, model_of, parse
from onnx import helper

from dlc import DlcError
from dlc.graph import evaluate

Array = Any
X = np.random.default_rng(0).standard_normal((50, 40)).astype(np.float32)
YES, NO = np.array(True), np.array(False)


def run(*nodes: Any, feeds: dict[str, Array] | None = None, opset: int = 22, **constants: Array) -> dict[str, Array]:
    """The values of all outputs of nodes that read x."""
    feeds = {"x": X} if feeds is None else feeds
    names = [name for node in nodes for name in node.output if name]
    graph = parse(model_of(nodes, feeds, names, constants, opset))
    return evaluate(graph, {i.name: feeds[i.name] for i in graph.inputs})


def half(*outputs: str, name: str = "", **attributes: Any) -> Any:
    """A node that drops half of x."""
    return helper.make_node("Dropout", ["x", "", "yes"], list(outputs), name=name, **attributes)


@pytest.mark.parametrize("opset", [12, 13, 22])
@pytest.mark.parametrize("ratio", [0.25, 0.9])
def test_dropout_zeroes_some_and_scales_the_others(opset: int, ratio: float) -> None:
    node = helper.make_node("Dropout", ["x", "ratio", "yes"], ["y", "mask"], seed=3)
    got = run(node, opset=opset, ratio=np.array(ratio, np.float32), yes=YES)
    assert got["mask"].dtype == bool
    assert abs(got["mask"].mean() - (1 - ratio)) < 5 * (ratio * (1 - ratio) / X.size) ** 0.5
    np.testing.assert_allclose(got["y"], np.where(got["mask"], X / (1 - np.float32(ratio)), 0), rtol=1e-6)


@pytest.mark.parametrize("inputs", [["x"], ["x", "ratio"], ["x", "ratio", "no"], ["x", "zero", "yes"]])
def test_dropout_at_inference_or_of_nothing_is_the_identity(inputs: list[str]) -> None:
    node = helper.make_node("Dropout", inputs, ["y", "mask"])
    stored = {"ratio": np.array(0.5, np.float32), "zero": np.array(0, np.float32), "no": NO, "yes": YES}
    compare(model_of([node], {"x": X}, ["y", "mask"], stored), {"x": X})


def test_equal_seeds_drop_the_same_and_names_tell_apart_nodes_without_one() -> None:
    nodes = [half("a", seed=1), half("b", seed=1), half("c", seed=2), half("d", name="one"), half("e", name="two")]
    got = run(*nodes, yes=YES)
    assert np.array_equal(got["a"], got["b"])
    dropped = [got[n] == 0 for n in "acde"]
    assert all((p != q).mean() > 0.4 for k, p in enumerate(dropped) for q in dropped[:k])
    assert all(np.array_equal(got[n], again) for n, again in run(*nodes, yes=YES).items())


def text(*nodes: Any, feeds: dict[str, Array] | None = None, **constants: Array) -> str:
    with pytest.raises(DlcError) as caught:
        run(*nodes, feeds=feeds, **constants)
    return str(caught.value)


def test_what_is_out_of_range_is_refused() -> None:
    node = helper.make_node("Dropout", ["x", "ratio", "mode"], ["y"])
    assert "a ratio of 1" in text(node, ratio=np.array(1, np.float32), mode=YES)
    assert "a ratio of 1" in text(node, feeds={"x": X, "mode": YES}, ratio=np.array(1, np.float32))
    assert "random numbers of type i32" in text(helper.make_node("RandomNormal", [], ["y"], shape=[2], dtype=6))
    assert "attribute shape is missing" in text(helper.make_node("RandomUniform", [], ["y"]))
    assert "negative dimension" in text(helper.make_node("RandomUniform", [], ["y"], shape=[2, -1]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_uniform_numbers_lie_between_their_limits(dtype: Any) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    drawn = helper.make_node("RandomUniform", [], ["y"], low=-2.0, high=6.0, shape=[30, 40], dtype=kind, seed=0.5)
    like = helper.make_node("RandomUniformLike", ["x"], ["z"], low=-2.0, high=6.0, dtype=kind, seed=0.25)
    for y in run(drawn, like).values():
        assert y.dtype == dtype
        assert -2 <= y.min() < -1.9
        assert 5.9 < y.max() <= 6
        assert abs(y.astype(float).mean() - 2) < 5 * (64 / 12 / y.size) ** 0.5


def test_normal_numbers_have_their_mean_and_deviation() -> None:
    drawn = helper.make_node("RandomNormal", [], ["y"], mean=3.0, scale=0.5, shape=[30, 40], name="drawn")
    like = helper.make_node("RandomNormalLike", ["x"], ["z"], mean=3.0, scale=0.5, name="like")
    got = run(drawn, like)
    assert got["z"].shape == X.shape
    assert got["y"].ravel()[0] != got["z"].ravel()[0]
    for y in got.values():
        assert y.dtype == np.float32
        assert abs(y.mean() - 3) < 5 * 0.5 / y.size**0.5
        assert abs(y.std() / 0.5 - 1) < 5 / (2 * y.size) ** 0.5


def test_bernoulli_is_one_as_often_as_told() -> None:
    p = np.tile(np.array([0, 0.25, 1], np.float32), (1000, 1))
    plain = helper.make_node("Bernoulli", ["x"], ["y"])
    typed = helper.make_node("Bernoulli", ["x"], ["z"], dtype=9)
    got = run(plain, typed, feeds={"x": p}, opset=15)
    assert got["y"].dtype == np.float32
    assert got["z"].dtype == bool
    for y in got.values():
        assert not y[:, 0].any()
        assert y[:, 2].all()
        assert abs(y[:, 1].mean() - 0.25) < 5 * (0.25 * 0.75 / 1000) ** 0.5


@pytest.mark.parametrize("opset", [14, 15, 17])
@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_batch_normalisation_gives_the_new_running_statistics(opset: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    channels = {k: rng.uniform(0.5, 2, 3).astype(np.float32) for k in ("scale", "bias", "mean", "var")}
    feeds = {"x": rng.standard_normal(shape).astype(np.float32), **channels}
    outputs = ["y", "running_mean", "running_var"]
    settings: dict[str, Any] = {"training_mode": 1, "epsilon": 1e-2, "momentum": 0.7}
    node = helper.make_node("BatchNormalization", list(feeds), outputs, **settings)
    compare(model_of([node], feeds, outputs, opset=opset), feeds)
    node = helper.make_node("BatchNormalization", list(feeds), ["y"], **settings)
    compare(model_of([node], feeds, ["y"], opset=opset), feeds)


def test_statistics_of_another_type_keep_it() -> None:
    feeds = {"x": X.astype(np.float16), **{k: np.ones(40, np.float32) for k in ("scale", "bias", "mean", "var")}}
    outputs = ["y", "m", "v"]
    node = helper.make_node("BatchNormalization", list(feeds), outputs, training_mode=1)
    got = run(node, feeds=feeds, opset=15)
    assert [got[n].dtype for n in outputs] == [np.float16, np.float32, np.float32]
    np.testing.assert_allclose(got["m"], 0.9 + 0.1 * X.mean(0), atol=1e-3)
