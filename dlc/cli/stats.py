"""`dlc build --stats`: how often the bodies of the kernels' loops run, or what a target tells of its own program.

Counted are the loops that a nest becomes, guards that are loop bounds folded in, on any machine: tiles, vectors and
threads do the same iterations in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli.functions import by_function, headed
from dlc.cli.terminal import columns

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.api.plan import Plan
    from dlc.cache.step_record import StepRecord
    from dlc.driver.pipeline import ResolvedPipeline
    from dlc.graph.graph import Graph
    from dlc.graph.structure import Call
    from dlc.kernel.kernel import Kernel
    from dlc.kernel.nest import Nest

_NAMES = 3
"""Nodes that are named below a kernel."""


@dataclass(frozen=True)
class NestStats:
    """One nest of a kernel."""

    writes: str
    """`dB: f32[10,8]` of a result, as kernel text names it."""
    form: str
    """gather: a point of the loops writes an element of its own, or adds to it; scatter: the place is computed."""
    iterations: int
    """Executions of the body in the loops."""
    points: int
    """Of the iteration space without guards."""
    macs: int
    """Iterations that multiply and add."""


@dataclass(frozen=True)
class KernelStats:
    """One kernel, however often it is called."""

    names: tuple[str, ...]
    """What it computes: nodes of the model, or outputs."""
    digest: str
    calls: int
    nests: tuple[NestStats, ...]

    @property
    def iterations(self) -> int:
        """Of one call."""
        return sum(n.iterations for n in self.nests)

    @property
    def points(self) -> int:
        """Of one call."""
        return sum(n.points for n in self.nests)

    @property
    def macs(self) -> int:
        """Of one call."""
        return sum(n.macs for n in self.nests)


@dataclass(frozen=True)
class Stats:
    """All kernels, in the order of their first calls."""

    kernels: tuple[KernelStats, ...]
    uncounted: int = 0
    """Calls of what is no kernel: operations of a target."""

    def __str__(self) -> str:
        """What --stats prints."""
        return "\n\n".join([*map(_section, self.kernels), self._total()])

    def _total(self) -> str:
        calls = sum(k.calls for k in self.kernels)
        others = f"; {_count(self.uncounted, 'operation')} of the target, not counted" if self.uncounted else ""
        return (
            f"total: {_count(len(self.kernels), 'kernel')}, {_count(calls, 'call')}, "
            f"{self._sum('iterations'):,} iterations of {self._sum('points'):,} points, "
            f"{self._sum('macs'):,} multiply-adds{others}"
        )

    def _sum(self, what: str) -> int:
        return sum(getattr(k, what) * k.calls for k in self.kernels)

    def json(self) -> dict[str, Any]:
        """For programs; totals are those of all calls."""
        return {
            "kernels": [_kernel_json(k) for k in self.kernels],
            "iterations": self._sum("iterations"),
            "points": self._sum("points"),
            "multiply_adds": self._sum("macs"),
            "uncounted": self.uncounted,
        }


def check_stats(pipeline: ResolvedPipeline, stop_after: str) -> None:
    """Raises DlcError (USAGE) if the build would stop before there is what is counted."""
    if tells_own(pipeline.backend):
        if stop_after not in ("", "emit", "build"):
            message = f"--stats: {pipeline.backend.name} counts in the whole program, which {stop_after} does not give"
            raise error("no-effect", message, help="stop after emit or later", exit_code=ExitCode.USAGE)
        return
    leaving = [step.name for step in pipeline.steps if step.stage.level_out != "ops"]
    before = ["parse", *(step.name for step in pipeline.steps if step.stage.level_out == "ops")]
    if not leaving or (stop_after in before and stop_after not in leaving):
        raise error(
            "no-effect",
            "--stats: the build has no kernels" + (f" after {stop_after}" if leaving else ""),
            help=f"stop after {leaving[0]} or later" if leaving else "leave it out",
            exit_code=ExitCode.USAGE,
        )


def tells_own(backend: Backend) -> bool:
    """Whether a target tells of its program itself."""
    from dlc.api.backend import Backend

    return type(backend).stats is not Backend.stats


def stats_text(backend: Backend, steps: Sequence[StepRecord[Any]]) -> tuple[str, Mapping[str, Any]]:
    """What a build of these steps tells, as text and as a JSON object: by function where there are several."""
    if own := backend.stats(steps[-1].handle.value) if tells_own(backend) else None:
        return own
    counted = {name: stats_of(several) for name, several in by_function(steps).items()}
    found = {name: stats.json() for name, stats in counted.items()}
    return headed({name: str(stats) for name, stats in counted.items()}), found.get("", found)


def stats_of(steps: Sequence[StepRecord[Any]]) -> Stats:
    """Of the last state that has kernels: what is written out."""
    from dlc.api.plan import Plan, calls_of
    from dlc.graph.closed import unlimited, without_limit
    from dlc.graph.structure import Call

    state: Graph | Plan = next(s.handle.value for s in reversed(steps) if s.handle.kind in ("graph", "plan"))
    if free := without_limit(state.graph if isinstance(state, Plan) else state):
        raise unlimited(free, "--stats counts the iterations of the largest call, which needs a limit of every size")
    if isinstance(state, Plan):
        parts = [(plan.graph, plan.steps) for plan in state.plans]
    else:
        parts = [(graph, calls_of(graph)) for graph in state.graphs]
    groups: dict[str, list[tuple[Graph, Call]]] = {}
    uncounted = 0
    for graph, calls in parts:
        for call in calls:
            if isinstance(call, Call):
                groups.setdefault(call.body.digest, []).append((graph, call))
            elif not call.body_names:  # those of a branch or a loop are counted once, however often it runs
                uncounted += 1
    return Stats(tuple(_kernel(group) for group in groups.values()), uncounted)


def _kernel(calls: Sequence[tuple[Graph, Call]]) -> KernelStats:
    kernel = calls[0][1].body
    names = dict.fromkeys(name for graph, call in calls for name in graph.origin(call) or _outputs(graph, call))
    return KernelStats(tuple(names), kernel.digest, len(calls), tuple(_nest(kernel, n) for n in kernel.nests))


def _outputs(graph: Graph, call: Call) -> tuple[str, ...]:
    """Names of the outputs that a call computes."""
    from dlc.api.plan import results_of

    results = {r.digest for r in results_of(call)}
    return tuple(n for n, o in zip(graph.names, graph.outputs, strict=True) if o.digest in results)


def _nest(kernel: Kernel, nest: Nest) -> NestStats:
    from dlc.kernel.schedules.count import iterations
    from dlc.kernel.schedules.groups import is_product

    count = iterations(nest)
    target = kernel.tensors[nest.out]
    form = "scatter" if is_scatter(nest) else "gather"
    return NestStats(f"{nest.out}: {target.type}", form, count, nest.points, count if is_product(nest) else 0)


def is_scatter(nest: Nest) -> bool:
    """Whether a subscript of what is written is more than an axis, a constant or their sum, or two share an axis."""
    from dlc.kernel.expr import Apply, Axis, Const

    seen: set[Axis] = set()
    for subscript in nest.index:
        match subscript:
            case Const():
                continue
            case Axis() | Apply("add", (Axis(), Const())):
                axis = subscript if isinstance(subscript, Axis) else subscript.args[0]
            case _:
                return True
        assert isinstance(axis, Axis)
        if axis in seen:
            return True
        seen.add(axis)
    return False


def _section(kernel: KernelStats) -> str:
    head = (
        f"kernel {kernel.digest[:12]}: "
        f"{_count(kernel.calls, 'call')}, {_count(len(kernel.nests), 'nest')}, {kernel.iterations:,} iterations a call"
    )
    rows = [("  nest", "writes", "form", "iterations", "points", "multiply-adds")]
    rows += [
        (f"  {k}", n.writes, n.form, f"{n.iterations:,}", f"{n.points:,}", f"{n.macs:,}")
        for k, n in enumerate(kernel.nests)
    ]
    more = [f"  and {len(kernel.names) - _NAMES} more"] if len(kernel.names) > _NAMES else []
    names = [f"  {escape(name)}" for name in kernel.names[:_NAMES]]
    return "\n".join([head, *names, *more, columns(rows, right=(3, 4, 5))])


def _kernel_json(k: KernelStats) -> dict[str, Any]:
    nests = [
        {"writes": n.writes, "form": n.form, "iterations": n.iterations, "points": n.points, "multiply_adds": n.macs}
        for n in k.nests
    ]
    return {
        "names": list(k.names),
        "digest": k.digest,
        "calls": k.calls,
        "iterations": k.iterations,
        "points": k.points,
        "multiply_adds": k.macs,
        "nests": nests,
    }


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
