"""Orders of a training step: where the updates of weights come."""

import pytest

from dlc import Report
from dlc.api.plan import Plan
from dlc.passes.lower import Lower
from dlc.passes.memory import MemoryModel
from dlc.passes.order import Order, updates_of
from dlc.passes.plan_memory import PlanMemory
from dlc.placement import peak_of
from tests.training.nets import NETS, module_of, step_of


def scheduled(policy: str) -> tuple[Plan, list[int], frozenset[int]]:
    """The plan of a step, its order as numbers of calls, and which of these are updates."""
    net = NETS["conv"]
    graph = Lower().run(step_of(net.graph(module_of(net)), "optimizer=sgd{lr=0.1 momentum=0.9}"), Report())
    plan = Order(policy=policy).run(graph, Report())  # type: ignore[arg-type]
    model = MemoryModel.of(graph)
    place = {call.digest: k for k, call in enumerate(model.calls)}
    order = [place[step.digest] for step in plan.steps]
    assert sorted(order) == list(range(len(model.calls)))
    assert plan.facts["order_peak"] == peak_of(model.tasks, model.sizes, order), "the order is valid, its peak true"
    return plan, order, updates_of(graph, model.calls)


@pytest.mark.parametrize("policy", ["memory", "depth-first", "update-first", "final-update"])
def test_every_policy_gives_a_plan_that_can_be_placed(policy: str) -> None:
    plan, _, updates = scheduled(policy)
    assert updates
    placed = PlanMemory().run(plan, Report())
    assert int(placed.facts["arena"]) >= int(placed.facts["bound"])


def test_final_updates_come_last() -> None:
    _, order, updates = scheduled("final-update")
    assert set(order[-len(updates) :]) == updates


def test_first_updates_wait_for_nothing_but_what_they_read() -> None:
    plan, order, updates = scheduled("update-first")
    tasks = MemoryModel.of(plan.graph).tasks
    writer = {s: k for k, task in enumerate(tasks) for s in task.writes}
    for at, k in enumerate(order):
        if k in updates:
            needs = {writer[s] for s in tasks[k].reads if s in writer} | set(tasks[k].after)
            before = {j for j in order[:at] if j not in updates}
            last = next((j for j in reversed(order[:at]) if j in before), None)
            assert last in needs or not (needs or before), "the step before is one that it waited for"
    least, _, _ = scheduled("memory")
    assert plan.facts["order_peak"] == least.facts["order_peak"]
