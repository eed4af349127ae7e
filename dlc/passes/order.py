"""order: a graph of kernels becomes a plan with an order of execution.

    graph   →   plan: operations in an order that needs little memory

Policies: `depth-first` is the graph's own order; `memory` searches for the order with the smallest peak and says
whether that order is proved to be optimal (Serenity's search with dominance, see `dlc.placement`). Two more policies
place operations that overwrite inputs, such as updates of weights: `update-first` takes the order of `memory` and moves
each update to the first position where it can run, so that gradients are freed early; `final-update` runs all of them
last.

The graphs that operations hold are ordered first, each by itself: an operation works in what their orders need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dlc.api.passes import Level, Pass
from dlc.api.plan import Plan, results_of
from dlc.base.report import Report
from dlc.graph.closed import without_limit
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.passes.executions import workspace_by
from dlc.passes.memory import MemoryModel
from dlc.passes.outputs import separate_outputs
from dlc.placement import OrderResult, Task, order_tasks, peak_of
from dlc.spec import option


@dataclass(frozen=True)
class Order(Pass[Graph, Plan]):
    """Choose an order of execution: a graph of kernels  →  a plan that keeps few values live."""

    name: ClassVar[str] = "order"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "plan"
    policy: Literal["depth-first", "memory", "update-first", "final-update"] = option(
        "memory", "how the order is chosen"
    )
    state_limit: int = option(20000, "maximum number of states that the search for the best order visits", low=1)

    def run(self, state: Graph, report: Report) -> Plan:
        """The plan, still without places."""
        bodies: dict[str, Plan] = {}

        def planned(body: Graph) -> Graph:
            found = self.run(body, Report())
            bodies[found.graph.digest] = found
            return found.graph

        state = separate_outputs(state.with_bodies(planned))

        model = MemoryModel.of(state, workspace=workspace_by(bodies, state))
        found = self._order(model, updates_of(state, model.calls))
        report.count("operations", len(found.order))
        if free := without_limit(state):
            report.note(f"no peak: {', '.join(s.name for s in free)} without a limit")
        else:
            report.note(f"peak of the order {found.peak:,} B ({'optimal' if found.proven else 'best found'})")
        facts = {"order_peak": found.peak, "order_optimal": int(found.proven)}
        return Plan(state, tuple(model.calls[k] for k in found.order), facts=facts, bodies=bodies)

    def _order(self, model: MemoryModel, updates: frozenset[int]) -> OrderResult:
        search = "depth-first" if self.policy == "depth-first" else "memory"
        if self.policy != "final-update":
            found = order_tasks(model.tasks, model.sizes, policy=search, state_limit=self.state_limit)
            if self.policy != "update-first":
                return found
            order = moved_forward(model.tasks, found.order, updates)
            peak = peak_of(model.tasks, model.sizes, order)
            return replace(found, order=order, peak=peak, proven=found.proven and peak == found.peak)
        natural = (*(k for k in range(len(model.tasks)) if k not in updates), *sorted(updates))
        place = {task: k for k, task in enumerate(natural)}
        rest = tuple(range(len(natural) - len(updates)))
        tasks = [
            replace(model.tasks[k], after=(*(place[a] for a in model.tasks[k].after), *(rest if k in updates else ())))
            for k in natural
        ]
        found = order_tasks(tasks, model.sizes, policy=search, state_limit=self.state_limit)
        return replace(found, order=tuple(natural[k] for k in found.order))


def updates_of(graph: Graph, steps: Sequence[Op]) -> frozenset[int]:
    """Numbers of the steps all of whose results may be written over inputs, and which no other step reads."""
    over = {graph.outputs[i].digest for i, _ in graph.aliases}
    read = {x.digest for step in steps for x in step.operands}
    values = (tuple(v.digest for v in results_of(step)) for step in steps)
    return frozenset(k for k, found in enumerate(values) if over.issuperset(found) and read.isdisjoint(found))


def moved_forward(tasks: Sequence[Task], order: Sequence[int], updates: frozenset[int]) -> tuple[int, ...]:
    """An order in which each update runs as soon as what it reads is there, and nobody needs what it writes over."""
    writers = {storage: k for k in order for storage in tasks[k].writes}
    waits = {k: {writers[s] for s in tasks[k].reads if s in writers} | set(tasks[k].after) for k in updates}
    done: set[int] = set()
    found = [k for k in order if k in updates and not waits[k]]
    left = [k for k in order if k in updates and waits[k]]
    for k in (k for k in order if k not in updates):
        found.append(k)
        done.add(k)
        ready = [u for u in left if waits[u] <= done]
        found += ready
        left = [u for u in left if u not in ready]
    return (*found, *left)
