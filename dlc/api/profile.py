"""What a backend tells of the speed of its programs: seconds of each step, and what the machine can do at most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dlc.api.program import Program

if TYPE_CHECKING:
    from dlc.base.types import Array


@dataclass(frozen=True)
class Memory:
    """A cache, or what lies beyond all of them."""

    name: str
    """L1, L2, L3 or memory."""
    size: int | None
    """Bytes that it holds; None: whatever there is."""
    rate: float
    """Bytes that are read from it in a second, as measured."""


@dataclass(frozen=True)
class Limits:
    """What a machine does at most, as measured there by code that is compiled like the program."""

    operations: float
    """Operations on 32-bit floats in a second: a multiply-add counts as two."""
    memories: tuple[Memory, ...]
    """The fastest first; the last one holds everything."""

    def memory(self, size: int) -> Memory:
        """The fastest memory that holds so many bytes."""
        return next(m for m in self.memories if m.size is None or size <= m.size)


@dataclass(frozen=True)
class MeasuredMachine:
    """This machine, as a backend measured it."""

    text: str
    """A file that the backend's option `machine` reads."""
    facts: Mapping[str, int | float | str]
    """What was measured, by names with units."""


class Profiler(Protocol):
    """What measures the steps of programs, for `dlc bench`."""

    def limits(self) -> Limits:
        """Measure this machine; takes less than a second or two."""
        ...

    def seconds(self, program: Program, inputs: "Mapping[str, Array]", out: "Mapping[str, Array]") -> Sequence[float]:
        """Seconds of each step of the program's plan, in their order, in one call; as `Program` takes arguments."""
        ...
