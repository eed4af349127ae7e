"""Dropout behind sums of blocks, against PyTorch with the same bits: `aux` is theirs there, not the sum's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train import instruction
from dlc_backend_s2train.codes import Flag, Slot, Splitting, Stage
from dlc_backend_s2train.decompose.blocks import assembled
from dlc_backend_s2train.decompose.s2_decompose import S2Decompose
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Program
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Mode

from dlc import Report
from dlc.base.types import Array
from dlc.graph import Constant, Graph, Op, Tensor
from dlc.ops.random import Dropout
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.selected import Model, program, select, training, unshared

F: Any = torch.nn.functional
N, SIZE, RATE = 4, 12, 0.25
RATIOS = (0.5, 0.25, 0.5)


def network() -> tuple[Model, Graph]:
    """5 x 5 and strided 7 x 7 kernels, a linear layer, dropout behind the relu of each; then scores."""
    m = Model()

    def dropped(x: Op, stream: int) -> Op:
        seed = Constant(Tensor.of(np.asarray(11, np.int64)))
        return m.note(Dropout(m.relu(x), seed, None, RATIOS[stream], stream), "dropout")

    x = dropped(m.conv(m.x(N, 2, SIZE, SIZE), 4, 5, bias=True), 0)
    x = dropped(m.conv(x, 4, 7, 2, bias=True), 1)
    return m, m.graph(m.linear(dropped(m.linear(m.flat(x), 16), 2), 5))


def step() -> tuple[Model, Program]:
    """One of training, every value in a place of its own."""
    m, graph = network()
    selected = select(training(graph, f"sgd{{lr={RATE}}}"))
    return m, unshared(program(S2Decompose().run(selected, Report())))


def kept(machine: Machine, slot: Slot, flag: Flag) -> list[Array]:
    """Bits that forward instructions wrote, in their order, each tensor once."""
    forward = [i for i in machine.program.instructions if i.stage is Stage.FORWARD and flag in i.flags]
    return [machine.read(n) for n in dict.fromkeys(i.operands[slot] for i in forward)]


def by_torch(m: Model, data: dict[str, Array], relu: list[Array], drop: list[Array]) -> tuple[float, dict[str, Array]]:
    """The loss and the weights behind a step in fp64, with the device's bits."""
    w = {name: torch.tensor(value.astype(np.float64), requires_grad=True) for name, value in m.weights.items()}
    stages = [torch.tensor(a / np.float64(1 - r) * b) for a, b, r in zip(drop, relu, RATIOS, strict=True)]
    x = torch.tensor(data["x"].astype(np.float64))
    x = F.conv2d(x, w["conv1.w"], w["conv1.b"], padding=2) * stages[0]
    x = F.conv2d(x, w["conv2.w"], w["conv2.b"], padding=3, stride=2) * stages[1]
    x = F.linear(x.flatten(1), w["linear1.w"], w["linear1.b"]) * stages[2].reshape(N, -1)
    loss = F.cross_entropy(F.linear(x, w["linear2.w"], w["linear2.b"]), torch.tensor(data["y"]))
    gradients = torch.autograd.grad(loss, list(w.values()))
    moved = {name: (v - RATE * g).detach().numpy() for (name, v), g in zip(w.items(), gradients, strict=True)}
    return float(loss.detach()), moved


@pytest.mark.parametrize("mode", ["fast", "bit-true"])
@pytest.mark.parametrize("counted", [1 << 16, 2 * SIZE * SIZE], ids=["whole batches", "two samples at a time"])
def test_a_step_agrees_with_torch(counted: int, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruction, "COUNTED", counted)
    m, made = step()
    units = [i for i in made.instructions if i.opcode is Opcode.ELTWISE and Flag.DROPOUT in i.flags]
    blocks = [i for i in made.instructions if Splitting.ACCUMULATE_OUT in i.splitting]
    # Each convolution twice, forward and backward, leaves the unit to an instruction of its own, or to two.
    assert len(units) >= (3 if counted > 1000 else 4) and len(blocks) >= 20
    machine = machine_of(made, mode, checked=True)
    for run in range(2):
        before = machine.snapshot()
        data: dict[str, Array] = {"x": halves(run, N, 2, SIZE, SIZE), "y": np.arange(N) + run}
        loss = machine.run("step", data)["loss"].item()
        relu, drop = kept(machine, "mask", Flag.MASK_WRITE), kept(machine, "aux", Flag.DROPOUT)
        assert [b.shape for b in relu] == [b.shape for b in drop] and len(drop) == 3
        expected, weights = by_torch(m, data, relu, drop)
        assert loss == pytest.approx(expected, rel=5e-3)
        names = {t.name: n for n, t in enumerate(made.tensors) if t.role.name in ("WEIGHT", "NORM")}
        found = assembled({name: machine.read(n) for name, n in names.items()})
        for name, value in weights.items():
            moved = np.abs(value - m.weights[name]).max()
            now = found[name][3] if found[name].ndim > value.ndim else found[name]
            assert moved > 1e-3
            assert np.abs(now - value).max() < 2e-3 + 0.02 * moved, name
        # The next run draws other bits, from the same weights.
        machine.restore(replace(before, runs={"step": run + 1}))
