"""Ten steps on scikit-learn's digits: the simulated device's losses follow those of PyTorch in single precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.simulate import Machine
from torch import nn

import dlc
from dlc.cli.frame import run
from dlc.types import Array
from tests.backend_s2train.networks import Blocks
from tests.backend_s2train.torch_steps import Device, bound, relative, rounded, step_of
from tests.training.torch_networks import CLASSES, Batch, Network, loss_of
from tests.training.torch_optimizers import torch_optimizer

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_train.npz"
STEPS = 10
APART = 0.02
"""Of a loss, relative."""


@cache
def pictures() -> tuple[Array, Array]:
    """1,437 pictures of 8 x 8 with values from -2 to 2, which fp16 holds exactly, and what they show."""
    data = np.load(DIGITS)
    return data["x"].astype(np.float32) / 4 - 2, data["y"].astype(np.int64)


def digits(batch: int, rng: np.random.Generator) -> Batch:
    """Some of them."""
    x, y = pictures()
    rows = rng.integers(0, len(x), batch)
    return x[rows], y[rows]


def mlp() -> nn.Module:
    """64 → 64 → 32 → 10, without a bias at the end."""
    layers = nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(32, CLASSES, bias=False))


def lenet() -> nn.Module:
    """LeNet-5 for 8 x 8 pictures: its 5 x 5 kernels are sums of 3 x 3 ones on the array."""
    first = nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*first, *second, nn.Linear(64, 84), nn.ReLU(), nn.Linear(84, CLASSES))


def begun(make: Callable[[], nn.Module]) -> Network:
    """The network with weights that keep the size of what passes through (He et al. 2015), so that it learns soon."""

    def module() -> nn.Module:
        made = make()
        for part in made.modules():
            if isinstance(part, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(part.weight)
        return made

    return Network(module, digits, 64)


NETWORKS = {
    "mlp": (begun(mlp), "sgd{lr=0.05 momentum=0.9}"),
    "lenet": (begun(lenet), "sgd{lr=0.02 momentum=0.9}"),
    "resnet": (begun(lambda: Blocks(1)), "sgd{lr=0.02 momentum=0.9 weight-decay=0.001}"),
}


def built(network: Network, optimizer: str, folder: Path, *flags: str) -> Any:
    """The training program that `dlc build` makes of a network, loaded."""
    source, out = folder / "model.onnx", folder / "out"
    source.write_bytes(network.onnx(network.module()))
    line = ["build", str(source), "--target", "s2train", "--train", f"optimizer={optimizer}", "-o", str(out)]
    assert run([*line, *flags, "-q", "--cache", "off"]) == 0
    return dlc.load(out)


def losses(network: Network, optimizer: str, by_batch: bool = False) -> list[float]:
    """Of PyTorch in single precision, whose parameters begin rounded to fp16."""
    module = rounded(network.module()).float().train(by_batch)
    for name, value in module.named_parameters():
        value.requires_grad_(by_batch or ("norm" not in name and "past.1" not in name))
    moves = torch_optimizer(optimizer, module)
    found: list[float] = []
    for x, y in network.data(STEPS):
        loss = loss_of(module(torch.tensor(x)), torch.tensor(y))
        moves.zero_grad()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        moves.step()  # pyright: ignore[reportUnknownMemberType]
        found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_fall_as_pytorchs_do(name: str, tmp_path: Path) -> None:
    network, optimizer = NETWORKS[name]
    program = built(network, optimizer, tmp_path)
    ours = [program.train_step(x, y) for x, y in network.data(STEPS)]
    theirs = losses(network, optimizer)
    np.testing.assert_allclose(ours, theirs, rtol=APART)
    assert ours[-1] < 0.6 * ours[0]
    # What was learnt predicts, and means the same to PyTorch.
    learnt = rounded(network.module())
    trained = {name: torch.tensor(value).double() for name, value in program.parameters().items()}
    assert trained.keys() <= learnt.state_dict().keys()
    learnt.load_state_dict(trained, strict=False)
    ((x, _),) = network.data(1, seed=6)
    want = learnt(torch.tensor(x).double()).detach().numpy()
    assert relative(program(x=x)["scores"], want) < bound(8)


def test_norms_by_their_batch() -> None:
    """Statistics of each batch, trained scales and shifts."""
    network, optimizer = NETWORKS["resnet"][0], "sgd{lr=0.05 momentum=0.9}"
    program = step_of(network, optimizer, by_batch=True)
    assert list(verify(program)) == []
    device = Device(program, Machine(program, checked=True))
    ours = [device.step(x, y) for x, y in network.data(STEPS)]
    np.testing.assert_allclose(ours, losses(network, optimizer, by_batch=True), rtol=APART)
    assert ours[-1] < 0.6 * ours[0]
