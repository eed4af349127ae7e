"""Plans whose steps may be executed more than once: what an execution costs, and the graph with one op for each.

a = f(x); b = g(a); …; c = h(b, a)      →      a = f(x); b = g(a); …; a' = f(x) again 1; c = h(b, a')
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlc.api.plan import Plan, results_of
from dlc.api.region_memory import region_memory
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.passes.memory import MemoryModel
from dlc.placement import Task, peak_of


def workspace_by(bodies: Mapping[str, Plan], graph: Graph) -> Callable[[Op], int]:
    """What a step of a graph works in, where the graphs inside have an order, by their digests, and no places yet."""

    def needed(op: Op) -> int:
        if not op.body_names:
            return graph.workspace(op)
        return region_memory(op, lambda body: int(bodies[body.digest].facts["order_peak"])).size

    return needed


@dataclass(frozen=True)
class Executions:
    """The steps of a plan as tasks with costs, and the plans that execute some of them again."""

    plan: Plan
    model: MemoryModel
    order: tuple[int, ...]
    """Positions in `model.calls`, as the plan executes them."""
    costs: tuple[int, ...]
    """Per call, what it costs to execute it again; 0 where that is not possible: it gives outputs, which lie in the
    caller's memory, a value that lies beside others, or holds graphs."""
    total: int
    """What all calls cost that are executed once."""

    @classmethod
    def of(cls, plan: Plan) -> Executions:
        """Of a plan whose bodies have an order."""
        model = MemoryModel.of(plan.graph, workspace=workspace_by(plan.bodies, plan.graph), steps=plan.steps)
        if model.overlays.root:
            model = _in_order(model, plan)
        place = {call.digest: k for k, call in enumerate(model.calls)}
        own = [call.operations() for call in model.calls]
        repeats = (_repeats(call, plan.outputs, model.overlays.root) for call in model.calls)
        costs = tuple(cost if possible else 0 for possible, cost in zip(repeats, own, strict=True))
        return cls(plan, model, tuple(place[step.digest] for step in plan.steps), costs, sum(own))

    @property
    def peak(self) -> int:
        """Most bytes that are live at once."""
        return peak_of(self.model.tasks, self.model.sizes, self.order)

    def sizes(self, align: int) -> tuple[int, ...]:
        """Bytes per storage that offsets leave for it."""
        return tuple(-(-size // align) * align for size in self.model.sizes)

    def tasks(self, align: int) -> tuple[Task, ...]:
        """The tasks, with what offsets leave for their workspaces."""
        return tuple(replace(t, workspace=-(-t.workspace // align) * align) for t in self.model.tasks)

    def executed(self, steps: Sequence[int]) -> Executed:
        """The plan of these executions; those that nobody reads are left out.

        Args:
            steps: Positions in `model.calls`, each at least once.
        """
        steps = self.read(steps)
        made = _Remade(self.plan, self.model)
        executed = tuple(made.execute(k) for k in steps)
        graph = self.plan.graph
        outputs = tuple(made.latest(o) for o in graph.outputs)
        graph = with_live_origins(replace(graph, outputs=outputs, origins=made.origins))
        firsts = {k: n for n, k in reversed(list(enumerate(steps)))}
        again = tuple(op for n, (k, op) in enumerate(zip(steps, executed, strict=True)) if firsts[k] < n)
        plan = replace(self.plan, graph=graph, steps=executed)
        return Executed(plan, again, self.extra(steps), order=tuple(dict.fromkeys(steps)))

    def extra(self, steps: Sequence[int]) -> int:
        """What executions cost more than all calls once."""
        return sum(self.model.calls[k].operations() for k in steps) - self.total

    def read(self, steps: Sequence[int]) -> list[int]:
        """The executions whose results are read before another one makes them, or are outputs, or nobody's."""
        wanted: set[int] = set()
        found: list[int] = []
        for k in reversed(steps):
            task = self.model.tasks[k]
            if self.costs[k] and wanted.isdisjoint(task.writes):
                continue
            wanted.difference_update(task.writes)
            wanted.update(task.reads)
            found.append(k)
        return found[::-1]


def _in_order(model: MemoryModel, plan: Plan) -> MemoryModel:
    """A model whose natural order is that of the plan, so that storages in parts are storages that several tasks write.

    Nobody is executed again that writes one, so that who reads one has nothing to wait for but what it reads.
    """
    place = {step.digest: k for k, step in enumerate(plan.steps)}
    order = sorted(range(len(model.calls)), key=lambda k: place[model.calls[k].digest])
    number = {k: n for n, k in enumerate(order)}
    tasks: list[Task] = []
    for k in order:
        task, call = model.tasks[k], model.calls[k]
        read = {model.storage[x.digest] for x in call.operands if x.digest in model.storage}
        written = {model.storage[v.digest] for v in results_of(call) if v.digest in model.storage}
        tasks.append(
            replace(
                task,
                reads=(*task.reads, *(s for s in task.holds if s in read)),
                writes=(*task.writes, *(s for s in task.holds if s in written)),
                after=tuple(number[a] for a in task.after),
                holds=(),
            )
        )
    return replace(model, calls=tuple(model.calls[k] for k in order), tasks=tuple(tasks))


def _repeats(call: Op, outputs: Collection[str], held: Collection[str]) -> bool:
    """Whether a call can be executed again: that makes no output and no value that is held beside others.

    It leaves out nothing but outputs.
    """
    again, values = call.made_again(), results_of(call)
    return (
        call.again(1) is not None
        and all((value.digest in outputs) is (k not in again) for k, value in enumerate(values))
        and not any(value.digest in held for value in values)
    )


@dataclass(frozen=True)
class Executed:
    """A plan whose steps may be executed more than once."""

    plan: Plan
    again: tuple[Op, ...] = ()
    """The steps that are not the first executions."""
    cost: int = 0
    """What those cost."""
    proven: bool = True
    """Nothing cheaper, or smaller, was possible in this order of first executions."""
    order: tuple[int, ...] = ()
    """Positions in `Executions.model.calls`, by first execution."""


@dataclass
class _Remade:
    """The ops of a plan's graph on what was made last."""

    plan: Plan
    model: MemoryModel
    origins: dict[str, tuple[str, ...]] = field(init=False)
    _made: dict[str, Op] = field(default_factory=dict[str, Op])
    _times: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        self.origins = dict(self.plan.graph.origins)

    def execute(self, number: int) -> Op:
        """The op of the next execution of a call."""
        call = self.model.calls[number]
        moved = call.with_operands([self.latest(x) for x in call.operands])
        values = results_of(call)
        times = self._times[number] = self._times.get(number, -1) + 1
        if times and (other := moved.again(times)) is not None:
            moved, values = other, tuple(values[k] for k in call.made_again())
        self._named(call, moved)
        self._made.update((a.digest, b) for a, b in zip(values, results_of(moved), strict=True))
        return moved

    def latest(self, op: Op) -> Op:
        """What stands for a value now: the last execution's, a view of that, or the value itself."""
        if (made := self._made.get(op.digest)) is not None or op.digest not in self.model.storage:
            return made or op
        moved = op.with_operands([self.latest(x) for x in op.operands])
        self._named(op, moved)
        return moved

    def _named(self, op: Op, moved: Op) -> None:
        if names := self.plan.graph.origin(op):
            self.origins[moved.digest] = names
