"""Cost grows with the number of ops, and depth is no limit."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import numpy as np
import pytest

from dlc.base.types import Type, f32
from dlc.graph import Graph, Input, Op, Splat, evaluate, make_graph, parse_graph, print_graph, verify
from dlc.ops.elementwise import Add, Neg
from dlc.ops.shape import Concat
from tests.graph.random_graphs import OPS

X = Input("x", Type(f32, (2,)))


def chain(length: int) -> Graph:
    """Every op reads the one before it."""
    op: Op = X
    for k in range(length):
        op = Neg(op) if k % 2 else Add(op, X)
    return make_graph([X], {"y": op}, {op.digest: ("last",)})


def wide(count: int) -> Graph:
    """Half of the ops are read by one."""
    parts = tuple(Add(X, Splat(float(k), Type(f32, ()))) for k in range(count // 2))
    return make_graph([X], {"y": Concat(parts, axis=0)})


def ladder(length: int) -> Graph:
    """Both operands are the op before: as many paths as 2^length."""
    op: Op = X
    for _ in range(length):
        op = Add(op, op)
    return make_graph([X], {"y": op})


def seconds(work: Callable[[], object]) -> float:
    gc.disable()  # it looks at all that earlier tests left, whenever it likes, for seconds
    try:
        start = time.process_time()
        work()
        return time.process_time() - start
    finally:
        gc.enable()


def everything(graph: Graph) -> None:
    text = print_graph(graph, origins=True)
    again = parse_graph(text, OPS)
    assert again == graph
    assert verify(again) == ()
    assert len(graph.users) > 0
    assert graph.rewrite(lambda op: None) == graph
    evaluate(graph, {"x": np.zeros(2, np.float32)})


@pytest.mark.parametrize("make", [chain, wide, ladder])
def test_cost_is_linear(make: Callable[[int], Graph]) -> None:
    small, large = (min(seconds(lambda n=n: everything(make(n))) for _ in range(2)) for n in (100, 400))
    assert large < 10 * small  # 16 times would be quadratic


def test_a_chain_is_deeper_than_the_stack() -> None:
    graph = chain(3000)
    everything(graph)
    assert graph.origin(graph.outputs[0]) == ("last",)
    folded = graph.rewrite(lambda op: op.x if isinstance(op, Neg) else None)
    assert sum(isinstance(op, Neg) for op in folded.ops) == 0


def test_text_is_as_long_as_the_graph() -> None:
    lengths = [len(print_graph(chain(n))) for n in (100, 200)]
    assert lengths[1] < 2.2 * lengths[0]
    assert len(print_graph(ladder(64))) < 64 * 24 + 100
