"""`dlc tune`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlc.base.diagnostics import ExitCode, error
from dlc.cli import flags
from dlc.cli.commands.run import Seed
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Outcome, Terminal

if TYPE_CHECKING:
    from dlc.cache import Cache
    from dlc.cli.progress import Bar
    from dlc.cli.tune_text import Report
    from dlc.cli.workspace import Workspace
    from dlc.driver.prepare import Prepared
    from dlc.tune.kernels import ProgramKernel
    from dlc.tune.place import Place, Request, Tuned
    from dlc.tune.tuning import Progress

Models = Annotated[list[str], typer.Argument(metavar="MODEL", help="The model's file; with --merge, files to merge.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the records to a file, which dlc build --tune FILE uses."
    ),
]
Budget = Annotated[
    float, typer.Option("--budget", metavar="SECONDS", min=0.0, help="Time for all kernels, building included.")
]
Kernels = Annotated[
    str,
    typer.Option(
        "--kernels",
        metavar="N|WORD[,WORD]",
        help="Only the N kernels that are estimated to take most time, or those with a node whose name has a word, or "
        "whose digest begins with it.",
    ),
]
Candidates = Annotated[
    int, typer.Option("--candidates", metavar="N", min=1, help="Schedules of a kernel that are measured, at most.")
]
ExecutorOption = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="local|dask://HOST:PORT",
        help="Where kernels are built and measured: here, or on the workers of a Dask cluster.",
    ),
]
Merge = Annotated[
    bool,
    typer.Option("--merge", help="Merge files of records into one: of a kernel and machine the faster record stays."),
]


@flags.spelled
def tune(
    ctx: typer.Context,
    models: Models,
    options: flags.TuneOptions,
    cache: CacheOptions,
    output: Output = None,
    budget: Budget = 60.0,
    kernels: Kernels = "",
    candidates: Candidates = 16,
    executor: ExecutorOption = "local",
    merge: Merge = False,
    seed: Seed = 0,
    jobs: flags.Jobs = 0,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Measure which schedules of a program's kernels are fastest on this computer, and keep them for builds.

    For each kernel, those that take most time first, the schedules of least estimated time are built, compared with
    the default one's results, and called in turn. Records go into the cache, and to a file that dlc build --tune FILE
    uses without measuring anything. Kernels that the cache has records of are not measured again, except with
    --cache refresh. Ctrl-C keeps what was found.

    Exit code 3 if a schedule gives other results than the default one.
    """
    del json
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    if merge:
        return _merged(models, options, output)
    if len(models) != 1:
        message = f"{len(models)} models are given"
        raise error("bad-option", message, help="tune one at a time; --merge joins files", exit_code=ExitCode.USAGE)
    from dlc.cli.train_files import check_outputs
    from dlc.cli.tune_text import tune_json, tune_text
    from dlc.cli.workspace import Workspace

    check_outputs({"--output": output}, models)
    space = Workspace.open(terminal, cache)
    prepared = space.prepare(options.of(models[0]))
    with space.cache() as opened:
        asked = _Asked(kernels, candidates, executor, budget, seed, jobs)
        report = _tuned(space, prepared, opened, asked, output)
    return Outcome(tune_text(report), tune_json(report), report.code)


def _merged(files: Sequence[str], options: BuildOptions, output: Path | None) -> Outcome:
    from dlc.api.tuning import Tuning, read_tuning
    from dlc.files.writing import write_whole

    for flag in options.given:
        raise error("no-effect", f"{flag}: --merge builds nothing", help="leave it out", exit_code=ExitCode.USAGE)
    if output is None:
        message = "--merge needs a file to write to"
        raise error("bad-option", message, help="dlc tune --merge A B -o C", exit_code=ExitCode.USAGE)
    given = [r for f in files for r in read_tuning(Path(f)).records]
    merged = Tuning(given)
    write_whole(output, merged.text.encode("ascii"))
    count = len(merged.records)
    text = f"{output}: {count} records of {len(given)} in {len(files)} files"
    return Outcome(text, {"output": str(output), "records": count, "read": len(given)})


@dataclass(frozen=True)
class _Asked:
    """What flags say."""

    kernels: str
    candidates: int
    executor: str
    budget: float
    seed: int
    jobs: int


def _tuned(space: Workspace, prepared: Prepared, cache: Cache, asked: _Asked, output: Path | None) -> Report:
    from dlc.api.tuning import Tuning
    from dlc.cli.tune_text import Report
    from dlc.driver.kernel_graphs import before_order, cycles_of, kernel_graphs
    from dlc.files.writing import write_whole
    from dlc.spec import Spec
    from dlc.tune.executors import LOCAL
    from dlc.tune.kernels import kernels_of
    from dlc.tune.known import recalled
    from dlc.tune.place import Place, Request, cannot_tune

    tuner = prepared.pipeline.backend.tuner()
    if tuner is None:
        raise cannot_tune(prepared.pipeline.backend)
    here = tuner.fingerprint()
    last, rest = before_order(prepared.pipeline)
    built = space.compile(prepared, cache, jobs=asked.jobs, stop_after=last)
    found, left = kernels_of(kernel_graphs(built.steps))
    assert prepared.source.path is not None
    session = space.session(cache, prepared.source.path, asked.jobs, lambda running: None)  # noqa: ARG005
    session = replace(session, observers=())
    cycles = cycles_of([k.kernel for k in found], prepared.pipeline, session)
    weights = {k.digest: float(cycles[k.digest] * k.calls) for k in found}
    chosen = _wanted(found, weights, asked.kernels)
    # What workers are is not known before they have measured something.
    known = recalled(cache, (k.digest for k in chosen), here) if asked.executor == LOCAL else []
    done = frozenset(r.kernel for r in known)
    missing = [k for k in chosen if k.digest not in done]
    spec, pipeline = str(prepared.pipeline.backend), Spec.print_pipeline([step.stage.to_spec() for step in rest])

    def request(kernel: ProgramKernel, seconds: float) -> Request:
        return Request(kernel, spec, pipeline, asked.candidates, asked.seed, seconds)

    with space.terminal.bar(len(missing)) as bar:
        place = Place(space.registry, session)
        progress, notes = _measured(missing, weights, asked, _Shown(bar, cache), place, request)
    records = [*known, *(t.record for t in progress.tuned.values())]
    if output is not None:
        write_whole(output, Tuning(records).text.encode("ascii"))
    return Report(chosen, records, progress, done, here, left, notes, output)


@dataclass
class _Shown:
    """A bar with the kernels that are done; what is found of them is kept at once."""

    bar: Bar
    cache: Cache
    kernel: str = ""
    count: int = 0

    def say(self, text: str) -> None:
        """What is done with the kernel now."""
        self.bar.at(self.count, f"{self.kernel}: {text}")

    def started(self, kernel: ProgramKernel) -> None:
        """A kernel begins."""
        self.kernel = " ".join(kernel.nodes) or kernel.digest[:16]
        self.say("begins")

    def finished(self, kernel: ProgramKernel, tuned: Tuned) -> None:
        """A kernel is done."""
        from dlc.tune.known import remember

        del kernel
        remember(self.cache, tuned.record)
        self.count += 1


def _measured(
    kernels: Sequence[ProgramKernel],
    weights: Mapping[str, float],
    asked: _Asked,
    shown: _Shown,
    place: Place,
    request: Callable[[ProgramKernel, float], Request],
) -> tuple[Progress, Sequence[str]]:
    """What is found of kernels in the time that there is, and notes on where that was."""
    from dlc.tune.executors import Here, opened
    from dlc.tune.tuning import tune_all

    lanes = opened(asked.executor, lambda: Here(place, shown.say))
    try:
        done = tune_all(
            kernels, weights, lanes.all, request, asked.budget, on_start=shown.started, on_found=shown.finished
        )
    finally:
        lanes.close()
    return done, lanes.notes


def _wanted(kernels: Sequence[ProgramKernel], weights: Mapping[str, float], wanted: str) -> list[ProgramKernel]:
    """The kernels of --kernels, by the time that they are estimated to take. Raises DlcError (USAGE) for none."""
    ranked = sorted(kernels, key=lambda k: (-weights[k.digest], k.digest))
    if not wanted:
        return ranked
    if wanted.isdecimal() and len(wanted) < _DIGITS:
        return ranked[: int(wanted)]
    words = [w.strip() for w in wanted.split(",") if w.strip()]
    found = [k for k in ranked if any(k.digest.startswith(w) or any(w in n for n in k.nodes) for w in words)]
    if not found:
        raise error(
            "no-effect",
            f"--kernels {wanted}: no kernel has such a node",
            help="--explain schedule-kernels lists kernels with their nodes",
            exit_code=ExitCode.USAGE,
        )
    return found


_DIGITS = 8
"""From here on a number is the beginning of a digest."""
