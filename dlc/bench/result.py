"""What was measured: programs, and steps against the limits of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dlc.api.profile import Limits
from dlc.base.types import Array
from dlc.bench.steps import Measured
from dlc.bench.times import Times
from dlc.verify.compare import Comparison, compare
from dlc.verify.reference import tolerance_for

OWN = "dlc"
"""Name of the program of dlc among those that are measured."""


@dataclass(frozen=True)
class Row:
    """One program."""

    name: str
    version: str = ""
    times: Times | None = None
    """Of calls back to back; None: it was not measured."""
    reason: str = ""
    """Why not."""
    differences: tuple[Comparison, ...] = ()
    """Outputs of dlc's program against its own, those of equal type."""
    paused: Times | None = None
    """Of calls after a pause; None: they were not measured."""

    @property
    def agrees(self) -> bool:
        """Whether no output differs by more than `dlc verify` allows."""
        return all(d.ok for d in self.differences)


@dataclass(frozen=True)
class Result:
    """Everything that a run of `dlc bench` measured."""

    model: str
    target: str
    """Spec text."""
    seed: int
    random: tuple[str, ...]
    """Names of the inputs that are random."""
    rows: tuple[Row, ...]
    """The first one is dlc's."""
    operations: int | None
    """Of a call; None: nobody knows."""
    limits: Limits | None
    steps: tuple[Measured, ...]
    """In the order of the plan; () where steps were not measured."""
    no_steps: str = ""
    """Why they were not, where that is not what the user asked for."""
    threads: int = 1
    """Of a call, at most."""
    pause: float = 0.0
    """Seconds before each call that is measured after a pause; 0: none is."""

    @property
    def own(self) -> Times:
        """Of dlc's program."""
        times = self.rows[0].times
        assert times is not None
        return times

    @property
    def rate(self) -> float | None:
        """Operations per second of dlc's program."""
        return None if self.operations is None else self.operations / (self.own.median / 1000)

    @property
    def part_of_peak(self) -> float | None:
        """What part of the machine's operations per second that is, 0 to 1."""
        return self.rate / self.limits.operations if self.limits and self.rate is not None else None

    def relative(self, row: Row, *, paused: bool = False) -> float | None:
        """The median of a program in units of dlc's; `paused`: of calls after a pause."""
        return _ratio(_times(row, paused), _times(self.rows[0], paused))

    def gain(self, of: Result, row: Row, *, paused: bool = False) -> float | None:
        """How many times as long a program of this result takes in another one, of other threads."""
        other = next((r for r in of.rows if r.name == row.name), None)
        return _ratio(_times(other, paused), _times(row, paused)) if other else None

    def step_gain(self, of: Result, step: Measured) -> float | None:
        """The same of a step, which computes the same nodes in both, though perhaps not in the same order."""
        other = next((s for s in of.steps if s.work.nodes == step.work.nodes), None)
        return other.seconds / step.seconds if other and step.seconds else None


def _times(row: Row, paused: bool) -> Times | None:
    return row.paused if paused else row.times


def _ratio(times: Times | None, unit: Times | None) -> float | None:
    return times.median / unit.median if times and unit else None


def differences(
    own: Mapping[str, Array], other: Mapping[str, Array], tolerance: tuple[float, float] | None
) -> tuple[Comparison, ...]:
    """Outputs against those of another program, where it gives the same types; `tolerance` as `Backend.tolerance`."""
    pairs = ((name, array, other.get(name)) for name, array in own.items())
    return tuple(
        compare(name, a, b, tolerance_for("", b, None, None, tolerance))
        for name, a, b in pairs
        if isinstance(b, np.ndarray) and (a.shape, a.dtype) == (b.shape, b.dtype)
    )
