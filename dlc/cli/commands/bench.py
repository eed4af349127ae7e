"""`dlc bench`."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlc.base.diagnostics import ExitCode, did_you_mean, error, escape
from dlc.cli import flags
from dlc.cli.bench_measure import Opened, measure
from dlc.cli.commands.run import Files, Seed, Subject
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Outcome, Terminal

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.api.program import Program
    from dlc.bench.times import Length
    from dlc.cli.workspace import Prepared, Workspace
    from dlc.driver.build import Build
    from dlc.record.record import Record

Rounds = Annotated[
    int | None,
    typer.Option("--rounds", metavar="N", min=1, help="Number of rounds: each program is called once in each."),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="S",
        min=0.0,
        help="How long to measure, in place of --rounds; at least five rounds. [default: 2]",
    ),
]
Pause = Annotated[
    float,
    typer.Option(
        "--pause",
        metavar="MS",
        min=0.0,
        show_default="80",
        help="Also measure calls that come so many milliseconds after the last one, as those of services do; 0: only "
        "calls back to back.",
    ),
]
Against = Annotated[
    str,
    typer.Option(
        "--against",
        metavar="NAME[,NAME]",
        help="Other runtimes that run the same model, in turn and with as many threads: onnxruntime, openvino. What is "
        "not installed is left out with a note.",
    ),
]
Kernels = Annotated[
    bool | None,
    typer.Option(
        "--kernels/--no-kernels",
        help="Measure each step of the program too, in a second build, and compare it with what this machine can do at "
        "most. By default where the target can.",
    ),
]
Threads = Annotated[
    str,
    typer.Option(
        "--threads",
        metavar="N[,N]",
        help="Numbers of threads: a program is built and measured for each, in turn, and compared with as many cores. "
        "[default: as the target says]",
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE.html", help="Write a report with all steps and their roofline.")
]
RecordFile = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE.json",
        help="Write the record of the build with the times of its layers; dlc report reads it.",
    ),
]


@flags.spelled
def bench(
    ctx: typer.Context,
    subject: Subject,
    options: flags.BenchOptions,
    cache: CacheOptions,
    inputs: Files = None,
    seed: Seed = 0,
    rounds: Rounds = None,
    seconds: Seconds = None,
    pause: Pause = 80.0,
    against: Against = "",
    kernels: Kernels = None,
    threads: Threads = "",
    html: Html = None,
    record: RecordFile = None,
    max_memory: flags.MaxMemory = None,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Measure how fast a model or program is: per call, per step, against this machine's limits and other runtimes.

    Programs are called in turn, so that what else the machine does slows all of them. Times are those of whole calls
    from Python: median, 10th and 90th percentile; of calls back to back, and of calls after a pause, when threads sleep
    and caches are cold. Per step: time, share of all steps, operations, bytes, and how much
    it reaches of what multiply-adds, caches and memory of this machine allow, which is measured in the same run.

    Exit code 3 if outputs differ from those of another runtime by more than dlc verify allows.
    """
    del json
    from dlc.cli.bench_text import bench_json, bench_text
    from dlc.cli.train_files import check_outputs
    from dlc.cli.workspace import Workspace
    from dlc.record.bench import with_runs

    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    length = _length(rounds, seconds)
    names, counts = _peers(against), _counts(threads)
    check_outputs({"--html": html, "--record": record}, (subject, *(inputs or ())))
    space = Workspace.open(terminal, cache)
    with ExitStack() as stack:
        opened = _opened(stack, space, options.of(subject), kernels, max_memory, counts)
        results = measure(terminal, opened, subject, inputs or [], seed, names, length, pause / 1000)
    build = opened[0].record() if opened[0].record and (html or record) else None
    whole = with_runs(build, results)
    _write(whole, html, record)
    code = ExitCode.OK if all(row.agrees for r in results for row in r.rows) else ExitCode.MISMATCH
    files = {name: str(path) if path else None for name, path in (("html", html), ("record", record))}
    lines = [bench_text(whole), *(f"{'report' if n == 'html' else n}: {escape(p)}" for n, p in files.items() if p)]
    return Outcome("\n".join(lines), {**bench_json(whole), **files}, code)


def _write(whole: Record, html: Path | None, record: Path | None) -> None:
    from dlc.files.writing import write_whole

    if html:
        from dlc.html.build import report_html

        write_whole(html, report_html(whole).encode("utf-8"))
    if record:
        from dlc.record.files import record_text

        write_whole(record, record_text(whole).encode("utf-8"))


def _length(rounds: int | None, seconds: float | None) -> Length:
    from dlc.bench.times import Length

    if rounds is not None and seconds is not None:
        message = "--rounds and --seconds both say how long to measure"
        raise error("no-effect", message, help="leave one of the two out", exit_code=ExitCode.USAGE)
    return Length(rounds) if seconds is None else Length(seconds=seconds)


def _counts(text: str) -> tuple[int, ...]:
    """The numbers of --threads, each once. Raises DlcError (USAGE) for what is none."""
    words = [word.strip() for word in text.split(",")] if text else []
    for word in words:
        if not (word.isdecimal() and int(word)):
            message = f"--threads {text}: {word!r} is no number of threads"
            raise error("bad-option", message, help="give it as 1,2", exit_code=ExitCode.USAGE)
    return tuple(dict.fromkeys(map(int, words)))


def _peers(text: str) -> tuple[str, ...]:
    """The names of --against, each once. Raises DlcError (USAGE) for one that is unknown."""
    from dlc.bench.peers import PEERS

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in PEERS:
            raise error(
                "bad-option",
                f"--against {name}: there is no such runtime",
                help=did_you_mean(name, PEERS, "runtimes"),
                exit_code=ExitCode.USAGE,
            )
    return names


def _opened(
    stack: ExitStack,
    space: Workspace,
    choice: BuildOptions,
    kernels: bool | None,
    max_memory: int | None,
    counts: tuple[int, ...],
) -> tuple[Opened, ...]:
    """The program of each number of threads, and where steps are measured a second one each."""
    from dlc.cli.functions import plan_of
    from dlc.cli.programs import program_file, refuse_flags
    from dlc.runtime.loading import load, made_by

    if Path(choice.model).is_dir() or program_file(space, choice.model):
        refuse_flags(choice)
        why = "the steps of a program that is built already are not known"
        if kernels:
            raise _no_steps(why, "give the model instead")
        if counts:
            message = f"--threads: {choice.model} is built already"
            raise error("no-effect", message, help="give the model instead", exit_code=ExitCode.USAGE)
        program = load(choice.model, space.registry, max_memory=max_memory)
        return (Opened(program, made_by(Path(choice.model), space.registry), None, None, None, None, why),)
    prepared = space.prepare(choice)

    def built(backend: Backend) -> tuple[Program, Build]:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dlc-")))
        made = space.build_into(replace(prepared, pipeline=replace(prepared.pipeline, backend=backend)), directory)
        return load(directory, space.registry, max_memory=max_memory), made

    def opened(backend: Backend) -> Opened:
        measuring = None if kernels is False else backend.profiler()
        why = "" if kernels is False else f"{backend.name} does not measure the steps of its programs"
        if kernels and measuring is None:
            raise _no_steps(why, "leave it out")
        program, made = built(backend)
        model, plan = Path(choice.model), plan_of(made.steps)
        record = partial(_record, prepared, backend, made)
        functions = backend.kernel_functions(made.last.value)
        if measuring is None or plan is None:
            return Opened(program, backend, model, plan, None, None, why, record, functions)
        profiled, _ = built(measuring[0])
        return Opened(program, backend, model, plan, measuring[1], profiled, record=record, functions=functions)

    backend = prepared.pipeline.backend
    return tuple(opened(backend.with_threads(n)) for n in counts) or (opened(backend),)


def _record(prepared: Prepared, backend: Backend, made: Build) -> Record:
    from dlc.record.build import record_of

    return record_of(prepared.source.name, prepared.pipeline.text, backend, made.steps, made.last.value)


def _no_steps(why: str, help: str) -> Exception:
    return error("no-effect", f"--kernels: {why}", help=help, exit_code=ExitCode.USAGE)
