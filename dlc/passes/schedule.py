"""schedule: a graph of kernels becomes a plan: an order of execution.

    graph   →   plan: steps in an order that keeps few values alive

Policies: `depth-first` is the graph's own order; `memory` searches for the order with the smallest peak and says
whether it is proven minimal (Serenity's search with dominance, see `dlc.placement`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dlc.graph.graph import Graph
from dlc.passes.base import Level, Pass
from dlc.passes.memory import MemoryModel
from dlc.placement import order_tasks
from dlc.plan import Plan
from dlc.report import Report
from dlc.spec import option


@dataclass(frozen=True)
class Schedule(Pass[Graph, Plan]):
    """Choose an order of execution: a graph of kernels  →  a plan that keeps few values alive."""

    name: ClassVar[str] = "schedule"
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "plan"
    policy: Literal["depth-first", "memory"] = option("memory", "what the order is chosen for")
    state_limit: int = option(20000, "states that the search for the best order may visit", low=1)

    def run(self, state: Graph, report: Report) -> Plan:
        """The plan, still without places."""
        model = MemoryModel.of(state)
        found = order_tasks(model.tasks, model.sizes, policy=self.policy, state_limit=self.state_limit)
        report.count("steps", len(found.order))
        report.note(f"peak of the order {found.peak:,} B ({'minimal' if found.proven else 'best found'})")
        facts = {"order_peak": found.peak, "order_proven": int(found.proven)}
        return Plan(state, tuple(model.calls[k] for k in found.order), facts=facts)
