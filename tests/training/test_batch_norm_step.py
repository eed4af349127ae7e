"""Steps of networks with batch normalisation by batches and with dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dlc.base.diagnostics import DlcError
from dlc.base.types import Type, f32, i64
from dlc.graph import Constant, Graph, Input, Op, Tensor, evaluate, make_graph
from dlc.graph.verify import verify
from dlc.ops.elementwise import Relu
from dlc.ops.linear import Gemm
from dlc.ops.normalize import BatchNorm
from dlc.ops.random import Dropout, DropoutMask
from dlc.ops.shape import Reshape
from dlc.training.step.step import initial_values
from tests.training.nets import NETS, module_of, step_of

BATCH = 8
RNG = np.random.default_rng(2)
X = RNG.standard_normal((BATCH, 3, 4)).astype(np.float32) * 2 + 1
Y = RNG.integers(0, 5, BATCH)


def module() -> torch.nn.Sequential:
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    nn = torch.nn
    first = nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*first, nn.Linear(12, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5))


def graph_of(net: torch.nn.Sequential) -> Graph:
    values = {k: v.detach().numpy().copy() for k, v in net.state_dict().items()}

    def held(name: str) -> Op:
        return Constant(Tensor.of(values[name]), name)

    def norm(x: Op, layer: int) -> Op:
        scale, bias, mean, var = (held(f"{layer}.{k}") for k in ("weight", "bias", "running_mean", "running_var"))
        return BatchNorm(x, scale, bias, mean, var)

    def dense(x: Op, layer: int) -> Op:
        return Gemm(x, held(f"{layer}.weight"), held(f"{layer}.bias"), trans_b=True)

    x = Input("x", Type(f32, X.shape))
    h = Relu(norm(dense(Reshape(Relu(norm(x, 0)), to=(BATCH, 12)), 3), 4))
    return make_graph((x,), {"scores": dense(h, 6)})


def biased(net: torch.nn.Sequential, counts: dict[int, int]) -> None:
    """Running variances after one step as ONNX has them: of PyTorch's they differ by n / (n - 1) of what came in."""
    for layer, n in counts.items():
        var: Any = net[layer].running_var
        var.copy_(0.9 + (var - 0.9) * (n - 1) / n)


@pytest.mark.parametrize("options", ["optimizer=sgd{lr=0.1}", "optimizer=adam{lr=0.01} outputs=yes"])
def test_a_step_is_that_of_torch_in_training_mode(options: str) -> None:
    net = module()
    step = step_of(graph_of(net), options)
    assert verify(step) == ()
    got = evaluate(step, {"x": X, "y": Y, **initial_values(step)})
    adam = "adam" in options
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01) if adam else torch.optim.SGD(net.parameters(), lr=0.1)
    scores = net(torch.tensor(X))
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor(Y))
    loss.backward()  # pyright: ignore[reportUnknownMemberType]
    optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    biased(net, {0: BATCH * 4, 4: BATCH})
    np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-5)
    if "outputs" in options:
        np.testing.assert_allclose(got["scores"], scores.detach(), rtol=1e-4, atol=1e-5)
    for name, want in net.state_dict().items():
        # The gradient of a bias before batch normalisation is zero but for rounding, which Adam makes a step of.
        if name != "3.bias" and not name.endswith("num_batches_tracked"):
            np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-5, err_msg=name)


def test_frozen_and_stored_norms_keep_their_statistics() -> None:
    model = graph_of(module())
    frozen = step_of(model, "wrt=!0.*")
    assert [i.name for i in frozen.inputs if i.role == "state"] == ["4.running_mean", "4.running_var", "step"]
    stored = step_of(model, "stored-norms=yes")
    assert [i.name for i in stored.inputs if i.role == "state"] == ["step"]
    by_statistics = step_of(model, "wrt=weights,0.running_mean")
    assert "0.running_mean" in [i.name for i in by_statistics.inputs if i.role == "weight"]


def test_scales_and_shifts_of_norms_stay_where_asked() -> None:
    def trained(model: Graph, wrt: str) -> set[str]:
        return {i.name for i in step_of(model, f"wrt={wrt}").inputs if i.role == "weight"}

    model, norms = graph_of(module()), {"0.weight", "0.bias", "4.weight", "4.bias"}
    assert trained(model, "norms") == norms
    assert trained(model, "!norms") == trained(model, "weights") - norms
    plain = NETS["mlp"].graph(module_of(NETS["mlp"]))
    assert trained(plain, "!norms") == trained(plain, "weights"), "a model without norms is no mistake"
    with pytest.raises(DlcError, match="norms"):
        trained(plain, "norms")


def test_momentum_tells_how_much_stays() -> None:
    step = step_of(graph_of(module()), "momentum=0.25")
    got = evaluate(step, {"x": X, "y": Y, **initial_values(step)})
    np.testing.assert_allclose(got["0.running_mean"], 0.75 * X.mean((0, 2)), rtol=1e-5)


def test_each_step_drops_others_and_the_same_in_both_halves() -> None:
    x, seed = Input("x", Type(f32, (BATCH, 12))), Constant(Tensor.of(5, i64))
    w = Constant(Tensor.of(RNG.standard_normal((12, 5)), f32), "w")
    step = step_of(make_graph((x,), {"scores": Gemm(Dropout(x, seed, ratio=0.5), w)}), "optimizer=sgd{lr=1}")
    feeds = {**initial_values(step), "x": X.reshape(BATCH, 12), "y": Y}
    count = Input("count", Type(i64, ()))
    masks = make_graph((count,), {"mask": DropoutMask(seed, (BATCH, 12), count, ratio=0.5)})
    for n in (0, 0, 1, 1 << 20):
        got = evaluate(step, {**feeds, "step": np.array(n)})
        mask = evaluate(masks, {"count": np.array(n)})["mask"]
        weight = torch.tensor(w.tensor.array().copy(), requires_grad=True)
        scores = torch.tensor(feeds["x"] * mask * 2) @ weight
        loss = torch.nn.functional.cross_entropy(scores, torch.tensor(Y))
        (gradient,) = torch.autograd.grad(loss, (weight,))
        np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-5)
        np.testing.assert_allclose(got["w"], (weight - gradient).detach(), rtol=1e-4, atol=1e-5)
