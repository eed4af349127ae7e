"""The start of `dlc train`: program, data and checkpoint, read and checked before the first step, by all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, error
from dlc.cli.ranks import agree
from dlc.cli.terminal import Terminal
from dlc.cli.train_files import check_outputs, check_resume, checkpoint_file, kept_as
from dlc.cli.trained import tell_start
from dlc.training.loop.checkpoint import Checkpoint, checkpoint_bytes, read_checkpoint
from dlc.training.loop.data import DataSet, batch_size, read_data
from dlc.training.loop.loop import Course
from dlc.training.loop.run import Outputs, Run
from dlc.training.loop.shuffle import permutation
from dlc.training.loop.together import Statistics, Together

if TYPE_CHECKING:
    from dlc.api.training_program import TrainingProgram
    from dlc.plugins.registry import Registry
    from dlc.training.loop.ranks import Ranks


@dataclass(frozen=True)
class Asked:
    """What the flags of `dlc train` say."""

    program: Path
    data: Sequence[str]
    fraction: float | None
    validation: Sequence[str]
    epochs: int | None
    steps: int | None
    patience: int | None
    seed: int | None
    shuffle: bool | None
    resume: bool
    fresh: bool
    checkpoint: Path | None
    checkpoint_every: int | None
    export: Path | None
    keep: Literal["best", "last"]
    statistics: Statistics
    log: Path | None
    html: Path | None
    max_memory: int | None


def started(terminal: Terminal, asked: Asked, ranks: Ranks) -> Run:
    """The run, ready to go.

    Raises:
        DlcError: what any rank finds wrong; then all raise it.
    """
    from dlc.cli.workspace import Workspace

    registry = agree(ranks, lambda: Workspace.open(terminal, kinds=("backends", "losses")).registry)
    losses = registry.training_parts.losses
    path, program = agree(ranks, lambda: _opened(registry, asked, ranks))
    together = agree(ranks, lambda: Together(program, ranks, asked.statistics, losses=losses))
    if ranks.count > 1:
        together.check_equal(_identity(program), "programs")
    held = _held(path, ranks) if asked.resume else None
    course = replace(
        _course(terminal, program, asked, ranks, int(_setting(held, "seed", asked.seed, 0))),
        shuffle=_setting(held, "shuffle", asked.shuffle, True),
        epochs=asked.epochs,
        steps=asked.steps,
        patience=asked.patience,
        losses=losses,
    )
    keeping = ranks.leads and not asked.resume  # asked last: what is wrong with data comes first
    kept = agree(ranks, lambda: kept_as(path, fresh=asked.fresh) if keeping else None)
    outputs = Outputs(path, asked.checkpoint_every, asked.export, asked.keep, asked.log, asked.html, kept)
    found = Run(program, course, outputs, ranks=ranks, statistics=asked.statistics)
    if held is not None and (message := agree(ranks, lambda: found.resume(held))):
        terminal.tell(Diagnostic("best-lost", message, "note"))
    if kept is not None:
        message = f"the checkpoint of an earlier run is kept as {kept}, once this run writes its own"
        terminal.tell(Diagnostic("kept", message, "note"))
    tell_start(terminal, found)
    return found


def _opened(registry: Registry, asked: Asked, ranks: Ranks) -> tuple[Path, TrainingProgram]:
    """(checkpoint, program); what is written, rank 0 checks."""
    path = checkpoint_file(asked.program, asked.checkpoint)
    found = _program(registry, asked.program, asked.max_memory)
    if ranks.leads:
        files = {"--checkpoint": path, "--export": asked.export, "--log": asked.log, "--html": asked.html}
        check_outputs(files, (*asked.data, *asked.validation))
        check_resume(path, resume=asked.resume, fresh=asked.fresh)
    return path, found


def _identity(program: TrainingProgram) -> bytes:
    """A digest of what ranks must have in common."""
    h = sha256(repr(sorted(program.facts.items())).encode())
    for name, array in program.parameters().items():
        h.update(name.encode() + array.tobytes())
    return h.digest()


def _held(path: Path, ranks: Ranks) -> Checkpoint:
    """The checkpoint, which rank 0 reads for all."""
    content = agree(ranks, lambda: checkpoint_bytes(path) if ranks.leads else b"")
    content = ranks.share(content)
    return agree(ranks, lambda: read_checkpoint(path, content))


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


def _course(terminal: Terminal, program: TrainingProgram, asked: Asked, ranks: Ranks, seed: int) -> Course:
    """The data, checked by rank 0, with its validation part. Raises DlcError."""
    own = batch_size(program.arguments)
    size = own * ranks.count

    def read() -> tuple[DataSet, DataSet | None]:
        with terminal.progress() as progress:
            progress.at("reading the data")
            data = read_data(asked.data, program.arguments, checked=ranks.leads)
            validation = asked.validation
            judged = read_data(validation, program.arguments, checked=ranks.leads) if validation else None
        if not terminal.quiet:
            terminal.tell(*data.notes, *(judged.notes if judged else ()))
        if asked.fraction is not None:
            data, judged = _divided(data, asked.fraction, seed)
        if data.rows < size:
            of = f" of {own} on each of {ranks.count} ranks" if ranks.count > 1 else f" of {size}"
            raise error(
                "too-few-rows",
                f"{data.rows:,} training rows are fewer than a batch{of}",
                help="build the program for a smaller batch, with --dim or --input",
                exit_code=ExitCode.USAGE,
            )
        return data, judged

    data, judged = (_shared(d, ranks) for d in agree(ranks, read))
    assert data is not None
    return Course(data, judged, size, seed, rank=ranks.rank, ranks=ranks.count)


def _shared(data: DataSet | None, ranks: Ranks) -> DataSet | None:
    """With the digest that rank 0 has computed. Raises DlcError (`ranks-differ`): files have other numbers of rows."""
    if data is None or ranks.count == 1:
        return data
    counts = [int(text) for text in ranks.gather(str(data.rows).encode())]
    if other := [k for k, n in enumerate(counts) if n != counts[0]]:
        k = other[0]
        raise error(
            "ranks-differ",
            f"the data of rank {k} has {counts[k]:,} rows, that of rank 0 {counts[0]:,}",
            help="give all ranks the same files",
            exit_code=ExitCode.USAGE,
        )
    return replace(data, digest=ranks.share(data.digest.encode()).decode())


def _divided(data: DataSet, fraction: float, seed: int) -> tuple[DataSet, DataSet]:
    """(rows to train with, rows to judge by), chosen by the seed."""
    count = min(max(1, round(data.rows * fraction)), data.rows)
    order = permutation(data.rows, seed, -1)  # epochs have numbers from 0
    return data.split(np.sort(order[count:])), data.split(np.sort(order[:count]))


def _setting(held: Checkpoint | None, name: str, given: Any, default: Any) -> Any:
    """A setting as given, else as in the run that goes on, else its default."""
    if given is not None:
        return given
    value = held.identity.get(name, default) if held else default
    return value if type(value) is type(default) else default


def _usage(code: str, message: str, help: str) -> DlcError:
    return error(code, message, help=help, exit_code=ExitCode.USAGE)
