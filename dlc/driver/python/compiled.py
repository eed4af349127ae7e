"""`Compiled`: a program that `dlc.compile` made, with what there is to say of its build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlc.api.program import Program, Signature
    from dlc.base.types import Array
    from dlc.cache.step_record import StepRecord
    from dlc.driver.python.options import Options
    from dlc.graph.graph import Graph
    from dlc.runtime.calling import Copied


@dataclass(frozen=True)
class BuildReport:
    """How a program was made: its steps in their order, each with its time, counts, notes, and whether it was found."""

    steps: tuple[StepRecord[Any], ...]

    @property
    def cached(self) -> bool:
        """Whether the cache had the result of every step, so that nothing was compiled."""
        return all(step.cached for step in self.steps)

    @property
    def milliseconds(self) -> float:
        """That the steps took."""
        return sum(step.milliseconds for step in self.steps)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the steps warned of and noted."""
        warned = [f"warning[{w.code}]: {w.message}" for step in self.steps for w in step.report.warnings]
        return (*warned, *(note for step in self.steps for note in step.report.notes))

    def __str__(self) -> str:
        """A line per step, and the notes."""
        lines = [f"{s.title or s.spec}: {s.milliseconds:.1f} ms, {'hit' if s.cached else 'made'}" for s in self.steps]
        return "\n".join([*lines, *self.notes])


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled model: called with arrays by name or by place, it gives output name → numpy array.

    Several threads may call it at the same time, and others run meanwhile. Inputs and buffers are numpy arrays or
    anything with `__dlpack__`; C-contiguous ones are read and written in place. The built files live in a directory of
    the object's own, which goes with it, or in `output`.
    """

    program: Program
    """As the backend loads it, with what it offers beyond calls."""
    report: BuildReport
    """Its build."""
    options: Options = field(repr=False)
    """How it was built."""
    _graph: Callable[[], Graph] = field(repr=False)

    @property
    def signature(self) -> Signature:
        """Inputs and outputs: names, element types and shapes, in the order of positional arguments."""
        return self.program.signature

    @property
    def graph(self) -> Graph:
        """The model as ops, as it was read."""
        return self._graph()

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names of its inputs."""
        return frozenset(port.name for port in self.signature.inputs)

    @property
    def copied(self) -> Copied:
        """The inputs that calls have copied so far, because they could not be read in place."""
        found: Any = self.program
        return found.copied

    def __call__(self, *args: object, out: Mapping[str, object] | None = None, **inputs: object) -> dict[str, Array]:
        """Output name → array.

        Args:
            args: Arrays of the first inputs, in their order, or one mapping of input name → array.
            out: Buffers to write into, by output name: C-contiguous, writable, of the exact type. Others are made.
            inputs: Arrays by input name.

        Raises:
            DlcError: a name, shape, dtype or device is not what the program takes; what was expected is named.
        """
        run: Any = self.program
        return run(*args, out=out, **inputs)
