"""Batch normalisation by the batch: values, gradients and running statistics against PyTorch; models in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dlc.base.types import Type, f32, f64, i64
from dlc.graph import Constant, Graph, Input, Op, Splat, Tensor, evaluate, parse_graph, print_graph, verify
from dlc.graph.gradient import gradients
from dlc.graph.walk import evaluate_ops
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Relu
from dlc.ops.normalize import BatchNorm, BatchNormTraining, batch_mean, batch_variance, running_statistic
from dlc.ops.random import Dropout, DropoutMask, RandomNormal, RandomUniform
from dlc.training.step.batch_norm import TrainingBatchNorms, training_batch_norms
from dlc.training.step.dropout import with_step

Array = Any
EPSILON = 1e-4
SHAPES = [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2), (1, 2, 1, 2), (1, 2, 1, 1)]


def operands(*shape: int) -> tuple[Input, Input, Input]:
    channels = Type(f64, (shape[1],))
    return Input("x", Type(f64, shape)), Input("scale", channels), Input("bias", channels)


def values(*shape: int, offset: float = 0.0) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape) * 2 + offset, rng.standard_normal(shape[1]), rng.standard_normal(shape[1])]


@pytest.mark.parametrize("shape", [s for s in SHAPES if np.prod(s) > s[1]], ids=str)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_values_gradients_and_running_statistics_are_those_of_pytorch(shape: tuple[int, ...], offset: float) -> None:
    given, arrays = operands(*shape), values(*shape, offset=offset)
    y, seed = BatchNormTraining(*given, epsilon=EPSILON), Input("seed", Type(f64, shape))
    running = [Input("mean", Type(f64, (shape[1],))), Input("var", Type(f64, (shape[1],)))]
    # The momentum of PyTorch is 1 minus that of ONNX; its running variance is that of a sample, n / (n - 1) as large.
    new = [running_statistic(r, f(given[0]), 0.75) for r, f in zip(running, (batch_mean, batch_variance), strict=True)]
    cotangent = np.random.default_rng(4).standard_normal(shape)
    env: dict[Op, Array] = {**dict(zip(given, arrays, strict=True)), seed: cotangent}
    env |= dict.fromkeys(running, np.full(shape[1], 0.5))
    got = evaluate_ops((y, *gradients((y,), (seed,), given), *new), env)

    x, scale, bias = (torch.tensor(a, requires_grad=True) for a in arrays)
    mean, var = (torch.full((shape[1],), 0.5, dtype=torch.float64) for _ in range(2))
    want = torch.nn.functional.batch_norm(x, mean, var, scale, bias, training=True, momentum=0.25, eps=EPSILON)
    back = torch.autograd.grad(want, (x, scale, bias), torch.tensor(cotangent))
    count = np.prod(shape) / shape[1]
    var = 0.375 + (var - 0.375) * (count - 1) / count
    tolerance = 1e-7 if offset else 1e-10
    for a, b in zip(got, (want.detach(), *back, mean, var), strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_gradient_of_x_sums_to_zero_in_every_channel(shape: tuple[int, ...]) -> None:
    given, arrays = operands(*shape), values(*shape)
    y, seed = BatchNormTraining(*given), Input("seed", Type(f64, shape))
    (dx,) = gradients((y,), (seed,), given[:1])
    cotangent = np.random.default_rng(4).standard_normal(shape)
    (got,) = evaluate_ops((dx,), {**dict(zip(given, arrays, strict=True)), seed: cotangent})
    np.testing.assert_allclose(got.sum(tuple(k for k in range(len(shape)) if k != 1)), 0, atol=1e-12)


def test_a_channel_of_equal_elements_gives_the_bias_and_a_finite_gradient() -> None:
    given = operands(4, 2, 3)
    y, seed = BatchNormTraining(*given, epsilon=EPSILON), Input("seed", Type(f64, (4, 2, 3)))
    arrays = [np.full((4, 2, 3), 7.0), np.array([2.0, 3.0]), np.array([0.5, -1.0])]
    cotangent = np.random.default_rng(4).standard_normal((4, 2, 3))
    env: dict[Op, Array] = {**dict(zip(given, arrays, strict=True)), seed: cotangent}
    got, dx = evaluate_ops((y, *gradients((y,), (seed,), given[:1])), env)
    assert np.array_equal(got, np.broadcast_to(arrays[2][:, None], got.shape))
    factor = arrays[1][:, None] / EPSILON**0.5
    np.testing.assert_allclose(dx, (cotangent - cotangent.mean((0, 2), keepdims=True)) * factor, rtol=1e-10)


def test_what_has_no_statistics_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"no elements to take statistics of: f64\[0,3,2\]"):
        BatchNormTraining(*operands(0, 3, 2))
    with pytest.raises(ShapeError, match="must have channels"):
        batch_mean(Input("x", Type(f64, (4,))))


# ---- models


def constant(name: str, *numbers: float) -> Constant:
    return Constant(Tensor.of(np.array(numbers, np.float32)), name)


def layer(x: Op, name: str, stored: tuple[Op, Op] | None = None) -> BatchNorm:
    mean, var = stored or (constant(f"{name}.mean", 0.0, 0.0), constant(f"{name}.var", 1.0, 1.0))
    return BatchNorm(x, constant(f"{name}.scale", 1.5, -0.5), constant(f"{name}.bias", 0.25, 1.0), mean, var)


X = Input("x", Type(f32, (4, 2, 3)))
DATA = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32) * 3 + 1


def model(y: Op, **origins: Op) -> Graph:
    return Graph((X,), (y,), ("y",), origins={op.digest: (name,) for name, op in origins.items()})


def run(found: TrainingBatchNorms, states: dict[str, Array]) -> dict[str, Array]:
    assert verify(found.graph) == ()
    return evaluate(found.graph, {"x": DATA, **states})


def starts(graph: Graph) -> dict[str, Any]:
    return {i.name: i.initial for i in graph.inputs if i.role == "state"}


def test_a_model_normalises_by_its_batches_and_keeps_count() -> None:
    first = layer(X, "a")
    second = layer(Relu(first), "b")
    found = training_batch_norms(model(second, one=first, two=second))
    assert found.statistics == ("a.mean", "a.var", "b.mean", "b.var")
    assert found.graph.names == ("y", *found.statistics)
    assert [i.name for i in found.graph.inputs] == ["x", *found.statistics]
    assert found.graph.aliases == ((1, 1), (2, 2), (3, 3), (4, 4))
    assert (found.replaced, found.fixed) == (2, ())
    assert "batch normalisations: 2 use the statistics of the batch" in found.summary
    begun: dict[str, Array] = {n: t.array() for n, t in starts(found.graph).items()}
    got = run(found, begun)

    layers = [torch.nn.BatchNorm1d(2, momentum=0.1) for _ in range(2)]
    for norm in layers:
        norm.weight.data, norm.bias.data = torch.tensor([1.5, -0.5]), torch.tensor([0.25, 1.0])
    want = layers[1](torch.relu(layers[0](torch.tensor(DATA)))).detach()
    np.testing.assert_allclose(got["y"], want, rtol=1e-5, atol=1e-6)
    for name, norm in zip("ab", layers, strict=True):
        mean, var = norm.running_mean, norm.running_var
        assert mean is not None
        assert var is not None
        np.testing.assert_allclose(got[f"{name}.mean"], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[f"{name}.var"], 0.9 + (var - 0.9) * 11 / 12, rtol=1e-5)


def test_the_trained_model_is_text_too() -> None:
    graph = training_batch_norms(model(layer(X, "a"))).graph
    classes = {cls.text_name: cls for cls in (BatchNormTraining, *({type(op) for op in graph.ops})) if cls is not Input}
    assert parse_graph(print_graph(graph), classes).digest == graph.digest


def test_a_frozen_layer_keeps_its_statistics() -> None:
    first = layer(X, "a")
    second = layer(Relu(first), "b")
    graph = model(second, one=first, two=second)
    found = training_batch_norms(graph, frozen=("a.scale", "a.bias", "b.bias"))
    assert found.fixed == (("one", "it is frozen"),)
    assert found.statistics == ("b.mean", "b.var")
    assert first in found.graph.ops
    everything = training_batch_norms(graph, frozen=("a.scale", "a.bias", "b.scale", "b.bias"))
    assert everything.graph.digest == graph.digest


def test_a_layer_that_is_applied_twice_has_one_pair_of_statistics() -> None:
    stored = constant("m", 0.5, 1.0), constant("v", 2.0, 3.0)
    first = layer(X, "a", stored)
    found = training_batch_norms(model(layer(Relu(first), "a", stored)), momentum=0.5)
    assert found.statistics == ("m", "v")
    got = run(found, {"m": np.array([0.5, 1.0]), "v": np.array([2.0, 3.0])})
    before = evaluate(Graph((X,), (BatchNormTraining(X, first.scale, first.bias),), ("y",)), {"x": DATA})["y"]
    means = DATA.mean((0, 2)), np.maximum(before, 0).mean((0, 2))
    np.testing.assert_allclose(
        got["m"], 0.5 * (0.5 * np.array([0.5, 1.0]) + 0.5 * means[0]) + 0.5 * means[1], rtol=1e-5
    )


def test_statistics_without_names_belong_to_their_nodes() -> None:
    """Fresh models store zeros and ones everywhere: equal values are not one statistic."""
    zeros, ones = Splat(0.0, Type(f32, (2,))), Constant(Tensor.of(np.ones(2, np.float32)))
    first = layer(X, "a", (zeros, ones))
    second = layer(first, "b", (zeros, ones))
    found = training_batch_norms(model(second, one=first, two=second))
    assert found.statistics == ("one.mean", "one.var", "two.mean", "two.var")
    assert starts(found.graph)["two.mean"] == 0.0
    nameless = training_batch_norms(model(second))
    assert nameless.statistics == ("batch_norm0.mean", "batch_norm0.var", "batch_norm1.mean", "batch_norm1.var")


def test_names_that_are_taken_get_a_mark() -> None:
    stored = constant("x", 0.0, 0.0), constant("y", 1.0, 1.0)
    assert training_batch_norms(model(layer(X, "a", stored))).statistics == ("x_", "y_")


def test_statistics_that_are_computed_stay() -> None:
    mean = Input("mean", Type(f32, (2,)), "weight")
    y = layer(X, "a", (mean, constant("v", 1.0, 1.0)))
    found = training_batch_norms(Graph((X, mean), (y,), ("y",)))
    assert found.fixed == (("batch_norm0", "its statistics are no constants"),)
    assert found.graph.outputs == (y,)


def test_a_model_without_batch_normalisation_is_trained_as_it_is() -> None:
    graph = model(Relu(X))
    found = training_batch_norms(graph)
    assert found.graph.digest == graph.digest
    assert "folded" in found.summary


def test_momentum_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not 1\.5"):
        training_batch_norms(model(Relu(X)), momentum=1.5)


def test_every_step_has_its_own_masks() -> None:
    seed, step = Input("seed", Type(i64, ())), Input("step", Type(i64, ()), "state", 0)
    fixed = Dropout(X, seed, Input("t", Type(i64, ())), 0.5)
    numbers = Type(f32, (8,))
    drawn = RandomUniform(seed, numbers), RandomNormal(seed, numbers)
    outputs = (Dropout(X, seed, ratio=0.5), DropoutMask(seed, (8,)), *drawn, fixed)
    graph = Graph((X, seed, fixed.operands[2], step), outputs, tuple("abcde"))  # type: ignore[arg-type]
    stepped = with_step(graph, step)
    feeds = {"x": DATA, "seed": np.array(1), "t": np.array(5)}
    runs = [evaluate(stepped, {**feeds, "step": np.array(n)}) for n in (0, 1, 1)]
    assert all(np.array_equal(runs[1][n], runs[2][n]) for n in "abcde")
    assert all(not np.array_equal(runs[0][n], runs[1][n]) for n in "abcd")
    assert stepped.outputs[4] == fixed
    plain = evaluate(graph, {**feeds, "step": np.array(0)})
    assert all(np.array_equal(runs[0][n], plain[n]) for n in "abcde")
    assert with_step(model(Relu(X)), step).digest == model(Relu(X)).digest
