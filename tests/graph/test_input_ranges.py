"""What inputs may be that rows or classes are chosen by, as it follows from a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.allowed import Allowed, common, joined, union
from dlc.base.types import Array, DType, Type, f32, i32, i64, u8
from dlc.graph import Constant, Graph, Input, Op, Tensor, make_graph
from dlc.graph.input_ranges import input_ranges, with_ranges
from dlc.graph.text import parse_graph, print_graph
from dlc.graph.verify import verify
from dlc.graph.walk import evaluate_ops
from dlc.kernel.define import ShapeError
from dlc.kernel.expr import Load, loads
from dlc.ops import index as ix
from dlc.ops import loss as ls
from dlc.ops.elementwise import Abs, Add, Cast, Equal, Less, Maximum, Minimum, Mul, Neg, Sub, Where
from dlc.ops.linear import MatMul
from dlc.ops.pointwise import scalar
from dlc.ops.reduce import ArgMax, ReduceSum
from dlc.ops.shape import Concat, Expand, Reshape, Slice, Transpose
from tests.graph.random_graphs import OPS
from tests.ops.samples import feed, samples

IDS = Input("ids", Type(i64, (2, 3)))


def table(rows: int, columns: int = 4) -> Constant:
    return Constant(Tensor.of(np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)))


def number(value: int) -> Op:
    return scalar(value, i64)


def part(x: Op, first: int, count: int) -> Op:
    return Slice(x, starts=(0, first), sizes=(x.shape[0], count), steps=(1, 1))


def wrapped(x: Op, rows: int) -> Op:
    """How exporters write negative subscripts."""
    return Where(Less(x, number(0)), Add(x, number(rows)), x)


CASES: dict[str, tuple[Op, str]] = {
    "itself": (ix.Gather(table(10), IDS), "index -10..9"),
    "cast": (ix.Gather(table(10), Cast(IDS, to=i32)), "index -10..9"),
    "moved": (ix.Gather(table(10), Transpose(Expand(IDS, to=(4, 2, 3)), perm=(2, 1, 0))), "index -10..9"),
    "shifted": (ix.Gather(table(10), Add(IDS, number(3))), "index -13..6"),
    "negated": (ix.Gather(table(10), Neg(IDS)), "index -9..10"),
    "scaled": (ix.Gather(table(10), Mul(IDS, number(2))), "index -5..4"),
    "absolute": (ix.Gather(table(10), Abs(IDS)), "index -9..9"),
    "wrapped": (ix.Gather(table(10), wrapped(IDS, 10)), "index -20..9"),
    "ignored": (
        ix.Gather(table(10), Where(Equal(IDS, number(-100)), number(0), IDS)),
        "index -100..-100|-10..9",
    ),
    "clipped": (ix.Gather(table(10), Minimum(Maximum(IDS, number(0)), number(9))), ""),
    "clipped_above": (ix.Gather(table(10), Minimum(IDS, number(9))), f"index -10..{2**63 - 1}"),
    "two_tables": (Add(ix.Gather(table(10), IDS), ix.Gather(table(7), IDS)), "index -7..6"),
    "columns": (
        Concat((ix.Gather(table(10), part(IDS, 0, 1)), ix.Gather(table(20), part(IDS, 1, 2))), axis=1),
        "index [0:2,0:1]-10..9;[0:2,1:3]-20..19",
    ),
    "one_column": (ix.Gather(table(10), part(IDS, 1, 1)), "index [0:2,1:2]-10..9"),
    "tuples": (
        ix.GatherNd(Reshape(table(60, 1), to=(3, 4, 5)), IDS),
        "index [0:2,0:1]-3..2;[0:2,1:2]-4..3;[0:2,2:3]-5..4",
    ),
    "computed_of_two": (ix.Gather(table(10), ReduceSum(IDS, axes=(1,))), ""),
    "computed_of_itself": (ix.Gather(table(10), Mul(IDS, IDS)), ""),
    "one_hot": (ix.OneHot(IDS, Constant(Tensor.of(np.eye(2, dtype=np.float32)[0])), depth=4, axis=2), ""),
    "elements": (ix.GatherElements(table(10, 3), IDS, axis=0), "index -10..9"),
    "scattered": (ix.ScatterElements(table(10, 3), IDS, table(2, 3), axis=0), "index -10..9"),
    "scattered_rows": (ix.ScatterNd(table(10, 3), Reshape(IDS, to=(6, 1)), table(6, 3)), "index -10..9"),
}


def graph_of(result: Op, *inputs: Input) -> Graph:
    return make_graph(inputs or (IDS,), {"y": result})


@pytest.mark.parametrize("name", CASES)
def test_ranges_follow_from_the_graph(name: str) -> None:
    result, expected = CASES[name]
    graph = with_ranges(graph_of(result))
    assert graph.inputs[0].allowed == expected
    assert not verify(graph)
    known = {t.digest: t for t in graph.tensors}
    assert parse_graph(print_graph(graph), OPS, lambda of, digest: known.get(digest)) == graph
    assert with_ranges(graph) == graph


LABELS, SCORES, WEIGHTS = Input("y", Type(i64, (5,))), Input("s", Type(f32, (5, 4))), Input("w", Type(f32, (4,)))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (ls.CrossEntropy(SCORES, LABELS), "label 0..3"),
        (ls.CrossEntropy(SCORES, LABELS, WEIGHTS, ignore_index=-100, label_smoothing=0.1), "label -100..-100|0..3"),
        (ls.CrossEntropy(SCORES, LABELS, ignore_index=-1), "label -1..-1|0..3"),
        (ls.CrossEntropy(SCORES, LABELS, ignore_index=2), "label 0..3"),
        (ls.NegativeLogLikelihood(SCORES, Cast(LABELS, to=i32), WEIGHTS, ignore_index=255), "label 0..3|255..255"),
    ],
)
def test_labels_are_classes(loss: Op, expected: str) -> None:
    assert input_ranges(graph_of(loss, SCORES, LABELS, WEIGHTS))["y"].text == expected


def test_a_type_that_holds_nothing_else_needs_no_range() -> None:
    x = Input("x", Type(u8, (3,)))
    assert not input_ranges(graph_of(ix.Gather(table(256), Cast(x, to=i64)), x))
    assert input_ranges(graph_of(ix.Gather(table(200), Cast(x, to=i64)), x))["x"].text == "index 0..199"


def test_what_the_network_computes_restricts_nothing() -> None:
    x = Input("x", Type(f32, (2, 4)))
    best = ArgMax(MatMul(x, table(4)), axis=1)
    assert not input_ranges(graph_of(ix.Gather(table(4), best), x))


def test_ranges_that_are_given_stay() -> None:
    given = Input("ids", IDS.of, allowed="index 0..5")
    assert with_ranges(graph_of(ix.Gather(table(10), given), given)).inputs[0].allowed == "index 0..5"


@pytest.mark.parametrize(
    "text", ["index", "index 9..0", "index 0..3|2..5", "word 0..3", "index [0:3,0:3]0..1", "index [0:2]0..1"]
)
def test_a_range_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises((ShapeError, ValueError)):
        Input("ids", IDS.of, allowed=text)


STEPS: dict[str, Callable[[Op, int], Op]] = {
    "add": lambda x, k: Add(x, number(k)),
    "sub": lambda x, k: Sub(number(k), x),
    "mul": lambda x, k: Mul(x, number(k % 4 - 1)),
    "min": lambda x, k: Minimum(x, number(k)),
    "max": lambda x, k: Maximum(number(k), x),
    "abs": lambda x, k: Abs(x),
    "neg": lambda x, k: Neg(x),
    "wrap": lambda x, k: wrapped(x, abs(k) + 1),
    "mask": lambda x, k: Where(Equal(x, number(k)), number(1), x),
    "cast": lambda x, k: Cast(Cast(x, to=i32), to=i64),
    "turn": lambda x, k: Transpose(x, perm=(1, 0)),
    "halves": lambda x, k: Concat((part(x, 1, x.shape[1] - 1), Add(part(x, 0, 1), number(k))), axis=1),
    "spread": lambda x, k: Reshape(
        Expand(Reshape(x, to=(1, *x.shape)), to=(2, *x.shape)), to=(2 * x.shape[0], x.shape[1])
    ),
    "vector": lambda x, k: Add(x, Constant(Tensor.of(np.arange(x.shape[1]) * k))),
}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(-8, 8)), max_size=4),
    st.integers(1, 12),
    st.integers(0, 1 << 30),
)
def test_values_are_allowed_exactly_where_every_index_is_in_range(
    steps: list[tuple[str, int]], rows: int, seed: int
) -> None:
    index: Op = IDS
    for name, k in steps:
        index = STEPS[name](index, k)
    allowed = input_ranges(graph_of(ix.Gather(table(rows), index))).get("ids")
    random = np.random.default_rng(seed)
    base = allowed.draw(random, IDS.of) if allowed else random.integers(-30, 30, IDS.shape)
    if allowed is not None and not in_range(index, base, rows):
        # Of an element that is always out of range nothing is claimed; no other value of it is right either.
        assert not any(in_range(index, np.full_like(base, value), rows) for value in range(-40, 40))
        return
    for place in np.ndindex(IDS.shape):
        for value in random.integers(-30, 30, 8):
            changed = base.copy()
            changed[place] = value
            if allowed is not None and not any("mul" in s for s in steps):
                assert (allowed.wrong(changed) is None) == in_range(index, changed, rows), (allowed.text, changed)
            elif allowed is not None and allowed.wrong(changed) is None:
                assert in_range(index, changed, rows)


def in_range(index: Op, values: Array, rows: int) -> bool:
    (found,) = evaluate_ops((index,), {IDS: values})
    return bool(((found >= -rows) & (found < rows)).all())


ANY = {"sample_at": {"at"}, "overwrite": {"start"}, "tree_step": {"at", "feature"}, "pick": {"indices"}}
"""Operands for which there is no wrong value: places may be outside of an image, and updates past the end of a cache;
nodes of trees and subscripts of a pick are not data but the program's own."""


def chosen_by(op: Op) -> set[str]:
    """Operand fields whose elements are subscripts in the op's own loops, where no guard leaves some of them out."""
    names = [f"p{k}" for k in range(len(op.operands))]
    fields = [
        name for name, value in op.operand_fields() for _ in (value if isinstance(value, tuple) else (value,)) if value
    ]
    found: set[str] = set()
    for nest in op.kernel.nests:
        subscripts = [*nest.index, *(i for x in loads(nest.body) for i in x.index)]
        guarded = set(loads(nest.where)) if nest.where is not None else set[Load]()
        found |= {x.param for i in subscripts for x in loads(i) if x not in guarded}
    return {field for name, field in zip(names, fields, strict=True) if name in found}


@pytest.mark.parametrize("op", [op for op in samples() if op.expansion is None and len(op.types) == 1], ids=repr)
def test_ops_whose_subscripts_are_data_say_what_they_may_be(op: Op) -> None:
    assert chosen_by(op) - ANY.get(op.text_name, set()) == set(op.demands())


@pytest.mark.parametrize("op", [op for op in samples() if op.demands()], ids=lambda op: f"{op!r}")
def test_a_demand_is_what_the_op_tells_apart(op: Op) -> None:
    """Both ends of the range count; one beyond an end of it is taken for the end, or for no class."""
    ((name, demand),) = op.demands().items()
    operand = getattr(op, name)
    if demand.what == "label" or len(demand.intervals) > 1:
        return
    ((low, high),) = next(iter(demand.intervals))
    assert (low, high) == (-(high + 1), high)

    def result(value: int) -> Array:
        known: dict[Op, Array] = dict(zip(op.operands, arguments, strict=True))
        known[operand] = np.full(operand.shape, value, operand.dtype.numpy)
        return np.asarray(evaluate_ops((op,), known)[0])

    fed = feed(op)
    arguments = [np.asarray(fed[x.name], x.dtype.numpy) for x in op.operands if isinstance(x, Input)]
    np.testing.assert_array_equal(result(low), result(0))
    np.testing.assert_array_equal(result(high), result(-1))
    np.testing.assert_array_equal(result(high + 1), result(high))
    np.testing.assert_array_equal(result(low - 1), result(low))


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), max_size=4), st.integers(-12, 12))
def test_unions_hold_what_their_parts_hold(intervals: list[tuple[int, int]], value: int) -> None:
    held = any(a <= value <= b for a, b in intervals)
    for found in (union(intervals), joined(intervals)):
        assert any(a <= value <= b for a, b in found) == held
    half = ((-3, 4),)
    assert any(a <= value <= b for a, b in common(union(intervals), half)) == (held and -3 <= value <= 4)


@pytest.mark.parametrize("text", ["index -10..9", "label -100..-100|0..4", "index [0:2,0:1]-3..2;[0:2,1:3]-5..4"])
@pytest.mark.parametrize("dtype", [i32, i64])
def test_a_range_is_text_and_json_and_draws_what_it_allows(text: str, dtype: DType) -> None:
    allowed = Allowed.parse(text)
    assert allowed.text == text and Allowed.of_json(allowed.json) == allowed
    drawn = allowed.draw(np.random.default_rng(0), Type(dtype, (2, 3)))
    assert drawn.dtype == dtype.numpy and allowed.wrong(drawn) is None
