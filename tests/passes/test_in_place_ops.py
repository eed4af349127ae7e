"""Steps of an accelerator say what they may overwrite: a result lies over a value only where each read of it allows it.

The ops are made up. Operand k is read element by element, in step with the result, or from its end, as a product reads
what another element of the result was written over already. Graphs are random; each op may have one value several
times, and views of it.
"""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest

from dlc.api.passes import run_passes
from dlc.api.plan import Plan
from dlc.base.report import Report
from dlc.base.types import Array, Type, f32
from dlc.graph import Graph, Input, Op, make_graph
from dlc.ops.shape import Reshape
from dlc.passes.lower import lower_op
from dlc.passes.memory import in_place_pairs
from dlc.passes.views import is_view
from dlc.verify.plan_check import check_plan
from tests.passes.test_properties import made

N = 6
STRATEGIES = ("greedy", "search", "best-fit")


class Blend(Op):
    """y[i] = Σ x_k[i] over operands in step, + Σ x_k[n - 1 - i] over the others, each times k + 1."""

    runs: ClassVar[bool] = True
    xs: tuple[Op, ...] = ()
    in_step: tuple[int, ...] = ()

    def derive_types(self) -> tuple[Type, ...]:
        return (self.xs[0].type,)

    def overwrites(self) -> tuple[tuple[int, int], ...]:
        return tuple((k, 0) for k in self.in_step)

    def evaluate(self, *args: Array) -> Any:
        flat = [a.reshape(-1) if k in self.in_step else a.reshape(-1)[::-1] for k, a in enumerate(args)]
        return np.sum([(k + 1) * x for k, x in enumerate(flat)], 0).reshape(self.xs[0].shape)


def viewed(x: Op, *shape: int) -> Op:
    """The same memory in another shape."""
    return lower_op(Reshape(x, to=shape))


def drawn(seed: int) -> Graph:
    """A chain with branches: most operands are what was made last, itself or in another shape."""
    random = Random(seed)
    x = Input("x", Type(f32, (N,)))
    values: list[Op] = [x]
    for _ in range(12):
        near = [random.choice(values[-2:]) if random.random() < 0.8 else random.choice(values) for _ in range(3)]
        near = [random.choice(near) for _ in range(random.randint(1, 3))]
        xs = tuple(viewed(v, 2, N // 2) if random.random() < 0.2 and v.shape == (N,) else v for v in near)
        xs = tuple(v if v.shape == xs[0].shape else viewed(v, *xs[0].shape) for v in xs)
        values.append(Blend(xs, tuple(k for k in range(len(xs)) if random.random() < 0.7)))
    last = values[-1]
    return make_graph((x,), {"y": Blend((last, last), (0, 1))})


def planned(graph: Graph, strategy: str) -> Plan:
    return run_passes([made(p) for p in ("order", f"plan-memory{{strategy={strategy}}}")], graph, Report())


def run(plan: Plan, x: Array) -> Array:
    """The output of a plan in one arena, each step element by element."""
    arena = np.full(plan.regions["arena"], 0xFF, np.uint8)
    out = np.full(N, np.nan, np.float32)

    def at(op: Op) -> Array:
        while is_view(op) and op.digest not in plan.slots:
            (op,) = op.operands
        if isinstance(op, Input):
            return x
        if op.digest in plan.outputs:
            return out
        slot = plan.slots[op.digest]
        return arena[slot.offset : slot.offset + 4 * N].view(np.float32)

    for step in plan.steps:
        assert isinstance(step, Blend)
        read, written = [at(a) for a in step.xs], at(step)
        for i in range(N):
            terms = [(k + 1) * a[i if k in step.in_step else N - 1 - i] for k, a in enumerate(read)]
            written[i] = np.float32(sum(terms))
    return out


def test_random_graphs_compute_in_one_arena_what_they_say() -> None:
    x = np.arange(1, N + 1, dtype=np.float32) / 8
    shared = 0
    for seed in range(60):
        graph = drawn(seed)
        plan = planned(graph, STRATEGIES[seed % len(STRATEGIES)])
        assert check_plan(plan) == []
        values: dict[str, Array] = {graph.inputs[0].digest: x}
        for op in graph.ops[1:]:
            args = [values[a.digest] for a in op.operands]
            values[op.digest] = np.asarray(op.evaluate(*args), np.float32)
        want = values[graph.outputs[0].digest].reshape(-1)
        np.testing.assert_allclose(run(plan, x), want, rtol=1e-4)
        slots = [s.offset for step in plan.steps for a in step.operands for s in [plan.slots.get(a.digest)] if s]
        shared += len(slots) - len(set(slots))
    assert shared > 40  # most values are overwritten by others


@pytest.mark.parametrize(
    ("in_step", "legal"),
    [((0, 1), True), ((0,), False), ((1,), False), ((), False)],
    ids=["both", "one", "two", "none"],
)
@pytest.mark.parametrize("view", [False, True], ids=["value", "view"])
def test_a_value_that_is_read_twice(in_step: tuple[int, ...], legal: bool, view: bool) -> None:
    x = Input("x", Type(f32, (N,)))
    h = Blend((x,), (0,))
    again = viewed(viewed(h, 2, N // 2), N) if view else h
    y = Blend((h, again), in_step)
    plan = planned(make_graph((x,), {"z": Blend((y,), ())}), "greedy")
    _, mixed, _ = plan.steps
    first, second = plan.slots[mixed.operands[0].digest], plan.slots[mixed.digest]
    assert (first.offset == second.offset) == legal
    assert check_plan(plan) == []
    over = Plan(plan.graph, plan.steps, {**plan.slots, mixed.digest: first}, plan.regions)
    assert (check_plan(over) == []) == legal


def test_a_result_of_another_size_has_a_place_of_its_own() -> None:
    x = Input("x", Type(f32, (N,)))
    y = Blend((x,), (0,))
    assert in_place_pairs(y, {x.digest: 0, y.digest: 1}, [4 * N, 4 * N]) == ((0, 1),)
    assert in_place_pairs(y, {x.digest: 0, y.digest: 1}, [8 * N, 8 * N]) == ()  # a part of what lies there
