"""`dlc train`."""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, error
from dlc.cli import flags
from dlc.cli.terminal import Outcome, Terminal

if TYPE_CHECKING:
    from dlc.api.training_program import TrainingProgram
    from dlc.plugins.registry import Registry
    from dlc.training.loop.checkpoint import Checkpoint
    from dlc.training.loop.data import DataSet
    from dlc.training.loop.loop import Course, Ending
    from dlc.training.loop.run import Run

_FILES = "Files"
_EPOCHS = 10
"""Without --epochs and --steps."""

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
    """
    del json
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    if not data:
        raise _usage("no-data", "--data is missing: there is nothing to train with", "add --data FILE.npz")
    if keep not in ("best", "last"):
        raise _usage("bad-option", f"--keep {keep}: there is no such choice", "best or last")
    if validation_data and validation is not None:
        raise _usage("no-effect", "--validation has no effect beside --validation-data", "leave one of the two out")
    if validation is not None and not 0 < validation < 1:
        message = f"--validation {validation:g} is not a fraction of the rows"
        raise _usage("bad-option", message, "a number between 0 and 1")
    from dlc.cli.train_files import check_outputs, check_resume, checkpoint_file, kept_as
    from dlc.cli.trained import tell_start
    from dlc.cli.workspace import Workspace
    from dlc.training.loop.checkpoint import read_checkpoint
    from dlc.training.loop.run import Outputs, Run

    path = checkpoint_file(program, checkpoint)
    registry = Workspace.open(terminal).registry
    found = _program(registry, program, max_memory)
    files = {"--checkpoint": path, "--export": export, "--log": log, "--html": html}
    check_outputs(files, (*data, *(validation_data or ())))
    check_resume(path, resume=resume, fresh=fresh)
    held = read_checkpoint(path) if resume else None
    until = _EPOCHS if epochs is None and steps is None else epochs
    course = replace(
        _course(terminal, found, data, validation, validation_data or (), int(_setting(held, "seed", seed, 0))),
        shuffle=_setting(held, "shuffle", shuffle, True),
        epochs=until,
        steps=steps,
        patience=patience,
        losses=registry.training_parts.losses,
    )
    kept = None if resume else kept_as(path, fresh=fresh)
    run = Run(found, course, Outputs(path, checkpoint_every, export, keep, log, html, kept))
    if held is not None and (message := run.resume(held)):
        terminal.tell(Diagnostic("best-lost", message, "note"))
    if kept is not None:
        message = f"the checkpoint of an earlier run is kept as {kept}, once this run writes its own"
        terminal.tell(Diagnostic("kept", message, "note"))
    tell_start(terminal, run)
    return _ran(terminal, run)


def _ran(terminal: Terminal, run: Run) -> Outcome:
    """Train, show it, and tell how it ended."""
    from dlc.cli.trained import Shown, document, summary

    with terminal.bar(run.course.total) as bar, _signals(run):
        shown = Shown(terminal, run, bar)
        run.on_step, run.on_validation, run.on_epoch = shown.step, shown.validation, shown.epoch
        try:
            ending: Ending | Literal["failed"] = run.go()
        except DlcError as problem:
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
        run.stop = True

    held = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


def _program(registry: Registry, path: Path, max_memory: int | None) -> TrainingProgram:
    """The program in a directory or file; raises DlcError if it is none that learns."""
    from dlc.runtime import loading

    directory = path.parent if path.is_file() else path
    help = f"build it with: dlc build MODEL --train 'loss=cross-entropy,optimizer=adam' -o {directory}"
    if not path.exists():
        raise _usage("not-an-artifact", f"{path} is not a directory or file with a program", help)
    found: Any = loading.load(path, registry, max_memory=max_memory)
    if not hasattr(found, "train_step"):
        raise _usage("no-training", f"{path} is not a training program", help)
    return found


def _course(
    terminal: Terminal,
    program: TrainingProgram,
    files: Sequence[str],
    fraction: float | None,
    validation: Sequence[str],
    seed: int,
) -> Course:
    """The data, read and checked, with its validation part. Raises DlcError."""
    from dlc.training.loop.data import batch_size, read_data
    from dlc.training.loop.loop import Course

    size = batch_size(program.arguments)
    with terminal.progress() as progress:
        progress.at("reading the data")
        data = read_data(files, program.arguments)
        judged = read_data(validation, program.arguments) if validation else None
    if not terminal.quiet:
        terminal.tell(*data.notes, *(judged.notes if judged else ()))
    if fraction is not None:
        data, judged = _divided(data, fraction, seed)
    if data.rows < size:
        raise error(
            "too-few-rows",
            f"{data.rows:,} training rows are fewer than a batch of {size}",
            help="build the program for a smaller batch, with --dim or --input",
            exit_code=ExitCode.USAGE,
        )
    return Course(data, judged, size, seed)


def _divided(data: DataSet, fraction: float, seed: int) -> tuple[DataSet, DataSet]:
    """(rows to train with, rows to judge by), chosen by the seed."""
    import numpy as np

    from dlc.training.loop.shuffle import permutation

    count = min(max(1, round(data.rows * fraction)), data.rows)
    order = permutation(data.rows, seed, -1)  # epochs have numbers from 0
    return data.split(np.sort(order[count:])), data.split(np.sort(order[:count]))


def _setting(held: Checkpoint | None, name: str, given: Any, default: Any) -> Any:
    """A setting as given, else as in the run that goes on, else its default."""
    if given is not None:
        return given
    value = held.identity.get(name, default) if held else default
    return value if type(value) is type(default) else default


def _noted(diagnostic: Diagnostic, note: str) -> Diagnostic:
    return replace(diagnostic, notes=(*diagnostic.notes, note))


def _usage(code: str, message: str, help: str) -> DlcError:
    return error(code, message, help=help, exit_code=ExitCode.USAGE)
