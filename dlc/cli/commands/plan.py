"""`dlc plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.functions import by_function
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.steps import step_table
from dlc.cli.task_options import SUFFIX, TaskOptions
from dlc.cli.terminal import Outcome, Terminal, columns
from dlc.cli.train_files import check_outputs
from dlc.cli.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlc.api.plan import Plan
    from dlc.cache.step_record import StepRecord
    from dlc.driver.pipeline import ResolvedPipeline

_PASS = "plan-memory"
_INSTANCE = ".csv"
"""Of files that hold buffers instead of a model."""
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE.html", help="Draw memory over time, with the live bytes and the lower bound."),
]
Strategy = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How offsets are chosen: none, greedy, best-fit, search, exact or auto. By default search.",
    ),
]
Limit = Annotated[
    str, typer.Option(metavar="SIZE", help="Maximum size of the arena, as 256KiB: exit code 4 where it takes more.")
]
Seed = Annotated[str, typer.Option(metavar="N", help="Seed of the search; equal seeds give equal plans.")]
Align = Annotated[
    str, typer.Option(metavar="N", help="Alignment of every offset, in bytes. By default 64; 1 for a CSV file.")
]
Allocator = Annotated[str, typer.Option(metavar="NAME", help="What decides for exact and auto: dlc list allocators.")]
Work = Annotated[
    str, typer.Option(metavar="N", help="What the allocator may do, in millions of its steps: 200 take about a second.")
]
Seconds = Annotated[
    str, typer.Option(metavar="N", help="Wall-clock limit of the allocator; then results depend on the machine.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.csv", help="Write a CSV file with its offsets.")
]


@flags.spelled
def plan(
    ctx: typer.Context,
    model: flags.Model,
    options: BuildOptions,
    tasks: TaskOptions,
    cache: CacheOptions,
    strategy: Strategy = "",
    limit: Limit = "",
    seed: Seed = "",
    align: Align = "",
    allocator: Allocator = "",
    work: Work = "",
    seconds: Seconds = "",
    output: Output = None,
    html: Html = None,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Plan the memory of a program and print its peak, the lower bound and the overhead over it; nothing is built.

    A training program (--train) has a plan for each of its functions. The lower bound is the
    most bytes that are live at once in this order of operations: no allocation can use less.
    A CSV file id,lower,upper,size is planned as it is: a line for each buffer, live at the steps [lower, upper).
    A file of tasks (.txt) is ordered for the smallest peak. Steps and tasks with costs may be executed again instead of
    keeping their results.
    """
    del json
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    check_outputs({"--html": html, "--output": output}, (model,))
    given = {
        "strategy": strategy,
        "limit": limit,
        "seed": seed,
        "align": align,
        "allocator": allocator,
        "work": work,
        "seconds": seconds,
    }
    settings = {key: value for key, value in given.items() if value}
    is_tasks = model.endswith(SUFFIX) and not options.frontend
    if is_tasks:
        from dlc.cli.plan_tasks import check_flags, plan_tasks

        check_flags(options, [*settings, *(str(path) for path in (output, html) if path)])
        return plan_tasks(Path(model), tasks)
    space = Workspace.open(terminal, cache)
    if model.lower().endswith(_INSTANCE):
        if tasks != TaskOptions():
            message = "--memory, --budget, --curve and --states: buffers of a CSV file have no steps to execute again"
            raise error("no-effect", message, help="leave them out", exit_code=ExitCode.USAGE)
        return _bare(Path(model), space, options, settings, output, html)
    if output:
        raise error(
            "no-effect", "--output writes a CSV file with its offsets, and this is a model", exit_code=ExitCode.USAGE
        )
    chosen = tuple(f"{_PASS}.{key}={value}" for key, value in settings.items())
    if tasks != TaskOptions():
        from dlc.cli.plan_curve import settings_of

        chosen += settings_of(tasks, html)
    prepared = space.prepare(replace(options.of(model), settings=(*options.settings, *chosen)))
    _check(prepared.pipeline)
    if tasks.curve:
        from dlc.cli.plan_curve import plan_curve

        return plan_curve(space, prepared)
    from dlc.graph.closed import unlimited, without_limit

    steps: list[StepRecord[Any]] = []
    try:
        with space.cache() as opened:
            space.compile(prepared, opened, stop_after=_last(prepared.pipeline), on_step=steps.append)
            plans: dict[str, Plan] = {name: own[-1].handle.value for name, own in by_function(steps).items()}
    finally:
        if steps and not terminal.quiet:
            terminal.log(step_table(steps))
    for made in plans.values():
        if free := without_limit(made.graph):
            raise unlimited(free, "a plan is for the largest call, which needs a limit of every size")
    backend = str(prepared.pipeline.backend)
    if html:
        from dlc.files.writing import write_whole
        from dlc.html.memory import plan_html

        write_whole(html, plan_html(prepared.source.name, backend, plans).encode("utf-8"))
    return _outcome(prepared.pipeline, plans, html)


def _bare(
    path: Path,
    space: Workspace,
    options: BuildOptions,
    settings: Mapping[str, str],
    output: Path | None,
    html: Path | None,
) -> Outcome:
    """The plan of a CSV file, whose bytes are all that there is: nothing of a build has a meaning."""
    from dlc.cli.instance import check_limit, plan_instance, read
    from dlc.files.writing import write_whole
    from dlc.passes.plan_memory import PlanMemory
    from dlc.spec import Spec

    if options.given:
        raise error(
            "no-effect",
            f"{', '.join(options.given)}: they say how to build a model, and {escape(path.name)} is none",
            exit_code=ExitCode.USAGE,
        )
    text = " ".join(f"{key}={value}" for key, value in {"align": "1", **settings}.items())
    stage = space.registry.stage(Spec.parse(f"{_PASS}{{{text}}}"))
    assert isinstance(stage, PlanMemory)
    bare = read(path)
    planned = plan_instance(bare, stage)
    for note in planned.report.notes:
        space.terminal.log(escape(note))
    if stage.limit is not None:
        check_limit(planned, stage.limit)
    if output:
        write_whole(output, planned.csv().encode("utf-8"))
    if html:
        write_whole(html, planned.html(path.name).encode("utf-8"))
    written = {"output": str(output) if output else None, "html": str(html) if html else None}
    lines = [planned.text(), *(f"{key}: {escape(name)}" for key, name in written.items() if name)]
    return Outcome("\n".join(lines), {"instance": str(path), **planned.document(), **written})


def _last(pipeline: ResolvedPipeline) -> str:
    """The step to stop after: what a backend refuses of a plan has none."""
    from dlc.driver.pipeline import ACCEPT_VALUES

    return ACCEPT_VALUES if ACCEPT_VALUES in pipeline.step_names else _PASS


def _check(pipeline: ResolvedPipeline) -> None:
    if _PASS not in [step.name for step in pipeline.whole]:
        raise error(
            "no-plan",
            f"the pipeline plans no memory: {pipeline.text}",
            help=f"end it with {_PASS}, or leave --pipeline out",
            exit_code=ExitCode.USAGE,
        )


def _outcome(pipeline: ResolvedPipeline, plans: Mapping[str, Plan], html: Path | None) -> Outcome:
    from dlc.html.memory import figures

    facts = pipeline.backend.planned(plans)

    found = {name: figures(plan) for name, plan in plans.items()}
    names = ("function", "operations", "peak", "lower bound", "overhead", "without sharing", "method")
    rows: list[tuple[str, ...]] = [names]
    for name, f in found.items():
        peak, bound, unshared = (f"{f[key]:,} B" for key in ("peak_bytes", "bound_bytes", "unshared_bytes"))
        proven = plans[name].facts.get("floor") == f["peak_bytes"]  # by a search: the bound itself is smaller
        overhead = f"{f['overhead_percent']} %" + (" (optimal)" if proven else "")
        rows.append((name, f"{f['steps']:,}", peak, bound, overhead, unshared, str(f["method"])))
    right = (1, 2, 3, 4, 5)
    if list(found) == [""]:
        rows, right = [row[1:] for row in rows], (0, 1, 2, 3, 4)
    more = "".join(f"\n{escape(line)}" for line in pipeline.backend.summary(facts)) if facts else ""
    text = columns(rows, right) + more + (f"\npicture: {escape(str(html))}" if html else "")
    functions = [{"function": name, **f} for name, f in found.items()]
    known = {"target": str(pipeline.backend), "pipeline": pipeline.text, "functions": functions}
    return Outcome(text, {**known, "facts": dict(facts), "html": str(html) if html else None})
