"""What is left of a run for people: a table of its steps as CSV, and its curves on one HTML page.

The page has no scripts and needs no network; text passes through the template's escaping, drawings are numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from dlc.base.diagnostics import ExitCode, Location, error, escape
from dlc.base.pages import environment
from dlc.files.writing import write_whole
from dlc.training.loop.loop import Epoch, State

WIDTH, HEIGHT = 1000, 320
"""Of a drawing, in its own units; the page scales it."""
_COLUMNS: Final = ("row", "epoch", "step", "loss", "validation_loss")
"""Of every log; figures of the validation follow."""
_LOGARITHMIC: Final = 50
"""Ratio of the largest to the smallest value from which on a scale is logarithmic."""
_UNWRITTEN: Final = 1000
"""Rows at most that are not in the file yet."""


class Log:
    """A CSV file with a row for each step and each epoch, written as they come.

    `step` counts over all epochs. The loss of a step is that of its batch, the loss of an epoch the mean of its steps'.
    """

    def __init__(self, path: Path, figures: Sequence[str], state: State, done: int) -> None:
        """Begin a log, or go on with the one that is there.

        Args:
            path: The file.
            figures: Names of the figures that validation gives.
            state: How far the run has come; rows of what it has not done are dropped.
            done: Its steps over all epochs; 0: any old file is replaced.

        Raises:
            DlcError: the file cannot be written, or is no such log.
        """
        self._path, self._figures = path, tuple(figures)
        head = ",".join((*_COLUMNS, *figures))
        kept = _rows(path, head, state, done) if done and path.exists() else []
        write_whole(path, "".join(f"{line}\n" for line in (head, *kept)).encode("utf-8"))
        self._lines: list[str] = []

    def step(self, epoch: int, step: int, loss: float) -> None:
        """A row for a step."""
        self._lines.append(f"step,{epoch},{step},{loss!r},{',' * len(self._figures)}\n")
        if len(self._lines) > _UNWRITTEN:
            self.flush()

    def epoch(self, epoch: Epoch, step: int) -> None:
        """A row for an epoch; with it, all rows so far reach the file."""
        score = epoch.validation
        judged = [repr(score.loss), *(repr(score.figures.get(f, math.nan)) for f in self._figures)] if score else [""]
        cells = [*judged, *[""] * (1 + len(self._figures) - len(judged))]
        self._lines.append(f"epoch,{epoch.number},{step},{epoch.loss!r},{','.join(cells)}\n")
        self.flush()

    def flush(self) -> None:
        """Write the rows so far. Raises DlcError."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(self._lines)
        except OSError as problem:
            raise error(
                "cannot-write",
                f"{self._path} cannot be written: {problem.strerror or problem}",
                location=Location(str(self._path)),
                help="free space, then go on with --resume",
            ) from None
        self._lines.clear()


def _rows(path: Path, head: str, state: State, done: int) -> list[str]:
    """The rows of a log that tell of what is done."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines[:1] != [head]:
            raise ValueError("its first line is not that of a log")
        # A line that was cut off has too few cells; what was being written when the machine stopped is no loss.
        rows = [line.split(",") for line in lines[1:] if line.count(",") == head.count(",")]
        return [
            ",".join(row) for row in rows if int(row[2]) <= done and (row[0] == "step" or int(row[1]) <= state.epoch)
        ]
    except (OSError, ValueError) as problem:
        raise error(
            "bad-log",
            f"{path} is not a log that this run can continue: {problem}",
            location=Location(str(path)),
            help="name another file with --log",
            exit_code=ExitCode.USAGE,
        ) from None


_BLUE, _RED, _GREEN = 212, 4, 140
"""Hues of lines."""


@dataclass(frozen=True)
class Line:
    """A line in a drawing."""

    label: str
    points: str
    hue: int
    """Of the colour, in degrees."""
    is_faint: bool
    dots: tuple[tuple[float, float, str], ...] = ()
    """(x, y, text on hover) of the points themselves."""


@dataclass(frozen=True)
class Chart:
    """A drawing with its scales: epochs to the right."""

    title: str
    lines: tuple[Line, ...]
    range: str
    """From bottom to top."""
    marks: tuple[tuple[float, str], ...]
    """(x, number) of epochs."""


def curve_html(title: str, facts: Sequence[tuple[str, str]], state: State, last: Epoch | None, per_epoch: int) -> str:
    """The page.

    Args:
        title: What was trained.
        facts: (name, value) of what the page begins with.
        state: How far the run came.
        last: The part of an epoch that was judged at the end, if there is one.
        per_epoch: Steps of an epoch.
    """
    text = (files("dlc") / "training" / "loop" / "training.html.j2").read_text(encoding="utf-8")
    epochs = [*state.history, *([last] if last else [])]
    names = list(epochs[0].validation.figures) if epochs and epochs[0].validation else []
    return (
        environment()
        .from_string(text)
        .render(
            title=escape(title),
            facts=[(escape(name), escape(value)) for name, value in facts],
            charts=_charts(epochs, state, names, per_epoch),
            names=names,
            epochs=[_cells(e, names) for e in epochs],
            best=state.best,
            width=WIDTH,
            height=HEIGHT,
        )
    )


def _charts(epochs: Sequence[Epoch], state: State, names: Sequence[str], per_epoch: int) -> list[Chart]:
    trace = [(x / per_epoch, y) for x, y in state.trace.drawn()]
    ends = [e.number - 1 + e.steps / per_epoch for e in epochs]
    judged = [(x, e.validation.loss) for x, e in zip(ends, epochs, strict=True) if e.validation]
    last = max([x for x, _ in trace] + ends, default=1.0)
    means = [(x, e.loss) for x, e in zip(ends, epochs, strict=True)]
    losses = [("steps", trace, _BLUE, False), ("mean of the epoch", means, _BLUE, True)]
    losses += [("validation", judged, _RED, True)] if judged else []
    found = [_chart("loss", losses, last)] if trace or epochs else []
    for name in names:
        scored = [(x, e.validation.figures[name]) for x, e in zip(ends, epochs, strict=True) if e.validation]
        found.append(_chart(f"{name} on validation data", [(name, scored, _GREEN, True)], last))
    return found


def _chart(title: str, lines: Sequence[tuple[str, Sequence[tuple[float, float]], int, bool]], last: float) -> Chart:
    values = [y for _, points, _, _ in lines for _, y in points if math.isfinite(y)] or [0.0]
    low, high = min(values), max(values)
    is_log = low > 0 and high > _LOGARITHMIC * low
    scale: Callable[[float], float] = math.log if is_log else float
    height = (scale(high) - scale(low)) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return x * WIDTH / last, HEIGHT - (scale(y) - scale(low)) * HEIGHT / height

    drawn: list[Line] = []
    for label, points, hue, dotted in lines:
        placed = [(*place(x, y), x, y) for x, y in points if math.isfinite(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in placed)
        dots = tuple((x, y, f"epoch {at:g}: {label} {value:.6g}") for x, y, at, value in placed) if dotted else ()
        drawn.append(Line(label, path, hue, not dotted, dots))
    whole = max(1, math.ceil(last))
    marks = tuple((n * WIDTH / last, str(n)) for n in range(0, whole + 1, max(1, -(-whole // 10))) if n <= last)
    return Chart(title, tuple(drawn), f"{low:.4g} to {high:.4g}{', logarithmic' if is_log else ''}", marks)


def _cells(epoch: Epoch, names: Sequence[str]) -> tuple[str, ...]:
    score = epoch.validation
    judged = [f"{score.loss:.6g}", *(f"{score.figures[n]:.6g}" for n in names)] if score else []
    return (str(epoch.number), f"{epoch.steps:,}", f"{epoch.loss:.6g}", *judged, f"{epoch.seconds:.1f}")
