"""What every pass promises, on random models: same meaning, nothing to do a second time, names kept, one result."""

import os
import subprocess
import sys
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.api.passes import AnyPass
from dlc.api.plan import Plan
from dlc.base.report import Report
from dlc.graph import Call, Constant, Graph, Input, Item, Op, Splat, evaluate, verify
from dlc.graph.constants import constant_ops
from dlc.graph.graph import MAX_ORIGINS
from dlc.kernel.expr import Const, Load
from dlc.plugins.builtin import dlc_passes
from dlc.spec import Spec
from dlc.verify.kit.random_graphs import feeds, random_graph

PASSES: dict[str, type[AnyPass]] = {lazy.name: lazy.load() for lazy in dlc_passes()}
GRAPHS = st.builds(random_graph, st.integers(0, 2**32), st.integers(1, 14))
ON_OPS = (
    "expand",
    "expand{only=batch_norm,batch_norm_training,ctc,ctc_rows,dft}",
    "expand{keep=softmax,gelu}",
    "fold-constants",
    "fold-constants{max-bytes=0}",
    "fold-constants{budget=100}",
    "simplify",
    "simplify{compose=no}",
    "simplify{rounds=1}",
)
ON_KERNELS = (
    "layout",
    "layout{panel=4}",
    "layout{weights=no}",
    "layout{values=no}",
    "fuse",
    "fuse{max-nests=2}",
    "parts{bytes=1}",
    "parts{bytes=1 peak=no}",
    "whole-vectors{vector-bytes=64 rows=1}",
)


def made(text: str) -> AnyPass:
    (spec,) = Spec.parse_pipeline(text, "test")
    return PASSES[spec.name].from_spec(spec)


def stages(random: Random) -> Iterator[AnyPass]:
    """A random legal pipeline: any passes on ops, then lower, some passes on kernels, in any order."""
    for _ in range(random.randint(0, 4)):
        yield made(random.choice(ON_OPS))
    yield made("lower")
    # Layout reads the roles of single kernels' loops, and calls it has packed are packed no second time.
    for text in random.sample(ON_KERNELS, random.randint(0, 2)):
        yield made(text)
    yield made(random.choice(("order", "order{policy=depth-first}")))
    yield made(random.choice(("plan-memory", "plan-memory{strategy=greedy}", "plan-memory{in-place=no}")))


def graph_of(state: object) -> Graph:
    assert isinstance(state, (Graph, Plan))
    return state.graph if isinstance(state, Plan) else state


def same_values(want: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    assert list(want) == list(got)
    for name, expected in want.items():
        assert got[name].dtype == expected.dtype
        np.testing.assert_allclose(got[name], expected, rtol=1e-7, atol=1e-7, err_msg=name)


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(GRAPHS, st.integers(0, 2**32))
def test_any_pipeline_keeps_the_meaning(graph: Graph, seed: int) -> None:
    values = feeds(graph, seed)
    want = evaluate(graph, values)
    state: object = graph
    for step in stages(Random(seed)):
        state = step.run(state, Report())
        after = graph_of(state)
        level = "ops" if step.level_out == "ops" else "kernels"
        assert verify(after, level) == (), step
        assert after.inputs == graph.inputs and after.names == graph.names
        same_values(want, evaluate(after, values))


@pytest.mark.parametrize("text", [t for t in (*ON_OPS, *ON_KERNELS) if PASSES[t.partition("{")[0]].idempotent])
def test_a_second_run_changes_nothing(text: str) -> None:
    @settings(max_examples=25, deadline=None, database=None, derandomize=True)
    @given(GRAPHS)
    def check(graph: Graph) -> None:
        step = made(text)
        before = graph if step.level_in == "ops" else made("lower").run(graph, Report())
        report = Report()
        once = step.run(before, report)
        if not any("still changing" in n for n in report.notes) and "budget" not in text:
            assert step.run(once, Report()) == once

    check()


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(GRAPHS, st.integers(0, 2**32))
def test_every_op_says_where_it_came_from(graph: Graph, seed: int) -> None:
    known = {n for names in graph.origins.values() for n in names}
    state: object = graph
    for step in stages(Random(seed)):
        before, state = graph_of(state), step.run(state, Report())
        after = graph_of(state)
        for op in after.ops:
            names = after.origin(op)
            assert set(names) <= known
            assert len(names) <= MAX_ORIGINS
            if not isinstance(copied(op), (Input, Constant, Splat, Item)):
                assert names, f"{step.name}: {op.text_name} has no origin"
        if step.level_in == "kernels":
            assert computed(before) <= computed(after) | {n for k in before.origins.values() for n in k[MAX_ORIGINS:]}


def copied(op: Op) -> Op:
    """What an op is a copy of: inputs and constants that are outputs, too, come from no node."""
    while isinstance(op, Call) and len(op.args) < 2 and all(isinstance(n.body, Load | Const) for n in op.body.nests):
        op = op.args[0] if op.args else Splat(0.0, op.type)
    return op


def computed(graph: Graph) -> set[str]:
    """The names of nodes that a run computes."""
    constant = constant_ops(graph)
    return {n for op in graph.ops if op.digest not in constant for n in graph.origin(op)}


DIGESTS = """
from dlc.api.passes import run_passes
from dlc.base.report import Report
from dlc.verify.kit.random_graphs import random_graph
from tests.passes.test_properties import made
from dlc.driver.state_text import print_state
from hashlib import sha256
text = "fold-constants,simplify,expand,fold-constants,simplify,lower,layout,fuse,order,plan-memory"
for seed in range(12):
    state, report = random_graph(seed, 12), Report()
    for name in text.split(","):
        state = made(name).run(state, report)
        print(name, state.digest, sha256(print_state(state, origins=True).encode()).hexdigest())
    print(report)
"""


def test_results_do_not_depend_on_the_order_of_hashing() -> None:
    def output(seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(
            [sys.executable, "-c", DIGESTS], env=env, check=True, capture_output=True, text=True
        ).stdout

    first = output("1")
    assert first.count("plan-memory") >= 12
    assert output("2") == first
