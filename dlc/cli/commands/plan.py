"""`dlc plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.functions import by_function
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.steps import step_table
from dlc.cli.task_options import TaskOptions
from dlc.cli.terminal import Outcome, Terminal, columns
from dlc.cli.train_files import check_outputs
from dlc.cli.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlc.api.plan import Plan
    from dlc.cache.step_record import StepRecord
    from dlc.driver.pipeline import ResolvedPipeline

_PASS = "plan-memory"
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE.html", help="Draw memory over time, with the live bytes and the lower bound."),
]


@flags.spelled
def plan(
    ctx: typer.Context,
    model: flags.Model,
    options: BuildOptions,
    tasks: TaskOptions,
    cache: CacheOptions,
    html: Html = None,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Plan the memory of a program and print its peak, the lower bound and the overhead over it; nothing is built.

    A training program (--train) has a plan for each of its functions. The lower bound is the
    most bytes that are live at once in this order of operations: no allocation can use less.
    A file of tasks (.txt) is ordered for the smallest peak; with costs, tasks may run again.
    """
    del json
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    is_tasks = model.endswith(".txt") and not options.frontend
    if is_tasks or tasks != TaskOptions():
        from dlc.cli.plan_tasks import check_flags, plan_tasks

        check_flags(is_tasks, options, tasks, html)
        return plan_tasks(Path(model), tasks)
    check_outputs({"--html": html}, (model,))
    space = Workspace.open(terminal, cache)
    prepared = space.prepare(options.of(model))
    _check(prepared.pipeline)
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
        overhead = f"{f['overhead_percent']} %"
        rows.append((name, f"{f['steps']:,}", peak, bound, overhead, unshared, str(f["method"])))
    right = (1, 2, 3, 4, 5)
    if list(found) == [""]:
        rows, right = [row[1:] for row in rows], (0, 1, 2, 3, 4)
    more = "".join(f"\n{escape(line)}" for line in pipeline.backend.summary(facts)) if facts else ""
    text = columns(rows, right) + more + (f"\npicture: {escape(str(html))}" if html else "")
    functions = [{"function": name, **f} for name, f in found.items()]
    known = {"target": str(pipeline.backend), "pipeline": pipeline.text, "functions": functions}
    return Outcome(text, {**known, "facts": dict(facts), "html": str(html) if html else None})
