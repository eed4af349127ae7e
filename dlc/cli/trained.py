"""What `dlc train` says: while it runs, at its end, and in its document."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import escape
from dlc.cli.progress import Bar
from dlc.cli.terminal import Terminal, json_number

if TYPE_CHECKING:
    from dlc.training.loop.loop import Course, Ending, Epoch, State
    from dlc.training.loop.run import Run


class Shown:
    """What a run shows while it runs."""

    def __init__(self, terminal: Terminal, run: Run, bar: Bar) -> None:
        """On a bar that counts steps."""
        self._terminal, self._run, self._bar = terminal, run, bar

    def step(self, state: State, loss: float) -> None:
        """A step was done."""
        for note in self._run.program.notes():
            if note.severity != "note" or not self._terminal.quiet:
                self._terminal.tell(replace(note, message=f"{self._at(state)}: {note.message}"))
        if self._bar.due:
            rate = state.step * self._run.course.size / state.seconds if state.seconds else 0.0
            progress = f"loss {loss:.4g}, mean {state.mean:.4g}, {rate:,.0f} rows/s"
            self._bar.at(self._run.done, f"{self._at(state)}: {progress}")

    def _at(self, state: State) -> str:
        return f"epoch {state.epoch + 1}, step {state.step} of {self._run.course.steps_per_epoch}"

    def validation(self, row: int) -> None:
        """Validation has come to a row."""
        judged = self._run.course.validation
        if self._bar.due and judged:
            self._bar.at(
                self._run.done, f"epoch {self._run.state.epoch + 1}: validation, row {row:,} of {judged.rows:,}"
            )

    def epoch(self, epoch: Epoch) -> None:
        """An epoch was done."""
        if not self._terminal.quiet:
            self._terminal.log(_epoch_line(epoch, self._run.course))


def tell_start(terminal: Terminal, run: Run) -> None:
    """What is about to happen, before the first step."""
    course = run.course
    left = course.data.rows - course.steps_per_epoch * course.size
    text = f"{course.data.rows:,} rows: {course.steps_per_epoch:,} training steps per epoch, batches of {course.size}"
    if course.ranks > 1:
        text += f", {course.own_size} on each of {course.ranks} ranks"
    if left:
        how = f"{left} rows in an incomplete batch are dropped"
        text += f"; {how}{', different ones each epoch' if course.shuffle else ''}"
    if course.validation:
        text += f"; validation: {course.validation.rows:,} rows"
    if not terminal.quiet:
        terminal.log(text)
        if run.done:
            terminal.log(f"continuing after {run.saved}")


def _epoch_line(epoch: Epoch, course: Course) -> str:
    of = f" of {course.epochs}" if course.epochs else ""
    part = "" if epoch.steps == course.steps_per_epoch else f", {epoch.steps:,} steps"
    rate = epoch.steps * course.size / epoch.seconds if epoch.seconds else 0.0
    speed = f"{epoch.seconds:.1f} s, {rate:,.0f} rows/s"
    return f"epoch {epoch.number}{of}{part}: {figures_text(epoch)} ({speed})"


def figures_text(epoch: Epoch) -> str:
    """Losses and metrics of an epoch, in a line."""
    found = [f"loss {epoch.loss:.4g}"]
    if epoch.validation:
        found.append(f"validation loss {epoch.validation.loss:.4g}")
        found += [_figure(name, value) for name, value in epoch.validation.figures.items()]
    return ", ".join(found)


def _figure(name: str, value: float) -> str:
    return f"accuracy {100 * value:.2f} %" if name == "accuracy" else f"{name} {value:.4g}"


def summary(run: Run, ending: Ending) -> str:
    """The last words, on stdout."""
    state, outputs = run.state, run.outputs
    last = run.partial or (state.history[-1] if state.history else None)
    lines = [f"{_outcome(run, ending)}, {figures_text(last)}" if last else _outcome(run, ending)]
    if ending == "done" and run.idle:
        lines.append("--epochs and --steps count all runs together: increase them to continue")
    if ending == "patience":
        lines.append(f"no better loss for {_plural(run.course.patience or 0, 'epoch')}")
    if state.best and state.best != state.epoch:
        best = state.history[state.best - 1]
        lines.append(f"best: epoch {best.number}, {figures_text(best)}")
    lines.append(f"checkpoint: {escape(str(outputs.checkpoint))}")
    exported = f" (epoch {state.best})" if outputs.keep == "best" and state.best else ""
    for what, path in (("model", outputs.export), ("log", outputs.log), ("curves", outputs.html)):
        if path:
            lines.append(f"{what}: {escape(str(path))}{exported if what == 'model' else ''}")
    return "\n".join(lines)


def _outcome(run: Run, ending: Ending) -> str:
    count = f"{_plural(run.state.epoch, 'epoch')}, {_plural(run.done, 'step')}"
    if ending == "interrupted":
        return f"interrupted: {count}"
    return f"nothing to do: {count} are complete" if run.idle else f"trained: {count}"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def document(run: Run, ending: str) -> dict[str, Any]:
    """For programs."""
    course, outputs = run.course, run.outputs
    epochs = [*run.state.history, *([run.partial] if run.partial else [])]
    return {
        "ending": ending,
        "rows": {
            "training": course.data.rows,
            "validation": course.validation.rows if course.validation else 0,
            "batch": course.size,
        },
        "seed": course.seed,
        "ranks": course.ranks,
        "steps_per_epoch": course.steps_per_epoch,
        "steps": run.done,
        "epochs": [_epoch_json(e, course) for e in epochs],
        "best": run.state.best,
        "checkpoint": str(outputs.checkpoint),
        "export": str(outputs.export) if outputs.export else None,
        "log": str(outputs.log) if outputs.log else None,
        "html": str(outputs.html) if outputs.html else None,
    }


def _epoch_json(epoch: Epoch, course: Course) -> dict[str, Any]:
    score = epoch.validation
    figures = {name: json_number(x) for name, x in score.figures.items()} if score else {}
    return {
        "epoch": epoch.number,
        "steps": epoch.steps,
        "loss": json_number(epoch.loss),
        "validation": {"loss": json_number(score.loss), **figures} if score else None,
        "seconds": epoch.seconds,
        "rows_per_second": epoch.steps * course.size / epoch.seconds if epoch.seconds else None,
    }
