"""`dlc plan`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.functions import by_function
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.plan_compare import compared_buffers, compared_plans, documents, strategies, table
from dlc.cli.plan_memories import memories_document, memories_text
from dlc.cli.steps import step_table
from dlc.cli.task_options import SUFFIX, TaskOptions
from dlc.cli.terminal import Outcome, Terminal, columns
from dlc.cli.train_files import check_outputs
from dlc.cli.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dlc.api.plan import Plan
    from dlc.cache.step_record import StepRecord
    from dlc.driver.pipeline import ResolvedPipeline
    from dlc.html.plan import View
    from dlc.passes.plan_memory import PlanMemory

_PASS = "plan-memory"
_INSTANCE = ".csv"
"""Of files that hold buffers instead of a model."""
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE.html", help="Draw memory over time, with the live bytes and the lower bound."),
]
Svg = Annotated[
    Path | None,
    typer.Option("--svg", metavar="FILE.svg", help="The same drawing as a file of its own, for documents."),
]
Compare = Annotated[
    str,
    typer.Option(
        "--compare", metavar="NAME,…", help="Plan by each of these strategies, and show the results side by side."
    ),
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
    svg: Svg = None,
    compare: Compare = "",
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
    pictures = Pictures(html, svg)
    check_outputs({"--html": html, "--svg": svg, "--output": output}, (model,))
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

        others = (output, html, svg, compare)
        check_flags(options, [*settings, *(str(given) for given in others if given)])
        return plan_tasks(Path(model), tasks)
    names = strategies(compare, settings) if compare else ()
    space = Workspace.open(terminal, cache)
    if model.lower().endswith(_INSTANCE):
        return _bare(Path(model), space, options, settings, names, output, pictures, tasks)
    if output:
        raise error(
            "no-effect", "--output writes a CSV file with its offsets, and this is a model", exit_code=ExitCode.USAGE
        )
    chosen = tuple(f"{_PASS}.{key}={value}" for key, value in settings.items())
    if tasks != TaskOptions():
        from dlc.cli.plan_curve import settings_of

        chosen += settings_of(tasks, {"--html": html, "--svg": svg, "--compare": compare})
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
    from dlc.html.plan import view_of

    backend = str(prepared.pipeline.backend)
    took = {name: next(s for s in own if s.name == _PASS).made_ms / 1000 for name, own in by_function(steps).items()}
    views = compared_plans(steps, _stage(prepared.pipeline), names) if names else []
    written = pictures.write(
        prepared.source.name, backend, lambda: views or [view_of(p, n, "", took[n]) for n, p in plans.items()]
    )
    return _outcome(prepared.pipeline, plans, took, views, written)


@dataclass(frozen=True)
class Pictures:
    """Where drawings go."""

    html: Path | None
    svg: Path | None

    def write(self, title: str, target: str, drawn: Callable[[], Sequence[View]]) -> dict[str, str | None]:
        """The files that were written, None for those that nobody wants. Raises DlcError: one cannot be written."""
        views = drawn() if self.html or self.svg else ()
        from dlc.files.writing import write_whole
        from dlc.html.plan import plan_html, plan_svg

        if self.html:
            write_whole(self.html, plan_html(title, target, views).encode("utf-8"))
        if self.svg:
            write_whole(self.svg, plan_svg(title, views).encode("utf-8"))
        return {"html": str(self.html) if self.html else None, "svg": str(self.svg) if self.svg else None}


def _bare(
    path: Path,
    space: Workspace,
    options: BuildOptions,
    settings: Mapping[str, str],
    names: Sequence[str],
    output: Path | None,
    pictures: Pictures,
    tasks: TaskOptions,
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
    if tasks != TaskOptions():
        message = "--memory, --budget, --curve and --states: buffers of a CSV file have no steps to execute again"
        raise error("no-effect", message, help="leave them out", exit_code=ExitCode.USAGE)
    text = " ".join(f"{key}={value}" for key, value in {"align": "1", **settings}.items())
    stage = space.registry.stage(Spec.parse(f"{_PASS}{{{text}}}"))
    assert isinstance(stage, PlanMemory)
    bare = read(path)
    if names:
        if output:
            raise error("no-effect", "--output: --compare finds several placements", exit_code=ExitCode.USAGE)
        views = compared_buffers(bare, stage, names)
        files = pictures.write(path.name, "", lambda: views)
        return Outcome(_with(table(views), files), {"instance": str(path), "compare": documents(views), **files})
    planned = plan_instance(bare, stage)
    for note in planned.report.notes:
        space.terminal.log(escape(note))
    if stage.limit is not None:
        check_limit(planned, stage.limit)
    if output:
        write_whole(output, planned.csv().encode("utf-8"))
    files = {"output": str(output) if output else None, **pictures.write(path.name, "", lambda: [planned.view()])}
    return Outcome(_with(planned.text(), files), {"instance": str(path), **planned.document(), **files})


def _with(text: str, written: Mapping[str, str | None]) -> str:
    """A text, and below it what was written."""
    return "\n".join([text, *(f"{key}: {escape(name)}" for key, name in written.items() if name)])


def _stage(pipeline: ResolvedPipeline) -> PlanMemory:
    """The pass that plans."""
    from dlc.passes.plan_memory import PlanMemory

    return next(step.stage for step in pipeline.whole if isinstance(step.stage, PlanMemory))


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


def _outcome(
    pipeline: ResolvedPipeline,
    plans: Mapping[str, Plan],
    seconds: Mapping[str, float],
    views: Sequence[View],
    written: Mapping[str, str | None],
) -> Outcome:
    from dlc.html.plan import figures

    facts = pipeline.backend.planned(plans)

    found = {name: figures(plan) for name, plan in plans.items()}
    names = ("function", "operations", "peak", "lower bound", "overhead", "without sharing", "seconds", "method")
    rows: list[tuple[str, ...]] = [names]
    for name, f in found.items():
        peak, bound, unshared = (f"{f[key]:,} B" for key in ("peak_bytes", "bound_bytes", "unshared_bytes"))
        proven = plans[name].facts.get("floor") == f["peak_bytes"]  # by a search: the bound itself is smaller
        overhead = f"{f['overhead_percent']} %" + (" (optimal)" if proven else "")
        took = f"{seconds[name]:.3f}"
        rows.append((name, f"{f['steps']:,}", peak, bound, overhead, unshared, took, str(f["method"])))
    right = (1, 2, 3, 4, 5, 6)
    if list(found) == [""]:
        rows, right = [row[1:] for row in rows], (0, 1, 2, 3, 4, 5)
    more = memories_text(plans)
    held = {name: f["held_values"] for name, f in found.items() if f["held_values"]}
    more += "".join(
        f"\n{f'{name}: ' if name else ''}{n} values in place of their concatenation" for name, n in held.items()
    )
    more += "".join(f"\n{escape(line)}" for line in pipeline.backend.summary(facts)) if facts else ""
    text = table(views) if views else columns(rows, right) + more
    functions = [
        {"function": name, **f, "seconds": round(seconds[name], 4), "regions": dict(plan.regions)}
        | (memories_document(plan) if len(plan.own_regions) > 1 else {})
        for (name, f), plan in zip(found.items(), plans.values(), strict=True)
    ]
    known = {"target": str(pipeline.backend), "pipeline": pipeline.text, "functions": functions}
    compared = {"compare": documents(views)} if views else {}
    return Outcome(_with(text, written), {**known, "facts": dict(facts), **compared, **written})
