"""What ops that hold graphs take and give is made the least, and everything computes what it did."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.base.report import Report
from dlc.base.types import Type, f32
from dlc.graph import Constant, Graph, If, Input, Loop, Op, Scan, Splat, Tensor, evaluate, make_graph, verify
from dlc.graph.bodies import CONDITION, COUNTER, body_of, item
from dlc.ops.elementwise import Add, Exp, Mul, Neg
from dlc.passes.tidy_regions import tidied
from dlc.passes.unroll import Unroll
from tests.graph.random_regions import Maker, feeds

V = Type(f32, (3,))
X, Y = Input("x", V), Input("y", V)
W = Constant(Tensor.of(np.arange(3, dtype=np.float32)))
I = Input("i", COUNTER)  # noqa: E741
C0, C1, C2, V0, V1, V2 = (Input(n, V) for n in ("c0", "c1", "c2", "v0", "v1", "v2"))


def region(graph: Graph) -> Op:
    (found,) = (op for op in graph.ops if op.body_names)
    return found


@pytest.mark.parametrize("seed", range(150))
def test_random_graphs_compute_what_they_did(seed: int) -> None:
    graph = Maker(seed).graph()
    assert not verify(graph)
    new = tidied(graph.with_bodies(tidied))
    assert not verify(new)
    assert tidied(new).digest == new.digest
    for run in range(4):
        got, want = evaluate(new, feeds(run)), evaluate(graph, feeds(run))
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)


@pytest.mark.parametrize("seed", range(60))
def test_unrolled_graphs_compute_what_they_did(seed: int) -> None:
    graph = Maker(seed).graph()
    new = Unroll().run(graph, Report())
    assert not verify(new)
    assert {op.text_name for each in new.graphs for op in each.ops if op.body_names} <= {"loop"}
    for run in range(4):
        got, want = evaluate(new, feeds(run)), evaluate(graph, feeds(run))
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)


def test_what_would_be_too_large_is_not_unrolled() -> None:
    body = body_of((I, C0), (Neg(C0),), {})
    graph = make_graph((X,), {"r": Scan((X,), (), (), body, 100)})
    report = Report()
    assert Unroll(limit=100).run(graph, report) == graph
    assert "more than 100 ops" in str(report)
    assert not Unroll(limit=300).run(graph, Report()).bodies


def test_constants_lie_in_the_body_and_nothing_is_captured_twice() -> None:
    body = body_of((I, C0, V0, V1, V2), (Add(Mul(C0, V0), Add(V1, V2)),), {})
    graph = tidied(make_graph((X, Y), {"r": Scan((X,), (), (W, Y, Y), body, 4)}))
    assert region(graph).operands == (X, Y)
    assert W in region(graph).bodies[0].ops


def test_what_no_one_reads_is_not_computed() -> None:
    """c1 is only its own business; c2 is what c0 comes from."""
    body = body_of((I, C0, C1, C2, V0), (Add(C0, C2), Exp(C1), Neg(C2), Mul(C1, V0)), {})
    scan = Scan((X, X, Y), (), (Y,), body, 4)
    graph = tidied(make_graph((X, Y), {"r": item(scan, 0)}))
    found = region(graph)
    assert isinstance(found, Scan)
    assert found.carried == (X, Y)
    assert not found.captured
    assert len(found.body.outputs) == 2


def test_what_an_iteration_does_not_change_is_captured() -> None:
    body = body_of((I, C0, C1), (Splat(True, CONDITION), Add(C0, C1), C1), {})
    loop = Loop(None, Input("go", CONDITION), (X, Y), (), body)
    graph = tidied(make_graph((Input("go", CONDITION), X, Y), {"a": item(loop, 0), "b": item(loop, 1)}))
    found = region(graph)
    assert isinstance(found, Loop)
    assert (found.carried, found.captured) == ((X,), (Y,))
    assert graph.outputs[1] == Y


@pytest.mark.parametrize("value", [True, False])
def test_a_branch_that_is_known(value: bool) -> None:
    bodies = body_of((V0,), (Exp(V0),), {}), body_of((V0,), (Neg(V0),), {})
    graph = tidied(make_graph((X,), {"r": If(Splat(value, CONDITION), (X,), *bodies)}))
    assert graph.outputs == (Exp(X) if value else Neg(X),)
    same = tidied(
        make_graph((X, Input("go", CONDITION)), {"r": If(Input("go", CONDITION), (X,), bodies[0], bodies[0])})
    )
    assert same.outputs == (Exp(X),)
