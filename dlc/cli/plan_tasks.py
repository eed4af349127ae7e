"""`dlc plan` of a file of tasks (`dlc.placement.task_text`): order and recomputation without a model."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlc.base.diagnostics import DlcError, ExitCode, Location, error, escape
from dlc.cli.options import BuildOptions
from dlc.cli.task_options import TaskOptions
from dlc.cli.terminal import Outcome, columns
from dlc.placement.lifetimes import lifetimes, peak_of
from dlc.placement.order import order_tasks
from dlc.placement.place import place
from dlc.placement.recompute import STATES, Recomputation, least_cost, least_memory, unrolled
from dlc.placement.segments import segments
from dlc.placement.task_text import TaskGraph, TaskTextError, parse_tasks
from dlc.placement.tasks import OrderResult, network
from dlc.spec.convert import Problem, parse_bytes

MOST_BYTES = 1 << 26
"""Of a file."""

ORDER_STATES = 20_000

BUDGETS = (0, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 50)
"""Percent, of a curve."""


@dataclass(frozen=True)
class Row:
    """A schedule in figures."""

    budget_percent: float | None
    extra_percent: float
    extra_cost: int
    peak_bytes: int
    arena_bytes: int
    """With offsets."""
    proven: bool
    states: int
    cpu_seconds: float


def plan_tasks(file: Path, options: TaskOptions) -> Outcome:
    """Order the tasks of a file, and execute some of them again if that is asked for.

    Raises:
        DlcError: the file cannot be read, holds no tasks, or none with costs where these are needed; (LIMIT) no
            schedule within the memory was found.
    """
    limit, budgets = wishes(options)
    graph = read_tasks(file)
    begun = time.process_time()
    found = order_tasks(graph.tasks, graph.sizes, state_limit=options.states or ORDER_STATES)
    seconds = time.process_time() - begun
    rows: list[Row] = []
    made: Recomputation | None = None
    if limit is not None or budgets:
        _check_costs(file, graph)
    for budget in budgets:
        begun = time.process_time()
        paid = math.floor(sum(graph.costs) * budget / 100)
        made = least_memory(
            graph.tasks, graph.sizes, graph.costs, paid, order=found.order, state_limit=options.states or STATES
        )
        rows.append(_row(graph, made, budget, begun))
    if limit is not None:
        begun = time.process_time()
        made = least_cost(
            graph.tasks, graph.sizes, graph.costs, limit, order=found.order, state_limit=options.states or STATES
        )
        if made is None:
            raise _too_large(file, found, limit)
        rows.append(_row(graph, made, None, begun))
    return _outcome(file, graph, found, seconds, rows, () if len(rows) != 1 or made is None else made.steps)


def read_tasks(file: Path) -> TaskGraph:
    """Tasks of a file.

    Raises:
        DlcError: (USAGE) the file cannot be read, or holds no tasks.
    """
    try:
        with file.open("rb") as opened:
            raw = opened.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise _syntax(file, 0, f"the file has more than {MOST_BYTES:,} bytes")
        return parse_tasks(raw.decode("ascii"))
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        help = "give a model, or a file of tasks (docs/task-graphs.md)"
        raise error("no-such-file", f"{file}: {why}", help=help, exit_code=ExitCode.USAGE) from None
    except UnicodeDecodeError as problem:
        line = problem.object[: problem.start].count(b"\n") + 1
        raise _syntax(file, line, "a byte that is not ASCII") from None
    except TaskTextError as problem:
        raise _syntax(file, problem.line, str(problem)) from None


def check_flags(options: BuildOptions, others: Sequence[str]) -> None:
    """Refuse flags that a file of tasks has no use for; `others` are those of plans and pictures that were given.

    Raises:
        DlcError: (USAGE).
    """
    if others or options.given:
        message = "a file of tasks is not built and has no picture: flags that say how have no effect"
        raise error(
            "no-effect", message, help="leave out all but those of dlc plan for tasks", exit_code=ExitCode.USAGE
        )


def wishes(options: TaskOptions) -> tuple[int | None, Sequence[float]]:
    """The limit in bytes, if any, and budgets in percent.

    Raises:
        DlcError: (USAGE) flags exclude each other, or are no size and no percentage.
    """
    if sum(map(bool, (options.memory, options.budget, options.curve))) > 1:
        message = "--memory, --budget and --curve exclude each other"
        raise error("no-effect", message, help="give one of them", exit_code=ExitCode.USAGE)
    if options.memory:
        try:
            return parse_bytes(options.memory), ()
        except Problem as problem:
            raise error("bad-option", f"--memory: {problem}", help=problem.help, exit_code=ExitCode.USAGE) from None
    if options.budget:
        number = options.budget.removesuffix("%")
        whole, _, part = number.partition(".")
        if not (number.isascii() and whole.isdigit() and len(number) < 10 and (part.isdigit() or "." not in number)):
            message = f"--budget {options.budget} is not a percentage"
            raise error("bad-option", message, help="write a number of at least 0: 5%", exit_code=ExitCode.USAGE)
        return None, (float(number),)
    return None, BUDGETS if options.curve else ()


def _check_costs(file: Path, graph: TaskGraph) -> None:
    if graph.tasks and not any(graph.costs):
        message = f"{file}: no task has a cost, so none can run again"
        help = "write the cost of each task, such as its FLOPs, after its workspace (docs/task-graphs.md)"
        raise error("no-effect", message, help=help, exit_code=ExitCode.USAGE)


def _row(graph: TaskGraph, made: Recomputation, budget: float | None, begun: float) -> Row:
    seconds = round(time.process_time() - begun, 6)
    plain = unrolled(graph.tasks, graph.sizes, made.steps)
    arena = place(lifetimes(plain.tasks, plain.sizes, range(len(made.steps))).buffers, align=1).arena
    extra = round(100 * made.cost / max(1, sum(graph.costs)), 4)
    return Row(budget, extra, made.cost, made.peak, arena, made.proven, made.states, seconds)


def _outcome(
    file: Path, graph: TaskGraph, found: OrderResult, seconds: float, rows: Sequence[Row], steps: Sequence[int]
) -> Outcome:
    net = network(graph.tasks, graph.sizes)
    bound = max((piece.bound for piece in segments(net)), default=net.base)
    natural = peak_of(graph.tasks, graph.sizes, range(len(graph.tasks)))
    data: dict[str, Any] = {
        "file": str(file),
        "tasks": len(graph.tasks),
        "storages": len(graph.sizes),
        "order": list(found.order),
        "peak_bytes": found.peak,
        "proven": found.proven,
        "states": found.states,
        "bound_bytes": bound,
        "natural_bytes": natural,
        "cpu_seconds": round(seconds, 6),
        "schedules": [asdict(row) for row in rows],
        "steps": list(steps),
    }
    verdict = "optimal, proven" if found.proven else "not proven; more --states may prove or improve it"
    lines = [
        f"{escape(str(file))}: {len(graph.tasks):,} tasks, {len(graph.sizes):,} storages",
        f"peak of the order  {found.peak:,} B ({verdict})",
        f"natural order      {natural:,} B",
        f"operator bound     {bound:,} B",
        f"search             {found.states:,} states, {seconds:.3f} s",
    ]
    if rows:
        table = [("budget", "extra cost", "peak", "arena", "", "states", "seconds")]
        for row in rows:
            limit = "-" if row.budget_percent is None else f"{row.budget_percent:g} %"
            proof = "optimal" if row.proven else "not proven"
            figures = (f"{row.extra_percent:g} %", f"{row.peak_bytes:,} B", f"{row.arena_bytes:,} B", proof)
            table.append((limit, *figures, f"{row.states:,}", f"{row.cpu_seconds:.3f}"))
        lines += ["", columns(table, (0, 1, 2, 3, 5, 6))]
    return Outcome("\n".join(lines), data)


def _too_large(file: Path, found: OrderResult, limit: int) -> DlcError:
    return error(
        "memory-limit",
        f"{file}: no schedule within {limit:,} bytes was found",
        notes=(f"without recomputation the peak is {found.peak:,} bytes",),
        help="--curve shows what is possible; --states lets the search visit more",
        exit_code=ExitCode.LIMIT,
    )


def _syntax(file: Path, line: int, message: str) -> DlcError:
    help = "docs/task-graphs.md describes files of tasks"
    return error("syntax", message, location=Location(str(file), line=line), help=help, exit_code=ExitCode.USAGE)
