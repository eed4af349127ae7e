"""A step of a build, as records hold it. Imports little: a build that the cache has prints its steps in no time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlc.cache.step_record import StepRecord


@dataclass(frozen=True)
class Missed:
    """What a step looked at and left alone, or chose something for."""

    subject: str
    """What: a node, a kernel."""
    reason: str
    """Why, or why the others were not chosen."""


@dataclass(frozen=True)
class Job:
    """A sub-step: what one kernel or file took to be scheduled, written or compiled."""

    step: str
    """Its kind: "schedule", "generate", "compile"."""
    subject: str
    """What it worked on: the digest of a kernel, or the name of a function."""
    made_ms: float
    """Milliseconds that it took when it ran, in this build or in an earlier one."""
    cached: bool
    """Whether this build had the result from the cache."""


@dataclass(frozen=True)
class Pass:
    """A step of the build: reading the model, a pass, writing and compiling the program."""

    step: str
    """Canonical spec text."""
    name: str
    """Of the pass; frontends stand under their name, backends under "emit" and "build"."""
    title: str
    """The spec text without options that have their defaults."""
    function: str
    """Of the program, that it belongs to; "" where it serves all, or where there is only one."""
    milliseconds: float
    """That it took in this build: to run, or to be found."""
    made_ms: float
    """That it took when it ran, in this build or in an earlier one."""
    cached: bool
    """Whether the cache had its result."""
    output: str
    """Kind and digest of the state that it gave."""
    counts: Mapping[str, int]
    """Statistics by name."""
    notes: tuple[str, ...]
    """What it has to say beside."""
    missed_as: str
    """What it did not do to the subjects of `missed`, or did."""
    missed: tuple[Missed, ...]
    """What it left alone, and why."""
    jobs: tuple[Job, ...] = ()
    """Its sub-steps."""


def pass_of(step: StepRecord[Any]) -> Pass:
    """A step as its record tells it; names in it are as the model has them."""
    report = step.report
    return Pass(
        step.spec,
        step.name,
        step.title or step.spec,
        step.function,
        round(step.milliseconds, 3),
        round(step.made_ms, 3),
        step.cached,
        f"{step.handle.kind} {step.handle.digest}",
        dict(step.counts),
        tuple(report.notes),
        report.missed_as,
        tuple(Missed(subject, reason) for subject, reason in report.misses),
        tuple(Job(name, subject, ms, cached or step.cached) for name, subject, ms, cached in report.jobs),
    )
