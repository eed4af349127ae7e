"""The loop of training: epochs of shuffled batches, judged after each.

What the loop does next depends on its `State` and its `Course` alone, so that a run that goes on from a checkpoint
gives what an uninterrupted one gives, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from dlc.base.diagnostics import DlcError, error
from dlc.training.loop.data import DataSet
from dlc.training.loop.metrics import Score, evaluate
from dlc.training.loop.shuffle import permutation
from dlc.training.loop.trace import Trace

if TYPE_CHECKING:
    from dlc.api.parts import Part
    from dlc.api.training_program import TrainingProgram
    from dlc.base.types import Array
    from dlc.training.step.loss import Loss

Ending = Literal["done", "patience", "interrupted"]
_ROWS_TOLD = 8
"""Rows of a batch that a message names."""


@dataclass(frozen=True)
class Course:
    """What is trained with, and for how long."""

    data: DataSet
    validation: DataSet | None
    size: int
    """Rows of a batch."""
    seed: int = 0
    """Of the orders of rows."""
    shuffle: bool = True
    epochs: int | None = None
    steps: int | None = None
    """Over all epochs; None: as many as the epochs have."""
    patience: int | None = None
    """Epochs without a better loss after which it ends, at least 1."""

    losses: Sequence[Part[Loss]] = ()
    """Those of plugins: what validation tells depends on the loss that the program was built with."""

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches; the rows left over sit out, others every epoch."""
        return self.data.rows // self.size

    @property
    def total(self) -> int | None:
        """Steps at most; None where nothing is known to end it."""
        ends = [self.steps, None if self.epochs is None else self.epochs * self.steps_per_epoch]
        return min((n for n in ends if n is not None), default=None)

    def order(self, epoch: int) -> Array:
        """Numbers of the rows in the order of an epoch."""
        return permutation(self.data.rows, self.seed, epoch) if self.shuffle else np.arange(self.data.rows)


@dataclass(frozen=True)
class Epoch:
    """What an epoch gave."""

    number: int
    """From 1."""
    steps: int
    loss: float
    """Mean over its steps, each before its update."""
    validation: Score | None
    seconds: float

    @property
    def judged(self) -> float:
        """What decides which epoch is best: the loss on validation data, else that in training."""
        return self.validation.loss if self.validation else self.loss

    def json(self) -> dict[str, Any]:
        """For a checkpoint."""
        judged = self.validation and {"loss": self.validation.loss, "figures": dict(self.validation.figures)}
        return {
            "number": self.number,
            "steps": self.steps,
            "loss": self.loss,
            "validation": judged,
            "seconds": self.seconds,
        }

    @classmethod
    def of(cls, v: Mapping[str, Any]) -> Epoch:
        """The inverse of `json`; raises what wrong types raise."""
        judged = v["validation"]
        score = judged and Score(float(judged["loss"]), {str(k): float(x) for k, x in judged["figures"].items()})
        return cls(int(v["number"]), int(v["steps"]), float(v["loss"]), score or None, float(v["seconds"]))


@dataclass
class State:
    """How far a run has come."""

    epoch: int = 0
    """Epochs that are done."""
    step: int = 0
    """Steps that are done in the epoch after them."""
    sum: float = 0.0
    """Of the losses of these steps."""
    seconds: float = 0.0
    """That these steps took."""
    history: list[Epoch] = field(default_factory=list[Epoch])
    best: int = 0
    """Number of the epoch that is best by `Epoch.judged`; 0: none yet."""
    trace: Trace = field(default_factory=Trace)
    """Losses of all steps."""

    @property
    def mean(self) -> float:
        """Of the losses in this epoch; NaN before the first step."""
        return self.sum / self.step if self.step else math.nan

    def json(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "sum": self.sum,
            "seconds": self.seconds,
            "history": [e.json() for e in self.history],
            "best": self.best,
            "trace": self.trace.json(),
        }

    @classmethod
    def of(cls, v: Mapping[str, Any]) -> State:
        """The inverse of `json`; raises ValueError and what wrong types raise."""
        history = [Epoch.of(e) for e in v["history"]]
        found = cls(
            int(v["epoch"]),
            int(v["step"]),
            float(v["sum"]),
            float(v["seconds"]),
            history,
            int(v["best"]),
            Trace.of(v["trace"]),
        )
        if found.step < 0 or found.epoch != len(history) or not 0 <= found.best <= found.epoch:
            raise ValueError("its counts do not fit each other")
        return found


class Watcher(Protocol):
    """Who looks on: shows, writes, and says when to stop."""

    def stepped(self, state: State, loss: float) -> None:
        """A step was done."""
        ...

    def evaluating(self, row: int) -> bool:
        """Validation has come to a row; True stops the run."""
        ...

    def ended(self, epoch: Epoch, state: State) -> None:
        """An epoch was done and judged, or the part of one that `Course.steps` leaves."""
        ...

    def stopped(self) -> bool:
        """Whether to stop after this step."""
        ...


def train(program: TrainingProgram, course: Course, state: State, watcher: Watcher) -> Ending:
    """Run steps from `state` on, which is kept up to date, until the course ends or the watcher stops it.

    Raises:
        DlcError: (`not-finite`) a loss is not finite; or what the program raises.
    """
    while not (ending := _ending(course, state)):
        _steps(program, course, state, watcher)
        if watcher.stopped():
            return "interrupted"
        score = (
            evaluate(program, course.validation, course.size, watcher.evaluating, course.losses)
            if course.validation
            else None
        )
        if course.validation and score is None:
            return "interrupted"
        epoch = Epoch(state.epoch + 1, state.step, state.mean, score, state.seconds)
        if not math.isfinite(epoch.judged):
            raise _not_finite(f"the loss on validation data is not finite after {_at(course, state)}", ())
        if state.step == course.steps_per_epoch:
            best = state.history[state.best - 1].judged if state.best else math.inf
            state.history.append(epoch)
            state.best = epoch.number if epoch.judged < best else state.best
            state.epoch, state.step, state.sum, state.seconds = epoch.number, 0, 0.0, 0.0
        watcher.ended(epoch, state)
    return ending


def _ending(course: Course, state: State) -> Ending | None:
    """Why a run is over; None if it is not."""
    if state.step == course.steps_per_epoch:
        return None  # it was interrupted before it was judged
    if course.total is not None and state.epoch * course.steps_per_epoch + state.step >= course.total:
        return "done"
    if course.patience is not None and not state.step and state.epoch - state.best >= course.patience:
        return "patience"
    return None


def _steps(program: TrainingProgram, course: Course, state: State, watcher: Watcher) -> None:
    """The steps that are left of an epoch, unless the course ends within it or the watcher stops."""
    until = course.steps_per_epoch
    if course.total is not None:
        until = min(until, course.total - state.epoch * course.steps_per_epoch)
    order = course.order(state.epoch)
    while state.step < until:
        begin = time.perf_counter()
        index = order[state.step * course.size : (state.step + 1) * course.size]
        feeds = course.data.batch(index)
        try:
            loss = float(program.train_step(**feeds))
        except DlcError as problem:
            if problem.diagnostics[0].code != "not-finite":
                raise
            loss = math.nan
        if not math.isfinite(loss):
            raise _not_finite(
                f"the loss or a gradient is not finite in {_at(course, state, 1)}", index, _uncounted(program, feeds)
            )
        state.step += 1
        state.sum += loss
        state.seconds += time.perf_counter() - begin
        state.trace.add(loss)
        watcher.stepped(state, loss)
        if watcher.stopped():
            return


def _at(course: Course, state: State, more: int = 0) -> str:
    return f"epoch {state.epoch + 1}, step {state.step + more} of {course.steps_per_epoch}"


def _uncounted(program: TrainingProgram, feeds: Mapping[str, Array]) -> tuple[str, ...]:
    """A note if no label of a batch counts: its loss is then 0 / 0."""
    ignore = program.classes.ignore if program.classes else None
    if ignore is None or (feeds[program.arguments[-1].name] != ignore).any():
        return ()
    return (f"all labels of the batch are {ignore}, which is ignored: leave such rows out, or use larger batches",)


def _not_finite(message: str, rows: Array | tuple[()], more: tuple[str, ...] = ()) -> DlcError:
    numbers = ", ".join(str(int(k)) for k in rows[:_ROWS_TOLD])
    notes = [f"rows of the batch: {numbers}{', …' if len(rows) > _ROWS_TOLD else ''}"] if len(rows) else []
    help = "try a lower learning rate, clip gradients (--train '… clip=1'), or look for very large values in the data"
    return error("not-finite", message, notes=(*notes, *more), help=help)
