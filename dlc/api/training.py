"""`Bundle`: the compiled functions of a training program, and the memory that they share.

    predict      data, parameters                         → the model's outputs
    evaluate     data, labels, parameters                 → loss, the model's outputs
    gradients    data, labels, parameters, step           → loss, gradients, running statistics, step + 1
    update       parameters, gradients, state             → parameters, state
    step         data, labels, parameters, state          → loss, parameters, state

A program has the first two, and either `gradients` and `update`, with all gradients in memory between them, or `step`,
in which each weight is updated as soon as its gradient is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from dlc.api.function_names import FunctionName
from dlc.api.plan import Plan
from dlc.api.program import Port
from dlc.base.allowed import Allowed, classes, everywhere
from dlc.base.types import Type
from dlc.graph.tensor import Tensor

RegionName = Literal["parameters", "state", "gradients"]
ALIGN: Final = 64
"""Bytes that the offset of every tensor in a region is a multiple of."""


@dataclass(frozen=True)
class Place:
    """A tensor in memory that the caller of a training program holds."""

    region: RegionName
    name: str
    """As the model's author wrote it; WEIGHT.KEY for what belongs to a weight, such as WEIGHT.gradient."""
    type: Type
    offset: int
    """Bytes from the start of the region, a multiple of `ALIGN`."""
    initial: Tensor | bool | int | float | None = None
    """What it starts with: a tensor, or one value for every element; None: zeros."""
    trained: bool = False
    """Whether it is a weight that gradients move; running statistics are parameters that are not."""


@dataclass(frozen=True)
class Function:
    """One function of a program, and where what it reads and writes lives."""

    plan: Plan
    inputs: tuple[Place | None, ...]
    """For each input of the plan its place, None for arguments of a call: data and labels."""
    outputs: tuple[Place | None, ...]
    """For each output of the plan its place, None for results of a call: loss and the model's outputs."""


@dataclass(frozen=True)
class Classes:
    """Which integers are labels."""

    count: int
    """0 … count - 1."""
    ignore: int | None = None
    """One more, of rows that do not count."""

    @property
    def allowed(self) -> Allowed | None:
        """The same as what the elements of an input may be; None where there is nothing that they may be."""
        found = classes(self.count, self.ignore)
        return everywhere(found, "label") if found else None


def _nothing() -> Mapping[str, int | str]:
    return MappingProxyType[str, int | str]({})


@dataclass(frozen=True, eq=False)
class Bundle:
    """A training program as a backend gets it."""

    kind: ClassVar[str] = "bundle"
    functions: Mapping[FunctionName, Function]
    regions: Mapping[RegionName, tuple[Place, ...]]
    """Every region with its tensors in order; `gradients` is empty where a program has the function `step`."""
    label: str
    """Name of the input that takes the labels."""
    classes: Classes | None = None
    """What labels may be, where the loss says so; None: any value of their type."""
    accumulate: int = 1
    """Calls of `gradients`, which then adds, for one of `update`: the first of them begins anew by itself."""
    template: tuple[str, bytes] = ("", b"")
    """(file suffix, content): the model without the values of its parameters, for `Frontend.filled`."""
    facts: Mapping[str, int | str] = field(default_factory=_nothing)
    """What the manifest tells of the training: loss, optimizer."""

    def size(self, region: RegionName) -> int:
        """Bytes of a region, a multiple of `ALIGN`."""
        return max((-(-(p.offset + p.type.nbytes) // ALIGN) * ALIGN for p in self.regions[region]), default=0)

    @property
    def arguments(self) -> tuple[Port, ...]:
        """What a training step is called with: the model's inputs, then the labels."""
        first = self.functions["evaluate"]
        return tuple(p for p, place in zip(first.plan.signature.inputs, first.inputs, strict=True) if place is None)


def digest_of(parts: Mapping[str, str]) -> str:
    """The digest of a bundle that is made of parts with these digests."""
    h = sha256()
    for name, digest in sorted(parts.items()):
        h.update(f"{name}\0{digest}\0".encode())
    return h.hexdigest()[:32]
