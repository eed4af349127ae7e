"""Whole training steps, from ONNX to the simulator, of networks whose kernels the array does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.decompose.blocks import blocks_of, illegal
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Program
from torch import nn

import dlc
from dlc.cli.frame import run
from tests.backend_s2train.networks import S2_NETWORKS
from tests.backend_s2train.torch_steps import bound, compare, rounded, step_of
from tests.training.torch_networks import CLASSES, Network, images


def strange() -> nn.Module:
    """11 x 11 with stride 4, dilated 3 x 3, 1 x 7, 7 x 1, 7 x 7 with stride 2, 5 x 5 in groups."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 11, 4, 2), nn.ReLU()),
        *(nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.ReLU()),
        *(nn.Conv2d(8, 8, (1, 7), padding=(0, 3), bias=False), nn.Conv2d(8, 8, (7, 1), padding=(3, 0)), nn.ReLU()),
        *(nn.Conv2d(8, 8, 7, 2, 3), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2, groups=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32, CLASSES)),
    )


NETWORKS = {"lenet": S2_NETWORKS["lenet"], "strange": Network(strange, images(3, 35, 35), 4)}
BLOCKS = {
    "lenet": {"0.weight": 4, "3.weight": 4},
    "strange": {
        "0.weight": 16,
        "2.weight": 9,
        "4.weight": 3,
        "5.weight": 3,
        "7.weight": 9,
        "9.weight": 4,
    },
}
"""Weight → products that the array has."""


def counted(program: Program) -> dict[str, int]:
    """Weight → its blocks that are updated."""
    found: dict[str, int] = {}
    for instruction in program.instructions:
        name = program.tensors[instruction.operands.get("dst0", 0)].name
        if instruction.updates and (text := blocks_of(name)):
            found[text[0]] = found.get(text[0], 0) + 1
    return found


@pytest.mark.parametrize("name", list(NETWORKS))
def test_one_step_agrees_with_pytorch(name: str) -> None:
    network = NETWORKS[name]
    program = step_of(network)
    assert list(verify(program)) == []
    assert counted(program) == BLOCKS[name]
    found = compare(program, network)
    assert abs(found.loss[0] - found.loss[1]) <= found.loss_bound
    assert found.gradients.keys() == dict(network.module().named_parameters()).keys()
    for text in (found.gradients, found.weights):
        assert {name: error for name, error in text.items() if error[0] > error[1]} == {}
    assert all(taken.size <= limit for taken, limit in found.decisions)
    # The step is seen in the weights, not lost in their rounding.
    assert max(moved / found.weights[n][1] for n, moved in found.moved.items()) > 10


@pytest.mark.parametrize("name", list(NETWORKS))
def test_all_products_are_those_of_the_array(name: str) -> None:
    program = step_of(NETWORKS[name])
    stages: dict[Stage, int] = {}
    for instruction in program.instructions:
        if instruction.opcode is Opcode.CONV and "src1" in instruction.operands:
            assert instruction.geometry is not None
            assert illegal(program.geometries[instruction.geometry]) is None
            stages[instruction.stage] = stages.get(instruction.stage, 0) + 1
    several = BLOCKS[name].values()
    # The first layer needs no gradient of its data.
    assert stages == {
        Stage.FORWARD: sum(several),
        Stage.WEIGHT_UPDATE: sum(several),
        Stage.BACKWARD: sum(several) - BLOCKS[name]["0.weight"],
    }


def test_blocks_hold_the_weights_of_the_model() -> None:
    network = NETWORKS["strange"]
    program = step_of(network)
    weights = {name: value.detach().numpy().astype(np.float16) for name, value in network.module().named_parameters()}
    found = 0
    for tensor in program.tensors:
        if tensor.storage in program.weights and (text := blocks_of(tensor.name)) and text[0] in weights:
            part = weights[text[0]][:, :, text[1].rows.slice, text[1].columns.slice]
            assert program.weights[tensor.storage] == part.tobytes()
            found += 1
    assert found == sum(BLOCKS["strange"].values())


def test_trained_weights_are_read_as_a_whole(tmp_path: Path) -> None:
    """`step` and `predict` have the same blocks in memory; outside, nobody sees them."""
    network = NETWORKS["strange"]
    source, out = tmp_path / "model.onnx", tmp_path / "out"
    source.write_bytes(network.onnx(network.module()))
    line = ["build", str(source), "--target", "s2train", "--train", "optimizer=sgd{lr=0.5 momentum=0.9}"]
    assert run([*line, "-o", str(out), "-q", "--cache", "off"]) == 0
    program: Any = dlc.load(out)
    module = rounded(network.module())
    begun = {name: value.detach().numpy() for name, value in module.named_parameters()}
    held = program.parameters()
    assert held.keys() == begun.keys()
    for name, value in begun.items():
        np.testing.assert_array_equal(held[name], value)
    ((x, y),) = network.data(1)
    program.train_step(x, y)
    moved = program.parameters()
    with torch.no_grad():
        for name, value in module.named_parameters():
            assert (moved[name] != held[name]).any(), name
            value.copy_(torch.tensor(moved[name]))
        wanted = module(torch.tensor(x).half().double()).numpy()
    found = program(x)["scores"]
    assert np.linalg.norm(found - wanted) <= bound(8, 363) * np.linalg.norm(wanted)
