"""`dlc plan MODEL` with steps that are executed again: options of the pass `rematerialise`, and a table of budgets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dlc.base.diagnostics import ExitCode, error
from dlc.base.report import Report
from dlc.cli.functions import plan_of
from dlc.cli.plan_tasks import BUDGETS, wishes
from dlc.cli.steps import step_table
from dlc.cli.task_options import TaskOptions
from dlc.cli.terminal import Outcome, columns

if TYPE_CHECKING:
    from dlc.api.plan import Plan
    from dlc.cache.step_record import StepRecord
    from dlc.cli.workspace import Workspace
    from dlc.driver.prepare import Prepared
    from dlc.passes.plan_memory import PlanMemory
    from dlc.passes.rematerialise import Rematerialise

_PASS: Final = "rematerialise"
_BEFORE: Final = "order"
"""The pass whose plan the curve is about."""


@dataclass(frozen=True)
class Row:
    """A plan in figures."""

    budget_percent: float
    extra_percent: float
    peak_bytes: int
    arena_bytes: int
    """With offsets."""
    proven: bool
    repeated_steps: int
    cpu_seconds: float


def settings_of(tasks: TaskOptions, others: Mapping[str, object]) -> tuple[str, ...]:
    """What the flags say as options of the pass; `others` are flags that a curve has no use for.

    Raises:
        DlcError: (USAGE) flags exclude each other, or are no size and no percentage.
    """
    memory, budgets = wishes(tasks)
    if tasks.curve and (given := [flag for flag, value in others.items() if value]):
        message = f"{', '.join(given)}: a curve is a table of one strategy, without a picture"
        raise error("no-effect", message, help="leave it out", exit_code=ExitCode.USAGE)
    if tasks.states and not (tasks.memory or budgets):
        message = "--states: of a model, only what executes steps again searches for so many states"
        help = "give --memory, --budget or --curve, or --set order.state-limit=N"
        raise error("no-effect", message, help=help, exit_code=ExitCode.USAGE)
    found = [f"{_PASS}.memory={memory}"] if memory is not None else []
    found += [f"{_PASS}.budget={budgets[0]}"] if tasks.budget else []
    return (*found, *([f"{_PASS}.states={tasks.states}"] if tasks.states else []))


def plan_curve(space: Workspace, prepared: Prepared) -> Outcome:
    """Peaks by budgets of extra work, of the only function or of the one that differentiates.

    Raises:
        DlcError: (USAGE) the pipeline has no pass that executes steps again.
    """
    from dlc.passes.plan_memory import PlanMemory
    from dlc.passes.rematerialise import Rematerialise

    stages = [step.stage for step in prepared.pipeline.whole]
    again = next((stage for stage in stages if isinstance(stage, Rematerialise)), None)
    if again is None:
        help = "put rematerialise between order and plan-memory, or leave --pipeline out"
        message = f"--curve: the pipeline has no pass {_PASS}"
        raise error("no-effect", message, help=help, exit_code=ExitCode.USAGE)
    places = next((stage for stage in stages if isinstance(stage, PlanMemory)), PlanMemory())
    steps: list[StepRecord[Any]] = []
    try:
        with space.cache() as opened:
            space.compile(prepared, opened, stop_after=_BEFORE, on_step=steps.append)
            plan: Plan = plan_of(steps)
    finally:
        if steps and not space.terminal.quiet:
            space.terminal.log(step_table(steps))
    with space.terminal.progress() as line:
        rows: list[Row] = []
        for budget in BUDGETS:
            line.at(f"rematerialise within {budget:g} %")
            rows.append(_row(plan, replace(again, budget=float(budget), memory=None), places))
    rows = [_best(rows, row) for row in rows]
    function = next((s.function for s in reversed(steps) if s.handle.kind == "plan" and s.handle.value is plan), "")
    return _outcome(str(prepared.pipeline.backend), function, plan, rows)


def _row(plan: Plan, again: Rematerialise, places: PlanMemory) -> Row:
    begun = time.process_time()
    made = again.run(plan, Report())
    seconds = round(time.process_time() - begun, 6)
    placed = places.changed(limit=None).run(made, Report())
    facts = {"extra_work_percent": "0", "repeated_optimal": 1, "repeated_steps": 0, **made.facts}
    return Row(
        again.budget,
        float(facts["extra_work_percent"]),
        int(facts["order_peak"]),
        placed.regions["arena"],
        bool(facts["repeated_optimal"]),
        int(facts["repeated_steps"]),
        seconds,
    )


def _best(rows: Sequence[Row], row: Row) -> Row:
    """A row with the smallest peak that any search found within its budget."""
    found = min(
        (r for r in rows if r.extra_percent <= row.budget_percent), key=lambda r: (r.peak_bytes, r.extra_percent)
    )
    if found.peak_bytes == row.peak_bytes:
        return row
    return replace(found, budget_percent=row.budget_percent, cpu_seconds=row.cpu_seconds)


def _outcome(target: str, function: str, plan: Plan, rows: Sequence[Row]) -> Outcome:
    table = [("budget", "extra work", "peak", "arena", "", "again", "seconds")]
    for row in rows:
        figures = f"{row.budget_percent:g} %", f"{row.extra_percent:g} %", f"{row.peak_bytes:,} B"
        proof = "optimal" if row.proven else "not proven"
        table.append((*figures, f"{row.arena_bytes:,} B", proof, f"{row.repeated_steps:,}", f"{row.cpu_seconds:.3f}"))
    head = f"{function}: {len(plan.steps):,} operations" if function else f"{len(plan.steps):,} operations"
    data = {
        "target": target,
        "function": function,
        "operations": len(plan.steps),
        "order_optimal": bool(plan.facts["order_optimal"]),
        "schedules": [asdict(row) for row in rows],
    }
    return Outcome(f"{head}\n{columns(table, (0, 1, 2, 3, 5, 6))}", data)
