"""One training step in the simulator beside PyTorch in double precision, and how far they may be apart.

The device works on fp16: weights, inputs and the parameters of norms are rounded once, and both sides begin with the
rounded ones. From there every instruction sums in fp32 and stores in fp16, so each stored tensor is off by another
2⁻¹¹ of its size (round to nearest: half a unit in the last place, of 11 bits). A tensor behind d stores in a row is
compared by its norm:

    ‖device - double‖ ≤ bound(d)·‖double‖,    bound(d) = d·(2⁻¹¹ + 2⁻²⁴·√n)

for sums of up to n products: the errors of all stores on the longest way add up, as if they all had one direction, and
none is amplified against the signal that it came with. That holds since layers amplify errors, which are spread over
all directions, no more than what passes through them; errors that are independent, as rounding errors mostly are, add
up to √d instead of d (Higham and Mary 2019), which leaves room. d is counted in the program that runs (`stores`), and
no network has a constant of its own.

Decisions are another matter: relu next to 0 and the larger of two almost equal values go the one way or the other, and
each changes gradients by far more than rounding. So the double-precision side takes the decisions of the device out of
its memory, relu(x) → x·mask, max_pool(x) → x[pointers], and how it would have decided is judged apart: where the two
differ, x must have been within its error of 0, that is ‖x where they differ‖ ≤ bound(d)·‖x‖, and of all elements no
more than the part bound(d) may differ (of normally distributed ones it is bound(d)/π).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dlc_backend_s2train
import numpy as np
import torch
from dlc_backend_s2train.codes import Flag, Role
from dlc_backend_s2train.container import read
from dlc_backend_s2train.decompose.blocks import assembled, blocks_of
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Instruction, Program
from dlc_backend_s2train.simulator.machine import Machine
from torch import nn

from dlc.base.types import Array
from dlc.cli.frame import run
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.stores import products, stores_before
from tests.backend_s2train.torch_decisions import Decided, Taken
from tests.training.torch_networks import Batch, Network, loss_of
from tests.training.torch_optimizers import torch_optimizer

ROUNDING = 2.0**-11
"""Of fp16, relative."""
SUMMING = 2.0**-24
"""Of fp32, relative."""
SGD = "sgd{lr=1.0 momentum=0.9 weight-decay=0.001}"
"""Steps so large that weights move by far more than their rounding."""
_DEFAULT = "sgd{lr=0.01 momentum=0.9}"


def bound(stores: int, products: int = 1) -> float:
    """What a tensor behind so many stores may be off, relative to its norm; see above."""
    return math.sqrt(stores) * (ROUNDING + SUMMING * math.sqrt(products))


def pipeline(optimizer: str = SGD, select: str = "", order: str = "", by_batch: bool = False) -> str:
    """The plugin's pipeline of a training step with another optimizer, and options for two of its passes.

    With `by_batch` norms follow their batch, and are trained.
    """
    text = dlc_backend_s2train.dlc_pipelines()["s2train-step"]
    changes = {
        _DEFAULT: optimizer,
        "s2-select": f"s2-select{{{select}}}",
        ",order": f",order{{{order}}}",
        " wrt=!norms stored-norms=yes": "" if by_batch else " wrt=!norms stored-norms=yes",
    }
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text.replace("{}", "")


@functools.cache
def step_of(
    network: Network,
    optimizer: str = SGD,
    select: str = "",
    order: str = "",
    by_batch: bool = False,
    target: str = "s2train",
) -> Program:
    """What `dlc build` makes of a network's training step; the module is `network.module()`."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "model.onnx", Path(folder) / "out"
        source.write_bytes(network.onnx(network.module()))
        line = ["build", str(source), "--target", target, "-o", str(out)]
        with contextlib.redirect_stdout(io.StringIO()):
            code = run([*line, "-p", pipeline(optimizer, select, order, by_batch), "-q", "--cache", "off"])
        assert code == 0
        (file,) = out.glob("*.s2t")
        return read(memoryview(file.read_bytes()), file.name)


def rounded(module: nn.Module) -> nn.Module:
    """A copy in double precision that holds what the device does: parameters, and norms by their 1/std, in fp16."""
    made = copy.deepcopy(module).double().eval()
    with torch.no_grad():
        for value in made.parameters():
            value.copy_(_half(value))
        for norm in made.modules():
            if isinstance(norm, nn.BatchNorm2d):
                assert norm.running_mean is not None and norm.running_var is not None
                norm.running_mean.copy_(_half(norm.running_mean))
                norm.running_var.copy_(_half((norm.running_var + norm.eps).rsqrt()).pow(-2) - norm.eps)
    return made


def _half(value: torch.Tensor) -> torch.Tensor:
    return value.half().double()


@dataclass
class Device:
    """A machine whose decisions and gradients are noted while it runs."""

    program: Program
    machine: Machine
    masks: dict[int, Array] = field(default_factory=dict[int, Array])
    """Tensor → bits of a relu, in the order of the program."""
    pointers: dict[int, Array] = field(default_factory=dict[int, Array])
    gradients: dict[str, Array] = field(default_factory=dict[str, Array])
    """Weight → its gradient, without the loss scale. One that nothing stored is derived from how the velocity changed;
    without a velocity it is not there."""
    updated: dict[str, int] = field(default_factory=dict[str, int])
    """Weight, or block of one → the instruction that updates it."""
    decided: dict[int, int] = field(default_factory=dict[int, int])
    """Mask or pointers → the instruction that wrote them."""
    _begin: dict[int, tuple[Array, Array | float]] = field(default_factory=dict[int, "tuple[Array, Array | float]"])
    """Instruction → the weight that it will update, and its velocity."""

    def step(self, x: Array, y: Array) -> float:
        """One step; the loss before it."""
        (entry,) = (entry for entry in self.program.entries if entry.name == "step")
        (data,), (label,) = entry.inputs, entry.labels
        self._begin = {n: self._state(n) for n, i in enumerate(self.program.instructions) if i.updates}
        found = self.machine.run(entry.name, {data[0]: x, label[0]: y}, self._watch)
        self.gradients = by_parameter(self.gradients)
        return float(found["loss"].reshape(()))

    def forget(self) -> None:
        """Nothing noted, as before the first step; weights and states stay."""
        for noted in (self.masks, self.pointers, self.gradients, self.updated, self.decided):
            noted.clear()

    def weights(self) -> dict[str, Array]:
        """What is trained, as it is now."""
        instructions = {name: self.program.instructions[number] for name, number in self.updated.items()}
        return by_parameter({name: self.machine.read(i.operands["dst0"]) for name, i in instructions.items()})

    def _state(self, number: int) -> tuple[Array, Array | float]:
        operands = self.program.instructions[number].operands
        velocity = self.machine.read(operands["aux"]).astype(np.float64) if "aux" in operands else 0.0
        return self.machine.read(operands["dst1" if "dst1" in operands else "dst0"]).astype(np.float64), velocity

    def _watch(self, number: int) -> None:
        instruction = self.program.instructions[number]
        operands = instruction.operands
        kinds = (
            (Flag.MASK_WRITE, operands.get("mask"), self.masks),
            (Flag.POINTER_WRITE, operands.get("ptr"), self.pointers),
        )
        for flag, tensor, noted in kinds:
            if flag in instruction.flags and tensor is not None:
                noted[tensor] = self.machine.read(tensor)
                self.decided[tensor] = number
        if instruction.updates:
            assert instruction.hyper is not None
            h = self.program.hypers[instruction.hyper]
            name = self.program.tensors[operands["dst0"]].name
            if instruction.opcode is Opcode.UPDATE:
                self.gradients[name] = self.machine.read(operands["src0"]).astype(np.float64) / h.scale
            elif "aux" in operands:
                weight, velocity = self._begin[number]
                self.gradients[name] = self.machine.read(operands["aux"]) - h.momentum * velocity - h.decay * weight
            self.updated[name] = number


def parameters_in(tensor: str, rank: int = 2) -> tuple[str, ...]:
    """PyTorch's names of what the device keeps as one tensor: scale and shift of a batch norm are its two rows."""
    whole, _ = blocks_of(tensor) or (tensor, None)
    of_a_norm = rank == 2 and ("norm" in whole or "past.1" in whole)
    return (whole, whole.removesuffix("weight") + "bias") if of_a_norm else (whole,)


def by_parameter(values: dict[str, Array]) -> dict[str, Array]:
    """Tensors of the device, blocks of kernels among them, as PyTorch has and names them."""
    found: dict[str, Array] = {}
    for tensor, value in assembled(values).items():
        names = parameters_in(tensor, value.ndim)
        found |= zip(names, value, strict=True) if len(names) > 1 else {tensor: value}
    return found


@dataclass
class Compared:
    """One step on both sides."""

    loss: tuple[float, float]
    """Of the device, of PyTorch in double precision."""
    loss_bound: float
    """√2·‖error of the scores‖/√n: the gradient of a cross-entropy by a sample's scores is no longer than √2."""
    gradients: dict[str, tuple[float, float]]
    """Weight → error relative to its norm, and the bound."""
    weights: dict[str, tuple[float, float]]
    """The same of weights after the step."""
    moved: dict[str, float]
    """‖new - old‖ / ‖new‖ in double precision."""
    decisions: list[tuple[Taken, float]]
    """With the bound."""


def compare(program: Program, network: Network, optimizer: str = SGD) -> Compared:
    """One step of a program and of the network's module, which it was built from."""
    return next(follow(program, network, optimizer, 1))


def follow(
    program: Program, network: Network, optimizer: str, steps: int, by_batch: bool = False
) -> Iterator[Compared]:
    """Steps in a row; PyTorch begins each with the parameters that the device has then, so that no error grows.

    Trajectories of their own drift apart as fast as the network amplifies a difference, on PyTorch's side already by
    the order in which a processor's library sums up; what a single step does is bounded everywhere.
    """
    device = Device(program, machine_of(program, checked=True))
    exact = rounded(network.module()).train(by_batch)
    parameters = dict(exact.named_parameters())
    moves = torch_optimizer(optimizer, exact)
    for x, y in network.data(steps):
        found = _step(device, exact, moves, (x.astype(np.float16).astype(np.float32), y))
        with torch.no_grad():
            for name, value in device.weights().items():
                parameters[name].copy_(torch.tensor(value.astype(np.float64)).reshape(parameters[name].shape))
        yield found


def _step(device: Device, exact: nn.Module, moves: torch.optim.Optimizer, batch: Batch) -> Compared:
    """One step from the same parameters on both sides."""
    program, (x, y) = device.program, batch
    device.forget()
    loss = device.step(x, y)
    after = device.weights()
    before = {name: value.detach().numpy().copy() for name, value in exact.named_parameters()}
    for name, value in exact.named_parameters():
        value.requires_grad_(name in after)
    moves.zero_grad()
    with Decided(list(device.masks.values()), list(device.pointers.values())) as decided:
        scores = exact(torch.tensor(x).double())
        wanted = loss_of(scores, torch.tensor(y))
    assert (len(decided.relus), len(decided.pools)) == (len(device.masks), len(device.pointers))
    wanted.backward()  # pyright: ignore[reportUnknownMemberType]
    moves.step()  # pyright: ignore[reportUnknownMemberType]
    counts, longest = stores_before(program), products(program)
    (end,) = (n for n, i in enumerate(program.instructions) if _gives_loss(program, i))
    score_error = bound(max(counts[end], 1), longest) * float(np.linalg.norm(scores.detach().numpy()))
    found = Compared((loss, float(wanted.detach())), math.sqrt(2 / len(y)) * score_error, {}, {}, {}, [])
    for name, value in exact.named_parameters():
        if value.grad is None:
            continue
        ways = [counts[number] for tensor, number in device.updated.items() if name in parameters_in(tensor)]
        limit, new = bound(max(ways), longest), value.detach().numpy()
        if name in device.gradients:
            found.gradients[name] = relative(device.gradients[name], value.grad.numpy()), limit
        moved = relative(before[name], new)
        found.moved[name] = moved
        found.weights[name] = relative(after[name], new), ROUNDING + limit * moved
    for tensors, taken in ((device.masks, decided.relus), (device.pointers, decided.pools)):
        for tensor, each in zip(tensors, taken, strict=True):
            found.decisions.append((each, bound(counts[device.decided[tensor]] + 1, longest)))
    return found


def _gives_loss(program: Program, instruction: Instruction) -> bool:
    return any(program.tensors[tensor].role is Role.LOSS for tensor in instruction.operands.values())


def relative(got: Array, want: Array) -> float:
    """‖got - want‖ / ‖want‖."""
    difference = float(np.linalg.norm(got.reshape(-1).astype(np.float64) - want.reshape(-1)))
    return difference / float(np.linalg.norm(want))
