"""Working memory of kernels lies in gaps of the plan, never over what is alive."""

from __future__ import annotations

from dlc_backend_c.scratch import scratch_offsets
from hypothesis import given
from hypothesis import strategies as st

from dlc import Report, make_graph
from dlc.graph import Call, Graph, Input
from dlc.kernel.text import parse_kernel
from dlc.passes.plan_memory import PlanMemory
from dlc.passes.schedule import Schedule
from dlc.plan import Plan
from dlc.types import Type, f32

ONE = parse_kernel("kernel(p0: f32[100]) -> (r0: f32[100]) { i0<100: r0[i0] = p0[i0]*p0[i0] }")
TWO = parse_kernel("kernel(p0: f32[100], p1: f32[100]) -> (r0: f32[100]) { i0<100 i1<100: r0[i0] += p0[i1]*p1[i0] }")


def placed(graph: Graph) -> Plan:
    return PlanMemory().run(Schedule().run(graph, Report()), Report())


def alive(plan: Plan, step: int) -> list[tuple[int, int]]:
    """What lies in the arena while a step runs, found from the plan's text alone."""
    spans: list[tuple[int, int]] = []
    for digest, (born, _) in plan.values.items():
        if digest in plan.slots:
            readers = [k for k, call in enumerate(plan.steps) if digest in (x.digest for x in call.operands)]
            if born <= step <= max(readers, default=born):
                spans.append((plan.slots[digest].offset, plan.slots[digest].offset + plan.slots[digest].size))
    return spans


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12), st.data())
def test_scratch_overlaps_nothing_that_is_alive(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    source = Input("x", Type(f32, (100,)))
    values: list[Input | Call] = [source]
    for a, b in pairs:
        x, y = values[a % len(values)], values[b % len(values)]
        values.append(Call(ONE, (x,)) if x == y else Call(TWO, (x, y)))
    plan = placed(make_graph((source,), {"y": values[-1]}))
    needs = [data.draw(st.sampled_from([0, 64, 448, 2048])) for _ in plan.steps]
    for k, (at, need) in enumerate(zip(scratch_offsets(plan, needs), needs, strict=True)):
        assert at % 64 == 0
        assert all(at + need <= first or behind <= at for first, behind in alive(plan, k)) or not need
        assert at <= max((behind for _, behind in alive(plan, k)), default=0) + 63


def test_a_gap_is_used_before_memory_is_added() -> None:
    x = Input("x", Type(f32, (100,)))
    a = Call(ONE, (x,))
    b = Call(TWO, (a, x))
    plan = placed(make_graph((x,), {"y": Call(TWO, (Call(ONE, (b,)), b))}))
    # While the first step runs, one of the arena's two places is free.
    assert scratch_offsets(plan, [400] * len(plan.steps))[0] + 400 <= plan.regions["arena"]
