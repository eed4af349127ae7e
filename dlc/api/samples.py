"""What a plugin is tested on: the hook `dlc_samples` gives it to `dlc plugins test`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc.api.source import Source

if TYPE_CHECKING:
    from dlc.base.types import Array
    from dlc.graph.graph import Graph
    from dlc.graph.op import Op
    from dlc.kernel.kernel import Kernel


def _no_arrays() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class OpSample:
    """An instance of an op, small enough to be interpreted point by point."""

    op: Op
    """With an `Input` for each operand, under a name of its own."""
    feeds: Mapping[str, Array] = field(default_factory=_no_arrays)
    """Values by the inputs' names, where not any values will do. Others are drawn: normal floats, integers 0 to 3."""
    value: Array | None = None
    """What it has to give, by another implementation or by hand; None where nobody knows. Needs all feeds."""


@dataclass(frozen=True)
class ModelSample:
    """A model that the plugin reads, as a file would be."""

    source: Source
    """`Source(data=…, label="net.mlp")`: the suffix of the label chooses the frontend."""
    feeds: Mapping[str, Array] = field(default_factory=_no_arrays)
    """Values by the names of the model's inputs."""
    outputs: Mapping[str, Array] = field(default_factory=_no_arrays)
    """What it has to give for them, by another implementation or by hand."""


@dataclass(frozen=True)
class StepsSample:
    """What an optimizer makes of a weight, step by step, by another implementation or by hand."""

    spec: str
    """The optimizer with its options: "lion{lr=0.1}"."""
    weight: Array
    """Before the first step."""
    gradients: tuple[Array, ...]
    """Of each step, of the weight's shape."""
    weights: tuple[Array, ...]
    """After each step."""


@dataclass(frozen=True)
class Samples:
    """All that a plugin is tested on beside what the checks draw themselves."""

    ops: tuple[OpSample, ...] = ()
    """At least one of each op of `dlc_ops`; those of op packs have their examples."""
    graphs: tuple[Graph, ...] = ()
    """Graphs of ops in which each pass and each rule of the plugin has something to do."""
    models: tuple[ModelSample, ...] = ()
    """At least one that each frontend of the plugin reads, and ONNX models with each operator that has a rule."""
    kernels: tuple[Kernel, ...] = ()
    """Kernels to which each family of schedules applies; `dlc.schedules.parse_kernel` reads them from text."""
    steps: tuple[StepsSample, ...] = ()
    """At least one for each optimizer of the plugin."""
    specs: tuple[str, ...] = ()
    """Further options that are tested, as "find-swish{beta=no}"; by default each thing is, with its defaults."""
