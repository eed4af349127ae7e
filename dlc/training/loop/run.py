"""`Run`: a training program, its course, and the files that a run writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dlc.files.writing import write_whole
from dlc.training.loop.checkpoint import Checkpoint, keep, write_checkpoint
from dlc.training.loop.curve import Log, curve_html
from dlc.training.loop.loop import Course, Ending, Epoch, State, train
from dlc.training.loop.metrics import loss_of, measure_of
from dlc.training.loop.ranks import Ranks
from dlc.training.loop.together import Statistics, Together

if TYPE_CHECKING:
    from dlc.api.training_program import TrainingProgram


@dataclass(frozen=True)
class Outputs:
    """What a run writes, and when."""

    checkpoint: Path
    checkpoint_every: int | None = None
    """Steps between checkpoints within an epoch; None: at its end only."""
    export: Path | None = None
    keep: Literal["best", "last"] = "last"
    """Whose weights are exported: of the best epoch, or as they are in the end."""
    log: Path | None = None
    html: Path | None = None
    kept: Path | None = None
    """What a checkpoint of an earlier run is called from the moment on at which this one writes its first."""


@dataclass
class Run:
    """One run; it is its own watcher, and tells others through its callbacks."""

    program: TrainingProgram
    course: Course
    outputs: Outputs
    state: State = field(default_factory=State)
    ranks: Ranks = field(default_factory=Ranks)
    """With whom it trains; all of them have a run, and rank 0's writes."""
    statistics: Statistics = "joint"
    """See `Together`."""
    on_step: Callable[[State, float], None] = lambda _, __: None
    on_validation: Callable[[int], None] = lambda _: None
    on_epoch: Callable[[Epoch], None] = lambda _: None
    stop: bool = False
    """Set from outside: finish the step, then write everything."""
    begun: tuple[int, int] = (0, 0)
    """Epochs, and steps of the next, that were done before, by the run that this one goes on from."""
    partial: Epoch | None = None
    """The part of an epoch that was judged at the end."""
    saved: str = ""
    """Where the last checkpoint stands: "epoch 2"; "" when there is none."""
    _best: bytes | None = None
    _log: Log | None = None

    def __post_init__(self) -> None:
        """Raises DlcError (USAGE) if there are several ranks and the program cannot be trained by them."""
        course = self.course
        self._together = Together(self.program, self.ranks, self.statistics, lambda: self.stop, course.losses)

    @property
    def done(self) -> int:
        """Steps over all epochs."""
        return self.state.epoch * self.course.steps_per_epoch + self.state.step

    @property
    def idle(self) -> bool:
        """Whether it has come no further than where it began."""
        return (self.state.epoch, self.state.step) == self.begun

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of what validation tells beside the loss."""
        found = measure_of(self.program, loss_of(self.program, self.course.losses)) if self.course.validation else None
        return found.names if found else ()

    def resume(self, checkpoint: Checkpoint) -> str:
        """Go on from a checkpoint; what the user should know, or "".

        Raises:
            DlcError: (USAGE) it is of another program, other data or other settings; then nothing has changed.
        """
        checkpoint.check(self.course)
        self.state = checkpoint.restore(self.program)
        self.saved, self.begun = self._place(), (self.state.epoch, self.state.step)
        if self.outputs.keep == "last":
            return ""
        self._best = checkpoint.parts.get("best")
        if self._best is None and self.state.best == self.state.epoch and not self.state.step:
            self._best = self.program.checkpoint()
        if self._best is not None or not self.state.best:
            return ""
        number, self.state.best = self.state.best, 0
        return f"the weights of epoch {number}, the best so far, were not kept; the best counts from here"

    def go(self) -> Ending:
        """Train until the course ends or `stop` is set; checkpoint, log, page and model are written in any case.

        Raises:
            DlcError: a loss is not finite: the last checkpoint stays, log and page are written; or a file cannot be
                written.
        """
        if self.outputs.log and self.ranks.leads:
            self._log = Log(self.outputs.log, self.figures, self.state, self.done)
        try:
            ending = train(self._together, self.course, self.state, self)
            if ending == "interrupted":
                self.save()
        finally:
            self._write_curves()
        if self.outputs.export and self.ranks.leads:
            if self.outputs.keep == "best" and self._best is not None:
                self.program.restore(self._best)
            self.program.save_onnx(self.outputs.export)
        return ending

    def save(self) -> None:
        """Write a checkpoint of this moment; all ranks do so at once."""
        self._together.settle()
        if not self.ranks.leads:
            self.saved = self._place()
            return
        if self.outputs.kept is not None and not self.saved:
            keep(self.outputs.checkpoint, self.outputs.kept)
        write_checkpoint(self.outputs.checkpoint, self.program, self.course, self.state, self._best)
        self.saved = self._place()

    def stepped(self, state: State, loss: float) -> None:
        """See `Watcher`."""
        if self._log:
            self._log.step(state.epoch + 1, self.done, loss)
        if self.outputs.checkpoint_every and self.done % self.outputs.checkpoint_every == 0:
            self.save()
            if self._log:
                self._log.flush()
        self.on_step(state, loss)

    def evaluating(self, row: int) -> bool:
        """See `Watcher`."""
        self.on_validation(row)
        return self.stop

    def ended(self, epoch: Epoch, state: State) -> None:
        """See `Watcher`."""
        self.partial = epoch if state.step else None
        if self.outputs.keep == "best" and state.best == epoch.number and not state.step:
            self._best = self.program.checkpoint()
        self.save()
        if self._log:
            self._log.epoch(epoch, self.done)
        self.on_epoch(epoch)

    def stopped(self) -> bool:
        """See `Watcher`."""
        return self.stop if self.ranks.count == 1 else self._together.stopped

    def _place(self) -> str:
        step = f", step {self.state.step}" if self.state.step else ""
        return f"epoch {self.state.epoch + (1 if step else 0)}{step}"

    def _write_curves(self) -> None:
        if self._log:
            self._log.flush()
        if self.outputs.html and self.ranks.leads:
            items = self.program.facts.items()
            facts = [(k.replace("_", " "), f"{v:,}" if isinstance(v, int) else v) for k, v in items]
            facts += [("rows", f"{self.course.data.rows:,}"), ("batch", str(self.course.size))]
            facts += [("seed", str(self.course.seed))]
            title = self.outputs.checkpoint.parent.name or "training"
            page = curve_html(title, facts, self.state, self.partial, self.course.steps_per_epoch)
            write_whole(self.outputs.html, page.encode("utf-8"))
