"""`dlc plan --compare greedy,search,exact`: the same values placed by several strategies, beside each other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from dlc.base.diagnostics import ExitCode, did_you_mean, error, escape
from dlc.base.report import Report
from dlc.cli.functions import by_function
from dlc.cli.terminal import columns
from dlc.placement import Strategy

if TYPE_CHECKING:
    from dlc.cache.step_record import StepRecord
    from dlc.cli.instance import Bare
    from dlc.html.plan import View
    from dlc.passes.plan_memory import PlanMemory

EXCLUDED = ("strategy", "limit")
"""Settings of a single plan, which mean nothing for several."""


def strategies(text: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """The names of a list, each once. Raises DlcError (USAGE): an unknown one, or settings of a single plan beside."""
    found = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in found:
        if name not in get_args(Strategy):
            raise error(
                "bad-option",
                f"--compare: there is no strategy {escape(name) or 'without a name'}",
                help=did_you_mean(name, get_args(Strategy), "strategies"),
                exit_code=ExitCode.USAGE,
            )
    if given := [f"--{key}" for key in EXCLUDED if key in settings]:
        raise error(
            "no-effect", f"{', '.join(given)}: --compare makes a plan by each strategy", exit_code=ExitCode.USAGE
        )
    return found


def with_strategy(stage: PlanMemory, strategy: str) -> PlanMemory:
    """The pass with another strategy and no limit: what is compared are the sizes."""
    return stage.changed(strategy=strategy, limit=None)


def compared_plans(steps: Sequence[StepRecord[Any]], stage: PlanMemory, names: Sequence[str]) -> list[View]:
    """Every function of a program by every strategy, in the order that its build found."""
    from dlc.html.plan import view_of

    views: list[View] = []
    for function, own in by_function(steps).items():
        at = next(k for k, step in enumerate(own) if step.name == stage.name)
        ordered = own[at - 1].handle.value
        for name in names:
            begin = time.perf_counter()
            plan = with_strategy(stage, name).run(ordered, Report())
            views.append(view_of(plan, function, name, time.perf_counter() - begin))
    return views


def compared_buffers(bare: Bare, stage: PlanMemory, names: Sequence[str]) -> list[View]:
    """The buffers of a file by every strategy."""
    from dlc.cli.instance import plan_instance

    return [plan_instance(bare, with_strategy(stage, name)).view(name) for name in names]


def table(views: Sequence[View]) -> str:
    """The figures for people."""
    head = ("function", "strategy", "arena", "lower bound", "gap", "seconds", "method")
    rows = [
        (v.function, v.strategy, f"{v.arena:,} B", f"{v.bound:,} B", v.overhead, f"{v.seconds:.3f}", v.method)
        for v in views
    ]
    skip = 0 if any(v.function for v in views) else 1
    return columns([row[skip:] for row in (head, *rows)], right=[k - skip for k in (2, 3, 4, 5)])


def documents(views: Sequence[View]) -> list[dict[str, Any]]:
    """The figures for programs."""
    return [
        {
            "function": v.function,
            "strategy": v.strategy,
            "arena_bytes": v.arena,
            "bound_bytes": v.bound,
            "gap_percent": round(100 * (v.arena - v.bound) / v.bound, 4) if v.bound else 0.0,
            "optimal": v.proven,
            "seconds": round(v.seconds, 4),
            "method": v.method,
        }
        for v in views
    ]
