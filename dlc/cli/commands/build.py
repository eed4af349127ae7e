"""`dlc build`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.diagnostics import ExitCode, Location, error
from dlc.cli import flags
from dlc.cli.commands.verify_loops import LoopVerification
from dlc.cli.commands.verify_steps import StepVerification
from dlc.cli.functions import by_function, headed, plan_of
from dlc.cli.options import CACHE, BuildOptions, CacheOptions, flag
from dlc.cli.quick import default_output
from dlc.cli.rebuild import BuildSummary, outcome, rebuild, remember_build
from dlc.cli.stats import check_stats, stats_text
from dlc.cli.steps import Dump, Steps, explanation, step_json, step_table
from dlc.cli.terminal import Outcome, Terminal
from dlc.cli.workspace import Workspace, configuration, opened_cache

if TYPE_CHECKING:
    from dlc.api.artifact import Artifact
    from dlc.cache import Cache
    from dlc.cache.step_record import StepRecord
    from dlc.config.config import Config
    from dlc.driver.build import Build
    from dlc.driver.prepare import Prepared

_TOLD = "What to print"


@dataclass(frozen=True)
class BuildOutput:
    """Where a build goes, and what it tells beside."""

    output: Path | None = flag(
        None, "--output", "-o", metavar="DIR", help="Directory to write to. By default build/NAME for NAME.onnx."
    )
    stop_after: str = flag(
        "",
        "--stop-after",
        metavar="PASS",
        help="Stop after a pass (or after parse or emit) and print its result; nothing is installed.",
        panel=_TOLD,
        completes="steps",
    )
    dump_ir: str = flag(
        "",
        "--dump-ir",
        metavar="all|changed|PASS",
        help="Write the graph after every pass, every pass that changed it, or one pass, to DIR/ir/NNN-PASS.dlc.",
        panel=_TOLD,
        completes="steps",
    )
    print_pipeline: bool = flag(
        False,
        "--print-pipeline",
        help="Print every pass with its options and where they come from, and stop.",
        panel=_TOLD,
    )
    explain: str = flag(
        "",
        "--explain",
        metavar="PASS",
        help="Print what a pass did, and what it did not do and why.",
        panel=_TOLD,
        completes="steps",
    )
    html: bool = flag(
        False,
        "--html",
        help="Write DIR/report.html: the graph, layers, memory over time, kernels, weights and passes; pages that the "
        "target adds; and DIR/record.json, as --record does.",
        panel=_TOLD,
    )
    record: bool = flag(
        False,
        "--record",
        help="Write DIR/record.json: passes, layers, kernels with their C functions, memory and weights. dlc report "
        "reads it.",
        panel=_TOLD,
    )
    stats: bool = flag(False, "--stats", help="Print the number of loop iterations of every kernel.", panel=_TOLD)
    verify_steps: bool = flag(
        False,
        "--verify-steps",
        help="Evaluate the graph before and after every pass on random inputs; exit code 3 at the first pass that "
        "changes an output.",
        panel=_TOLD,
    )
    verify_loops: bool = flag(
        False,
        "--verify-loops",
        help="Check that the loops of every kernel, as they were scheduled, compute what the kernel says; exit code 3 "
        "at the first kernel whose loops do not.",
        panel=_TOLD,
    )

    @property
    def plain(self) -> bool:
        """Whether nothing but the program is asked for."""
        return replace(self, output=None) == BuildOutput()


Models = Annotated[list[str], typer.Argument(metavar="MODEL…", help="The model's file, or several.")]
ExecutorOption = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="local|dask://HOST:PORT",
        help="Where several models are built: by processes of this computer, or by the workers of a Dask cluster that "
        "share its cache.",
        rich_help_panel=CACHE,
    ),
]


@flags.spelled
def build(
    ctx: typer.Context,
    models: Models,
    options: BuildOptions,
    asked: BuildOutput,
    cache: CacheOptions,
    executor: ExecutorOption = "local",
    jobs: flags.Jobs = 0,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Compile a model: sources, header, weights and library, written to one directory.

    Several models are built beside each other, each into a directory of its name in that of -o: dlc build *.onnx -o
    out. Those that fail are listed in the end, and the others are built.
    """
    del json  # the frame reads it before anything can fail
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    if len(models) > 1 or executor != "local":
        return _many(terminal, models, options, asked, cache, executor, jobs)
    (model,) = models
    chosen, directory = options.of(model), asked.output or default_output(model)
    _check(asked, directory)
    if asked.print_pipeline:
        pipeline = Workspace.open(terminal, cache).prepare(chosen).pipeline
        return Outcome(str(pipeline), {"pipeline": pipeline.text, "target": str(pipeline.backend)})
    config = configuration(cache)
    # Opened once: what is learnt of servers behind the cache, such as that one does not answer, holds for all of it.
    with opened_cache(terminal, config) as opened:
        if asked.plain and (found := _built_before(terminal, config, opened, chosen, directory)):
            return found
        space = Workspace.open(terminal, cache)
        prepared = space.prepare(chosen)
        done, build = _build(space, prepared, opened, asked, directory, jobs)
        if asked.plain:
            remember_build(space, prepared, chosen, opened, build, directory)
        return done


def _many(
    terminal: Terminal,
    models: Sequence[str],
    options: BuildOptions,
    asked: BuildOutput,
    cache: CacheOptions,
    executor: str,
    jobs: int,
) -> Outcome:
    from dlc.cli.build_many import Many, build_many

    plain = replace(asked, html=False)
    if not plain.plain:
        raise error(
            "no-effect",
            "with several models, or workers, a build prints nothing but its result",
            help="build one model alone for --stop-after, --dump-ir, --print-pipeline, --explain, --stats and "
            "--verify-…",
            exit_code=ExitCode.USAGE,
        )
    _check(asked, asked.output or Path("build"))
    more = ("--html",) if asked.html else ()
    return build_many(terminal, Many(models, options, cache, asked.output, executor, jobs, more))


def _built_before(
    terminal: Terminal, config: Config, cache: Cache, chosen: BuildOptions, directory: Path
) -> Outcome | None:
    return None if cache.mode in ("off", "refresh") else rebuild(terminal, config, cache, chosen, directory)


def _check(asked: BuildOutput, directory: Path) -> None:
    """What would fail at the end is reported at the start."""
    html, stop_after = asked.html or asked.record, asked.stop_after
    if html and stop_after not in ("", "build"):
        raise error(
            "no-effect",
            f"{'--html' if asked.html else '--record'}: a build that stops after {stop_after} has no report",
            help="leave one of the two out",
            exit_code=ExitCode.USAGE,
        )
    there = next((p for p in (directory, *directory.parents) if p.exists()), Path())
    reason = "" if there.is_dir() else "is not a directory"
    if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
        reason = "may not be written to"
    if reason and (html or not stop_after):
        raise error(
            "cannot-write",
            f"{directory} cannot be written: {there} {reason}",
            location=Location(str(directory)),
            help="choose another directory with -o",
        )


def _build(
    space: Workspace, prepared: Prepared, cache: Cache, asked: BuildOutput, directory: Path, jobs: int
) -> tuple[Outcome, Build]:
    from dlc.files.hashing import OwnedFile
    from dlc.runtime.install import install

    start = time.perf_counter()
    steps: list[StepRecord[Any]] = []
    dump = Dump.of(asked.dump_ir, directory / "ir", prepared.pipeline)
    explained = explanation(asked.explain, prepared.pipeline, prepared.frontend.runs)
    if asked.stats:
        check_stats(prepared.pipeline, asked.stop_after)

    verified: dict[str, StepVerification | LoopVerification] = {}

    def on_step(step: StepRecord[Any]) -> None:
        steps.append(step)
        dump.last(steps)
        for verification in verified.values():
            verification.see(step)

    try:
        with space.terminal.progress() as line:
            if asked.verify_steps:
                verified["verify_steps"] = StepVerification(prepared.pipeline, line.at)
            if asked.verify_loops:
                verified["verify_loops"] = LoopVerification(prepared.pipeline, line.at)
            where = asked.stop_after
            build = space.compile(prepared, cache, jobs=jobs, stop_after=where, on_step=on_step, progress=line)
    finally:
        if steps and not space.terminal.quiet:
            space.terminal.log(step_table(steps))
    target, pipeline = str(prepared.pipeline.backend), prepared.pipeline.text
    texts, extra = [*explained(steps)], dict[str, Any]()
    if asked.stats:
        counted, extra["stats"] = stats_text(prepared.pipeline.backend, steps)
        texts.append(counted)
    for name, verification in verified.items():
        texts += verification.lines()
        extra[name] = verification.json()
    if build.last.kind != "artifact" or asked.stop_after == "emit":
        common = {"target": target, "pipeline": pipeline, "steps": [step_json(step) for step in steps], **extra}
        return _stopped(steps, texts, common), build
    artifact: Artifact = build.last.value
    if asked.html or asked.record:
        _add_record(artifact, steps, prepared, cache, directory, html=asked.html)
    written = install(artifact, directory)
    for content in artifact.files.values():
        if isinstance(content, OwnedFile):
            content.discard()  # what is installed may have been a second name of it
    memory, lines = _memory(artifact, steps), prepared.pipeline.backend.summary(artifact.facts)
    summary = BuildSummary(target, pipeline, steps, artifact.entry, memory, lines)
    done = outcome(cache, directory, written, summary, start)
    return replace(done, text="\n".join([*texts, done.text]), data={**done.data, **extra}), build


def _stopped(steps: Steps, texts: Sequence[str], common: dict[str, Any]) -> Outcome:
    from dlc.driver.state_text import print_state

    last = by_function(steps) if steps[-1].function else {"": steps}
    text = headed({name: print_state(own[-1].handle.value) for name, own in last.items()}, "# ")
    return Outcome("\n".join([*texts, text]), {**common, "text": text})


def _memory(artifact: Artifact, steps: Steps) -> dict[str, int | str]:
    """What the planner said; the plan is loaded only if the artifact does not repeat it."""
    plan = None if {"bound", "peak_bytes"} & artifact.facts.keys() else plan_of(steps)
    return {**artifact.facts, **(plan.facts if plan else {})}


def _add_record(
    artifact: Artifact, steps: Steps, prepared: Prepared, cache: Cache, directory: Path, *, html: bool
) -> None:
    """Write the record of the build, and the pages that are made from it."""
    from dlc.files.writing import write_whole
    from dlc.record.build import record_of
    from dlc.record.files import record_text
    from dlc.record.record import NAME, Counts

    backend, counts = prepared.pipeline.backend, cache.counts
    name, text = prepared.source.name, prepared.pipeline.text
    record = record_of(name, text, backend, steps, artifact, Counts(counts.hits, counts.misses))
    written = {NAME: record_text(record)}
    if html:
        from dlc.html.build import report_html

        pages = backend.pages(artifact)
        written |= {"report.html": report_html(record, tuple(pages)), **pages}
    for file, content in written.items():
        write_whole(directory / file, content.encode("utf-8"), make_directory=True)
