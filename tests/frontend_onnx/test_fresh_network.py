"""A network that PyTorch has just made: its equal parameters are stored once, and each of them learns on its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from building import parse, runtime
from dlc_frontend_onnx.frontend import Onnx
from torch import nn

from dlc import Report, Source
from dlc.graph import Constant
from dlc.passes.autodiff import Autodiff
from dlc.passes.fold_constants import FoldConstants
from dlc.training.step.weights import parameters
from tests.training.nets import Training, relative_error, step_of
from tests.training.torch_networks import Network, Residual, torch_step


def make() -> nn.Module:
    return nn.Sequential(Residual(3, 4, 2), Residual(4, 4, 1), nn.Flatten(), nn.Linear(64, 10))


def batches(count: int, rng: np.random.Generator) -> Any:
    return rng.standard_normal((count, 3, 8, 8)).astype(np.float32), rng.integers(0, 10, count)


NETWORK = Network(make, batches, batch=6)


def fresh() -> tuple[nn.Module, onnx.ModelProto]:
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    module = make()
    return module, onnx.load_from_string(NETWORK.onnx(module))


def test_every_parameter_of_the_module_is_one_of_the_model() -> None:
    module, model = fresh()
    stored = {t.name for t in model.graph.initializer}
    wanted = {name: p for name, p in module.state_dict().items() if p.is_floating_point()}
    assert sum(n.op_type == "Identity" for n in model.graph.node) == len(wanted) - len(stored) > 15
    graph = parse(model)
    found = parameters(graph.outputs)
    assert found.keys() == wanted.keys()
    for name, op in found.items():
        assert isinstance(op, Constant)
        np.testing.assert_array_equal(op.tensor.array(), wanted[name].numpy())
    folded = FoldConstants().run(graph, Report())
    stored_values = Counter(op.tensor.digest for op in folded.ops if isinstance(op, Constant))
    assert max(stored_values.values()) == 1  # at inference what is equal is one again


def test_each_learns_on_its_own_and_the_file_that_is_written_has_them() -> None:
    module, model = fresh()
    training = Training(step_of(parse(model), "optimizer=sgd{lr=0.1 momentum=0.9}"))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    data = NETWORK.data(4)
    for x, y in data:
        assert abs(training(x, y) - torch_step(module, optimizer, x, y)) < 1e-4
    state = {name: value.numpy() for name, value in module.state_dict().items() if value.is_floating_point()}
    for name, value in state.items():
        if not name.endswith("running_var"):  # which in PyTorch follows the unbiased variance
            assert relative_error(training.held[name], value) < 1e-4, name
    for kind in ("weight", "bias", "running_mean", "running_var"):
        norms = [training.held[name].tobytes() for name in state if "norm" in name and name.endswith(f".{kind}")]
        assert len(set(norms)) == len(norms) >= 4

    source = Source(data=model.SerializeToString(), label="fresh.onnx")
    trained = {name: training.held[name] for name in state}
    frontend = Onnx()
    written = onnx.load_from_string(frontend.filled(frontend.template(source, tuple(trained)), trained))
    assert {t.name for t in written.graph.initializer} == state.keys()
    assert [n.op_type for n in written.graph.node] == [n.op_type for n in model.graph.node if n.op_type != "Identity"]
    module.load_state_dict({k: torch.tensor(v) for k, v in trained.items()}, strict=False)
    x, _ = NETWORK.data(1, seed=9)[0]
    want = module.eval()(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(runtime(written, ["scores"], {"x": x})[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("option", ["", " momentum=0.5"])
def test_each_layer_has_the_momentum_of_its_module(option: str) -> None:
    module, _ = fresh()
    untyped: Any = module
    norms = {name: part for name, part in untyped.named_modules() if isinstance(part, nn.BatchNorm2d)}
    for k, part in enumerate(norms.values()):
        part.momentum = 0.5 if option else 0.1 + 0.2 * k
    model = onnx.load_from_string(NETWORK.onnx(module))
    training = Training(step_of(parse(model), f"optimizer=sgd{{lr=0.1}}{option}"))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for x, y in NETWORK.data(2):
        training(x, y)
        torch_step(module, optimizer, x, y)
    for name, part in norms.items():
        assert part.running_mean is not None
        assert relative_error(training.held[f"{name}.running_mean"], part.running_mean.numpy()) < 1e-4


@pytest.mark.parametrize("momentum", [7.0, -0.5, float("nan"), float("inf")])
def test_a_momentum_that_is_none_keeps_statistics_from_moving(momentum: float) -> None:
    _, model = fresh()
    node = next(n for n in model.graph.node if n.op_type == "BatchNormalization")
    next(a for a in node.attribute if a.name == "momentum").f = momentum
    report = Report()
    step = Autodiff().run(parse(model), report)
    assert sum(i.name.endswith("running_mean") for i in step.inputs) == 4
    assert "4 use the statistics of the batch, 1 keep the stored ones" in "".join(report.notes)
