"""`Program`: all that a `.s2t` file holds, as values. Every other module of the plugin reads or makes parts of it.

Instructions name tensors by number; a tensor is a dense row-major view into a storage; a storage is a range of bytes of
the device's memory with a lifetime. Geometries and hyper-parameters are tables that instructions point into.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from dlc_backend_s2train.codes import NO_FLAGS, Arena, Element, Flag, Role, Slot, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode


@dataclass(frozen=True)
class Storage:
    """`size` bytes at `address`, in use from instruction `begin` to before `end`, numbers in `Program.instructions`."""

    arena: Arena
    address: int
    size: int
    begin: int
    end: int


@dataclass(frozen=True)
class Tensor:
    """A dense row-major view of a storage."""

    name: str
    storage: int
    """Number in `Program.storages`."""
    shape: tuple[int, ...]
    element: Element
    role: Role
    offset: int = 0
    """Bytes from the storage's begin."""

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes, the last one filled up with zero bits."""
        return (self.count * self.element.bits + 7) // 8


@dataclass(frozen=True)
class Geometry:
    """Shapes of one operator, forward: x[n, ci, hi, wi], w[co, ci / groups, kh, kw], y[n, co, ho, wo].

    For linear layers hi, wi, ho, wo, kh and kw are 1. Pads may be negative: rows or columns that are left out.
    ho and wo are those of the convolution, before the post-processing unit pools.
    """

    n: int
    ci: int
    co: int
    hi: int = 1
    wi: int = 1
    ho: int = 1
    wo: int = 1
    kh: int = 1
    kw: int = 1
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Top, left, bottom, right."""
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    pool: tuple[int, int, int] = (0, 0, 0)
    """Window, stride and padding of a pool; zeros: none."""
    channels: tuple[int, int] = (0, 0)
    """First input channel and the one behind the last that this instruction reads; (0, 0): all."""
    samples: tuple[int, int] = (0, 0)
    """The same of samples."""


LOSS_SCALES: Final = tuple(2.0**k for k in range(25))
"""Scales that a host may change to one another: powers of two, which change nothing but the range of gradients."""


@dataclass(frozen=True)
class Hyper:
    """Numbers of one instruction that are no shapes."""

    rate: float = 0.0
    momentum: float = 0.0
    decay: float = 0.0
    """Weight decay: g + decay·w."""
    scale: float = 1.0
    """Loss scale: what gradients in memory are multiplied by."""
    threshold: float = 0.0
    """Gradients below are pruned stochastically; 0: none."""
    keep: float = 1.0
    """Probability that dropout keeps an element."""
    epsilon: float = 0.0
    """Of a batch normalisation in training mode; running statistics move by `momentum`."""
    seed: int = 0
    nesterov: bool = False
    growth: int = 0
    """Runs without overflow after which the host doubles the loss scale; 0: the scale is fixed."""


@dataclass(frozen=True)
class Instruction:
    """One coarse-grained instruction: an operator with all stages that were absorbed into it."""

    opcode: Opcode
    stage: Stage = Stage.FORWARD
    flags: Flag = NO_FLAGS
    splitting: Splitting = Splitting.FIRST | Splitting.LAST
    geometry: int | None = None
    """Number in `Program.geometries`."""
    hyper: int | None = None
    """Number in `Program.hypers`."""
    operands: Mapping[Slot, int] = field(default_factory=lambda: MappingProxyType[Slot, int]({}))
    """Numbers in `Program.tensors`; absent slots are not used."""
    wait: int = 0
    signal: int = 0
    cores: int = 0xFF
    """One bit per core that takes part."""
    function: int | None = None
    """Number in `Program.functions`, of a HOST instruction."""

    @property
    def product(self) -> Stage:
        """What the array computes: to it, a gradient that is applied at once is one like others."""
        fused = self.stage is Stage.WEIGHT_UPDATE and self.opcode in (Opcode.CONV, Opcode.LINEAR)
        return Stage.WEIGHT_GRADIENT if fused else self.stage

    @property
    def updates(self) -> bool:
        """Whether it moves weights, `dst0`: by a gradient in memory, or by one that it computes."""
        return self.opcode is Opcode.UPDATE or self.product is not self.stage


@dataclass(frozen=True)
class Function:
    """What the host computes for the device: a graph of ops, on tensors of the device's memory."""

    text: str
    """The graph as `.dlc` text; its inputs and outputs are those tensors, in order."""
    reads: tuple[int, ...] = ()
    """Numbers in `Program.tensors`."""
    writes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A function of the program: instructions `begin` to before `end`, and what the host gives and gets."""

    name: str
    """`step`, `predict`, `evaluate`."""
    begin: int
    end: int
    inputs: tuple[tuple[str, int], ...] = ()
    """(name in the model, tensor)."""
    labels: tuple[tuple[str, int], ...] = ()
    outputs: tuple[tuple[str, int], ...] = ()
    """`loss` among them, where there is one."""


@dataclass(frozen=True)
class Target:
    """The machine that a program is for; the defaults are S2Train's."""

    cores: int = 8
    columns: int = 8
    rows: int = 4
    lanes: int = 16
    weight_bytes: int = 8192
    """Weight memory of a column."""


@dataclass(frozen=True)
class Numbered:
    """In words of version 1, `number` stands for `tensor` from instruction `begin` to before `end`."""

    tensor: int
    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class Setup:
    """What the registers hold while an instruction runs, the same in all columns."""

    csr: int = 0
    """Of every processing element: bits 0 and 1 the stride, 2 to 5 the kernel (one of 1x1, 3x3, 16x16), 6 and 7 the
    mode (0 fully connected, 1 convolution, 2 convolution with a mask), 8 to 13 the accumulators that count."""
    norm_config: int = 0
    pool_config: int = 0
    resets: int = 0
    """A bit for each unit of `device.registers.RESETS`, in their order, that is reset before."""
    norms: int = 0
    """A bit for each of `device.registers.NORMS` that the host reads from memory and writes to registers before."""


@dataclass(frozen=True)
class Program:
    """A whole binary."""

    tensors: tuple[Tensor, ...]
    storages: tuple[Storage, ...]
    geometries: tuple[Geometry, ...]
    hypers: tuple[Hyper, ...]
    instructions: tuple[Instruction, ...]
    entries: tuple[Entry, ...]
    weights: Mapping[int, bytes] = field(default_factory=lambda: MappingProxyType[int, bytes]({}))
    """Storage → what it holds at first; other storages of the arena `weights` begin with zeros."""
    frames: bytes = b""
    """The link stream, when it was asked for."""
    target: Target = Target()
    meta: Mapping[str, str] = field(default_factory=lambda: MappingProxyType[str, str]({}))
    """Provenance: model, versions, spec texts, figures of the planner."""
    legacy: tuple[bytes, ...] = ()
    """Words of version 1: one for each instruction that it has (`v1.correspondence`), in order; or none at all."""
    numbering: tuple[Numbered, ...] = ()
    """What the words' numbers of tensors stand for, by begin."""
    functions: tuple[Function, ...] = ()
    """What HOST instructions compute."""
    setups: tuple[Setup, ...] = ()
    """What the registers of the array hold for each instruction, as `device.registers.setup_of` has it; or none."""
