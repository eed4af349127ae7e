"""A tied embedding is stored once: what looks up rows reads the panels that the product reads."""

import numpy as np
import pytest

from dlc import Report
from dlc.base.types import Type, i64
from dlc.graph import Call, Constant, Graph, Input, Op, Tensor, evaluate, make_graph, verify
from dlc.graph.evaluate import is_constant
from dlc.ops.elementwise import Add
from dlc.ops.index import Gather
from dlc.ops.linear import MatMul
from dlc.ops.shape import Transpose
from dlc.passes.expand import Expand
from dlc.passes.layout import Layout
from dlc.passes.lower import Lower
from dlc.passes.simplify import Simplify

TOKENS = Input("tokens", Type(i64, (3,)))


def table(words: int) -> Constant:
    values = np.random.default_rng(words).standard_normal((words, 24), np.float32)
    return Constant(Tensor.of(values))


def scored(rows: Op, words: Op) -> Op:
    return MatMul(rows, Transpose(words, (1, 0)))


def laid_out(graph: Graph) -> Graph:
    report = Report()
    lowered = Lower().run(Expand().run(Simplify().run(graph, report), report), report)
    found = Layout(panel=16).run(lowered, report)
    verify(found)
    return found


def read_by_calls(graph: Graph) -> list[int]:
    """Bytes of the constants that calls read, each once."""
    found = {x.digest: x.type.nbytes for op in graph.ops if isinstance(op, Call) for x in op.args if is_constant(x)}
    return sorted(found.values())


@pytest.mark.parametrize("words", [160, 157])  # panels that are full, and a last one that is not
def test_a_table_that_is_also_a_factor_is_stored_once(words: int) -> None:
    wte = table(words)
    graph = make_graph((TOKENS,), {"y": scored(Gather(wte, TOKENS), wte)})
    found = laid_out(graph)
    assert read_by_calls(found) == [160 * 24 * 4]
    feeds = {"tokens": np.asarray([0, words - 1, 17])}
    np.testing.assert_allclose(evaluate(found, feeds)["y"], evaluate(graph, feeds)["y"], rtol=1e-5, atol=1e-5)


def test_a_table_that_is_also_read_whole_stays() -> None:
    wte = table(160)
    outputs = {"y": scored(Gather(wte, TOKENS), wte), "z": Add(wte, Gather(wte, Input("one", Type(i64, (1,)))))}
    graph = make_graph((TOKENS, Input("one", Type(i64, (1,)))), outputs)
    found = laid_out(graph)
    assert read_by_calls(found) == [160 * 24 * 4] * 2
    feeds = {"tokens": np.asarray([5, 6, 7]), "one": np.asarray([9])}
    want = evaluate(graph, feeds)
    for name, value in evaluate(found, feeds).items():
        np.testing.assert_allclose(value, want[name], rtol=1e-5, atol=1e-5)
