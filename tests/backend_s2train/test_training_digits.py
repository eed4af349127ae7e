"""Ten steps on scikit-learn's digits: each is PyTorch's step from the parameters that the device has then.

Two runs of ten steps are not compared with each other: at these rates the losses differ by up to 3 % between PyTorch on
processors with other vectors, since libraries sum in another order, which training amplifies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.checks import verify
from torch import nn

import dlc
from dlc.base.types import Array
from dlc.cli.frame import run
from tests.backend_s2train.networks import Blocks
from tests.backend_s2train.test_training_steps import judge
from tests.backend_s2train.torch_steps import bound, follow, relative, rounded, step_of
from tests.training.torch_networks import CLASSES, Batch, Network, loss_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_train.npz"
STEPS = 10
STORES = 8
"""In fp16, one after the other, on the longest way to the scores."""


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


def exact_loss(module: nn.Module, parameters: Mapping[str, Array], batch: Batch) -> tuple[float, float]:
    """PyTorch's loss of a batch in double precision, with the device's parameters; and how far it may be off.

    That is √2·‖error of the scores‖/√n, since the gradient of a cross-entropy by a sample's scores is at most √2 long.
    """
    module.load_state_dict({n: torch.tensor(v).double() for n, v in parameters.items()}, strict=False)
    with torch.no_grad():
        scores = module(torch.tensor(batch[0]).double())
        loss = float(loss_of(scores, torch.tensor(batch[1])))
    return loss, math.sqrt(2 / len(batch[1])) * bound(STORES) * float(scores.norm())


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_fall_as_pytorchs_do(name: str, tmp_path: Path) -> None:
    network, optimizer = NETWORKS[name]
    program, module = built(network, optimizer, tmp_path), rounded(network.module())
    assert program.parameters().keys() <= module.state_dict().keys()
    ours: list[float] = []
    for x, y in network.data(STEPS):
        wanted, off = exact_loss(module, program.parameters(), (x, y))
        ours.append(program.train_step(x, y))
        assert abs(ours[-1] - wanted) < off
    assert ours[-1] < 0.6 * ours[0]
    # What was learnt predicts, and means the same to PyTorch.
    ((x, y),) = network.data(1, seed=6)
    exact_loss(module, program.parameters(), (x, y))
    want = module(torch.tensor(x).double()).detach().numpy()
    assert relative(program(x=x)["scores"], want) < bound(STORES)


@pytest.mark.parametrize("name", [*NETWORKS, "norms by their batch"])
def test_every_step_is_that_of_pytorch(name: str) -> None:
    """Also with statistics of each batch, trained scales and shifts."""
    by_batch = name not in NETWORKS
    network, optimizer = (NETWORKS["resnet"][0], "sgd{lr=0.05 momentum=0.9}") if by_batch else NETWORKS[name]
    program = step_of(network, optimizer, by_batch=by_batch)
    assert list(verify(program)) == []
    steps = list(follow(program, network, optimizer, STEPS, by_batch))
    # Statistics of a batch amplify rounding in the gradients of norms; what they do to the parameters is bounded.
    assert [judge(replace(s, gradients={}) if by_batch else s) for s in steps] == [[]] * STEPS
    assert steps[-1].loss[0] < 0.6 * steps[0].loss[0]
