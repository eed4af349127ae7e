"""What both doors make of a program of PyTorch: nodes that call ATen operators on values with names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dlc.base import types as t
from dlc.base.types import DType, Type

DTYPES: Final[Mapping[str, DType]] = {
    "uint8": t.u8,
    "int8": t.i8,
    "int16": t.i16,
    "int32": t.i32,
    "int64": t.i64,
    "float16": t.f16,
    "float32": t.f32,
    "float64": t.f64,
    "bool": t.bool_,
    "bfloat16": t.bf16,
}
"""Element types that dlc has, by their names in PyTorch."""


@dataclass(frozen=True)
class Ref:
    """A value that a node or an input gives."""

    name: str


@dataclass(frozen=True)
class Place:
    """Where in the user's module a node comes from."""

    module: str = ""
    """Path of the module: "encoder.layers.0.linear1"."""
    file: str = ""
    line: int = 0
    code: str = ""
    """The source line."""

    def __str__(self) -> str:
        """`encoder.linear1 (model.py:12)`, with what is known."""
        line = f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else ""
        return f"{self.module} ({line})" if self.module and line else self.module or line


@dataclass(frozen=True)
class Node:
    """A call of an operator. Arguments are numbers, texts, dtypes, `Ref`, None, or lists of these."""

    target: str
    """ "aten.linear.default", without torch.ops."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[str, ...]
    """Names of its values."""
    name: str
    single: bool = True
    """Whether the one name of `results` stands for all that the operator gives, or each name for one value."""
    place: Place = field(default_factory=Place)


@dataclass(frozen=True)
class Parameter:
    """A weight, buffer or constant tensor that an input of the program stands for."""

    value: str
    """Name inside of the program."""
    name: str
    """Name in the module: "encoder.weight"."""
    type: Type
    trained: bool
    """Whether it is an nn.Parameter."""


@dataclass(frozen=True)
class Program:
    """A program as it was read."""

    name: str
    inputs: tuple[tuple[str, Type | int | float | bool | str | None], ...]
    """Names and types of the user's inputs, in order; a number, text or None is a constant of the export."""
    parameters: tuple[Parameter, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, Any], ...]
    """Names, and a `Ref` or a constant."""
    types: Mapping[str, Type]
    """What PyTorch says of values, where dlc has such a type; dimensions that are no numbers are -1 there."""
    notes: tuple[str, ...] = ()
    """What the reader left out."""
