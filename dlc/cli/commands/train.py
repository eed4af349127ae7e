"""`dlc train`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, error
from dlc.cli import flags
from dlc.cli.terminal import Outcome, Terminal

if TYPE_CHECKING:
    from dlc.training.loop.loop import Ending
    from dlc.training.loop.ranks import Ranks
    from dlc.training.loop.run import Run

_FILES = "Files"
_EPOCHS = 10
"""Without --epochs and --steps."""
_OF_ALL = ("not-finite", "ranks-differ")
"""What all ranks find at the same moment."""

Program = Annotated[
    Path, typer.Argument(metavar="DIR|FILE", help="A program built for training: its directory or file.")
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE.npz|NAME=FILE.npy",
        help="Arrays named as the model's inputs, and y for the labels; may repeat.",
    ),
]
Validation = Annotated[
    float | None,
    typer.Option(
        metavar="FRACTION", help="Fraction of the rows, chosen at random, to validate with after every epoch, as 0.1."
    ),
]
ValidationData = Annotated[
    list[str] | None,
    typer.Option(
        "--validation-data",
        metavar="FILE.npz|NAME=FILE.npy",
        help="Data to validate with after every epoch; may repeat.",
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Number of passes over the data, including those of the run that is continued. [default: 10]",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Maximum number of training steps, including those of the run that is continued; may end within an epoch.",
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Stop after N epochs without a better loss (on the validation data, if there are any)."
    ),
]
Seed = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Seed of the order of rows and of --validation. [default: 0]")
]
Shuffle = Annotated[
    bool | None,
    typer.Option(
        "--shuffle/--no-shuffle",
        help="Take the rows in a new order every epoch, or in the order of the file. [default: shuffle]",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Start again although there is a checkpoint, which is kept under another name."),
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="FILE",
        help="Path of the checkpoint. [default: DIR/checkpoint.ckpt, NAME.ckpt beside a FILE]",
        rich_help_panel=_FILES,
    ),
]
CheckpointEvery = Annotated[
    int | None,
    typer.Option(
        "--checkpoint-every",
        metavar="N",
        min=1,
        help="Write the checkpoint every N training steps too, not only after every epoch.",
        rich_help_panel=_FILES,
    ),
]
Export = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write the trained model, in the format of the original.", rich_help_panel=_FILES
    ),
]
Keep = Annotated[
    str,
    typer.Option(
        metavar="best|last",
        help="Export the weights of the epoch with the best loss (on the validation data, if there are any), or the "
        "last ones.",
        rich_help_panel=_FILES,
    ),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log", metavar="FILE.csv", help="Write a row for every training step and epoch.", rich_help_panel=_FILES
    ),
]
BatchNorm = Annotated[
    str | None,
    typer.Option(
        "--batch-norm",
        metavar="joint|local",
        help="With several ranks: keep the mean of their running statistics of batch normalisations, or those of rank "
        "0. [default: joint]",
    ),
]
RankTimeout = Annotated[
    float | None,
    typer.Option(
        "--rank-timeout",
        metavar="SECONDS",
        min=1.0,
        help="With several ranks: end all of them if one does not come to the sum of a step within this time. "
        "[default: 600]",
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE.html", help="Write a page with the curves of loss and metrics.", rich_help_panel=_FILES
    ),
]


def train(
    ctx: typer.Context,
    program: Program,
    data: Data = None,
    validation: Validation = None,
    validation_data: ValidationData = None,
    epochs: Epochs = None,
    steps: Steps = None,
    patience: Patience = None,
    seed: Seed = None,
    shuffle: Shuffle = None,
    resume: Resume = False,
    fresh: Fresh = False,
    checkpoint: CheckpointFile = None,
    checkpoint_every: CheckpointEvery = None,
    export: Export = None,
    keep: Keep = "last",
    batch_norm: BatchNorm = None,
    rank_timeout: RankTimeout = None,
    log: LogFile = None,
    html: Html = None,
    max_memory: flags.MaxMemory = None,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Train a program that was built with --train.

    A checkpoint is written after every epoch and when the run is interrupted (Ctrl-C); --resume continues from it
    with the same results as an uninterrupted run. An existing checkpoint is never replaced without --resume or --fresh.
    The last rows of an epoch are dropped if they do not fill a batch; validation uses every row of its data. The
    order of the rows depends on --seed only: the same command gives the same weights.

    mpiexec -n 4 dlc train … trains in four processes, each on its part of every batch: see docs/distributed.md.
    """
    del json
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    if not data:
        help = "add --data FILE.npz, with an array for each input of the model under its name, and y for the labels"
        raise _usage("no-data", "--data is missing: there is nothing to train with", help)
    if keep not in ("best", "last"):
        raise _usage("bad-option", f"--keep {keep}: there is no such choice", "best or last")
    if validation_data and validation is not None:
        raise _usage("no-effect", "--validation has no effect beside --validation-data", "leave one of the two out")
    if validation is not None and not 0 < validation < 1:
        message = f"--validation {validation:g} is not a fraction of the rows"
        raise _usage("bad-option", message, "a number between 0 and 1")
    from dlc.cli.ranks import guarded, opened_ranks
    from dlc.cli.train_start import Asked, started

    ranks = opened_ranks(os.environ)
    _check_statistics(batch_norm, ranks)
    _set_timeout(ranks, rank_timeout)
    asked = Asked(
        program,
        data,
        validation,
        validation_data or (),
        _EPOCHS if epochs is None and steps is None else epochs,
        steps,
        patience,
        seed,
        shuffle,
        resume,
        fresh,
        checkpoint,
        checkpoint_every,
        export,
        keep,
        batch_norm or "joint",  # pyright: ignore[reportArgumentType]  # checked above
        log,
        html,
        max_memory,
    )
    with guarded(ranks, terminal):
        return _ran(terminal, started(terminal, asked, ranks))


def _check_statistics(asked: str | None, ranks: Ranks) -> None:
    if asked not in (None, "joint", "local"):
        raise _usage("bad-option", f"--batch-norm {asked}: there is no such choice", "joint or local")
    if asked is not None and ranks.count == 1:
        message = "--batch-norm has no effect on one process: it has the only statistics"
        raise _usage("no-effect", message, "leave it out, or start several with mpiexec -n N dlc train …")


def _set_timeout(ranks: Ranks, asked: float | None) -> None:
    if asked is not None and ranks.count == 1:
        message = "--rank-timeout has no effect on one process: it waits for nobody"
        raise _usage("no-effect", message, "leave it out, or start several with mpiexec -n N dlc train …")
    ranks.timeout = asked or ranks.timeout


def _ran(terminal: Terminal, run: Run) -> Outcome:
    """Train, show it, and tell how it ended."""
    from dlc.cli.trained import Shown, document, summary

    with terminal.bar(run.course.total) as bar, _signals(run):
        shown = Shown(terminal, run, bar)
        run.on_step, run.on_validation, run.on_epoch = shown.step, shown.validation, shown.epoch
        try:
            ending: Ending | Literal["failed"] = run.go()
        except DlcError as problem:
            if run.ranks.count > 1 and problem.diagnostics[0].code not in _OF_ALL:
                raise  # others do not know of it
            bar.stop()
            kept = f"the checkpoint of {run.saved} is kept: {run.outputs.checkpoint}"
            terminal.tell(
                *(_noted(d, kept) if d.code == "not-finite" and run.saved else d for d in problem.diagnostics)
            )
            return Outcome(data=document(run, "failed"), code=problem.exit_code)
    if ending == "interrupted":
        terminal.tell(
            Diagnostic(
                "interrupted",
                f"interrupted after {run.saved}; all files are written",
                "warning",
                help=f"the same command with --resume continues from {run.outputs.checkpoint}",
            )
        )
    code = ExitCode.INTERRUPTED if ending == "interrupted" else ExitCode.OK
    return Outcome(summary(run, ending), document(run, ending), code)


@contextmanager
def _signals(run: Run) -> Generator[None]:
    """Ctrl-C and SIGTERM have the run stop after the step it is in; a second one ends it at once."""

    def asked(*_: object) -> None:
        if run.stop:
            raise KeyboardInterrupt
        run.stop, begin = True, time.monotonic()
        run.ranks.hurried = lambda: time.monotonic() - begin

    held = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


def _noted(diagnostic: Diagnostic, note: str) -> Diagnostic:
    return replace(diagnostic, notes=(*diagnostic.notes, note))


def _usage(code: str, message: str, help: str) -> DlcError:
    return error(code, message, help=help, exit_code=ExitCode.USAGE)
