"""Programs as they are called: ports, signature, and what a loaded program is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from dlc.base.allowed import Allowed
    from dlc.base.types import Type


@dataclass(frozen=True)
class Port:
    """One input or output of a program."""

    name: str
    """Name in the model, as its author wrote it."""
    type: "Type"
    """Element type and shape."""
    allowed: "Allowed | None" = None
    """What its integers may be, because they choose rows or classes; None: anything. Programs refuse all else."""
    labels: tuple[str, ...] = ()
    """Texts that an output's whole numbers stand for, or the names of the entries along its last dimension."""


@dataclass(frozen=True)
class Signature:
    """How a program is called."""

    inputs: tuple[Port, ...]
    """In the order of the calling convention."""
    outputs: tuple[Port, ...]
    """In the order of the model's outputs."""
    aliases: tuple[tuple[int, int], ...] = ()
    """(i, j): output i may be written over input j, as the same buffer; if both have one name, they are one tensor."""


class Program(Protocol):
    """A loaded artifact, callable with arrays by input name."""

    @property
    def signature(self) -> Signature:
        """Inputs and outputs."""
        ...

    def __call__(self, *, out: "Mapping[str, object] | None" = None, **inputs: object) -> "dict[str, np.ndarray]":
        """Output name → array; `out` supplies buffers to write into. Refuses wrong names, shapes and dtypes.

        Inputs and buffers are numpy arrays or anything that lends its memory by `__dlpack__`.
        """
        ...
