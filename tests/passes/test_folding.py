"""Folding gives what a run would compute, bit for bit, or leaves the op alone; it never makes a model grow."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.report import Report
from dlc.base.types import DTYPES, DType, Type, bool_, f32, f64, i8, i32, i64, u8
from dlc.graph import Constant, Graph, Input, Op, Splat, Tensor, evaluate, make_graph
from dlc.ops.elementwise import Abs, Add, Cast, Div, Exp, Maximum, Mod, Mul, Neg, Pow, Relu, Sub, Where
from dlc.ops.index import Gather
from dlc.ops.linear import MatMul
from dlc.ops.normalize import Softmax
from dlc.ops.reduce import ArgMax, CumSum, ReduceMean, ReduceProd, ReduceSum
from dlc.ops.shape import Concat, Expand, Pad, Reshape, Slice, Transpose
from dlc.passes.fold_constants import FoldConstants
from dlc.passes.simplify import Simplify
from dlc.passes.splats import fold_splats

INTEGERS = [t for t in DTYPES.values() if t.is_integer]


def c(values: Any, dtype: DType = f32) -> Constant:
    return Constant(Tensor.of(np.asarray(values, dtype.numpy), dtype))


def folded(op: Op, options: FoldConstants | None = None, report: Report | None = None) -> Op:
    graph = (options or FoldConstants()).run(make_graph([], {"y": op}), report or Report())
    return graph.outputs[0]


def value(op: Op) -> list[Any]:
    return evaluate(make_graph([], {"y": op}), {})["y"].reshape(-1).tolist()


LOW, HIGH = -(2**31), 2**31 - 1

STAYS: dict[str, Op] = {
    "sum beyond i32": Add(c([HIGH], i32), c([1], i32)),
    "difference below i32": Sub(c([LOW], i32), c([1], i32)),
    "product beyond i32": Mul(c([2**20], i32), c([2**12], i32)),
    "product beyond i64": Mul(c([2**40], i64), c([2**40], i64)),
    "sum beyond i8": Add(c([127], i8), c([1], i8)),
    "sum beyond u8": Add(c([255], u8), c([1], u8)),
    "difference below zero of u8": Sub(c([0], u8), c([1], u8)),
    "negated least i8": Neg(c([-128], i8)),
    "magnitude of the least i32": Abs(c([LOW], i32)),
    "power beyond i32": Pow(c([2], i32), c([31], i32)),
    "power with an exponent below zero": Pow(c([2], i32), c([-1], i32)),
    "division by zero": Div(c([1, 2], i32), c([1, 0], i32)),
    "least number divided by minus one": Div(c([LOW], i32), c([-1], i32)),
    "remainder by zero": Mod(c([1], i32), c([0], i32)),
    "remainder of the least number by minus one": Mod(c([LOW], i32), c([-1], i32), fmod=True),
    "total beyond i8": ReduceSum(c([100, 27, 1], i8), axes=(0,)),
    # Whatever order a machine adds in, no partial sum may leave the range.
    "total that may leave i8 on the way": ReduceSum(c([100, 100, -100], i8), axes=(0,)),
    "product of all beyond i8": ReduceProd(c([16, 8], i8), axes=(0,)),
    "running sum beyond i8": CumSum(c([100, 28], i8), axis=0),
    "matrix product beyond i8": MatMul(c([[100, 100]], i8), c([[1], [1]], i8)),
    "f32 beyond i32": Cast(c([3e9]), to=i32),
    "f32 that rounds to 2^63": Cast(c([2.0**63]), to=i64),
    "f32 below zero as u8": Cast(c([-1.0]), to=u8),
    "NaN as i32": Cast(c([math.nan]), to=i32),
    "infinity as i64": Cast(c([math.inf]), to=i64),
    "i64 beyond i32": Cast(c([2**31], i64), to=i32),
    "i8 below zero as u8": Cast(c([-1], i8), to=u8),
}

FOLDS: dict[str, tuple[Op, list[Any]]] = {
    "sum up to the greatest i32": (Add(c([HIGH - 1], i32), c([1], i32)), [HIGH]),
    "sum of i8": (Add(c([100, -100], i8), c([27, -28], i8)), [127, -128]),
    "integer division rounds toward zero": (Div(c([7, -7, 7, -7], i32), c([2, 2, -2, -2], i32)), [3, -3, -3, 3]),
    "remainder with the divisor's sign": (Mod(c([7, -7], i32), c([3, 3], i32)), [1, 2]),
    "remainder with the dividend's sign": (Mod(c([7, -7], i32), c([3, 3], i32), fmod=True), [1, -1]),
    "power": (Pow(c([3], i32), c([4], i32)), [81]),
    "f32 toward zero": (Cast(c([2.7, -2.7]), to=i32), [2, -2]),
    "greatest f32 below 2^31": (Cast(c([2147483520.0]), to=i32), [2147483520]),
    "f32 -0.9 as u8": (Cast(c([-0.9]), to=u8), [0]),
    "NaN as truth": (Cast(c([math.nan, 0.0, -0.0, 0.1]), to=bool_), [True, False, False, True]),
    "f64 beyond f32 is infinite": (Cast(c([1e300], f64), to=f32), [math.inf]),
    "division of floats by zero": (Div(c([1.0, -1.0]), c([0.0, 0.0])), [math.inf, -math.inf]),
    "choice": (Where(c([True, False], bool_), c([1, 2], i32), c([3, 4], i32)), [1, 4]),
    "place of the greatest": (ArgMax(c([3.0, 9.0, 1.0]), axis=0), [1]),
    "shape arithmetic": (
        Concat((Slice(c([2, 3, 4], i64), starts=(1,), sizes=(2,)), Mul(c([5], i64), c([6], i64))), axis=0),
        [3, 4, 30],
    ),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_differs_between_machines_stays(case: str) -> None:
    report = Report()
    assert type(folded(STAYS[case], report=report)) is type(STAYS[case])
    assert report.misses, "it says why"
    simplified = Simplify().run(make_graph([], {"y": STAYS[case]}), Report())
    assert not isinstance(simplified.outputs[0], (Constant, Splat))


@pytest.mark.parametrize("case", FOLDS)
def test_what_is_sure_is_folded(case: str) -> None:
    op, want = FOLDS[case]
    found = folded(op)
    assert isinstance(found, (Constant, Splat))
    assert value(found) == want


EXACT: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
}


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.data())
def test_integers_fold_to_their_exact_value_or_not_at_all(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    low, high = dtype.limits
    edge = st.sampled_from([low, low + 1, -1, 0, 1, 2, high // 2, high - 1, high]).filter(lambda v: low <= v <= high)
    number = st.one_of(edge, st.integers(int(low), int(high)))
    a, b = int(data.draw(number)), int(data.draw(number))
    kind: Callable[[Op, Op], Op] = data.draw(st.sampled_from([Add, Sub, Mul, Div]))
    as_splats = data.draw(st.booleans())

    def operand(v: int) -> Op:
        return Splat(v, Type(dtype, (2, 2))) if as_splats else c([[v, v], [v, 0 if kind is not Div else 1]], dtype)

    op = kind(operand(a), operand(b))
    found, exact = folded(op), EXACT[op.text_name]
    inside = not (kind is Div and b == 0) and low <= exact(a, b) <= high
    if not isinstance(found, (Constant, Splat)):
        # Sums are judged in f64: what is within its rounding of the limit stays, too.
        assert not inside or dtype.itemsize == 8
    else:
        assert inside
        assert value(found)[0] == exact(a, b)


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(st.lists(st.floats(width=32), min_size=1, max_size=4), st.sampled_from([Exp, Neg, Relu, Abs]))
def test_floats_fold_bit_for_bit(values: list[float], kind: Callable[[Op], Op]) -> None:
    op = kind(c(values))
    graph = make_graph([], {"y": op})
    before, after = (evaluate(g, {})["y"] for g in (graph, FoldConstants().run(graph, Report())))
    np.testing.assert_array_equal(before.view(np.uint32), after.view(np.uint32))


def test_a_chain_folds_in_one_traversal() -> None:
    op: Op = c([1.0, 2.0])
    for _ in range(2000):
        op = Add(op, c([1.0, 0.5]))
    assert value(folded(op)) == [2001.0, 1002.0]


def test_splats_take_no_memory() -> None:
    many = Type(f32, (1000, 1000, 1000, 40))
    op = Transpose(Add(Expand(Splat(2.0, Type(f32, ())), to=many.shape), Splat(1.0, many)), perm=(3, 2, 1, 0))
    assert folded(op) == Splat(3.0, Type(f32, (40, 1000, 1000, 1000)))
    assert folded(c(np.full((3, 3), 0.5))) == Splat(0.5, Type(f32, (3, 3)))
    kept = c([0.0, -0.0])
    assert folded(kept) == kept, "zeros of both signs are two values"


@pytest.mark.parametrize(
    ("op", "folds"),
    [
        (Pad(Splat(0.0, Type(f32, (3,))), pads=(1, 2)), True),
        (Pad(Splat(-0.0, Type(f32, (3,))), pads=(1, 2)), False),
        (Pad(Splat(2.0, Type(f32, (3,))), pads=(1, 2)), False),
        (Pad(Splat(2.0, Type(f32, (3,))), pads=(-1, 0)), True),
        (Concat((Splat(2.0, Type(f32, (3,))), Splat(2.0, Type(f32, (2,)))), axis=0), True),
        (Concat((Splat(2.0, Type(f32, (3,))), Splat(3.0, Type(f32, (2,)))), axis=0), False),
        (Concat((Splat(2.0, Type(f32, (3,))), c([2.0])), axis=0), False),
        (Gather(Splat(2.0, Type(f32, (3,))), Input("i", Type(i64, (4,)))), True),
        (Gather(Input("x", Type(f32, (3,))), Splat(1, Type(i64, (4,)))), False),
        (ReduceSum(Splat(1.0, Type(f32, (3,))), axes=(0,)), False),
    ],
    ids=repr,
)
def test_a_splat_stays_one_where_elements_only_move(op: Op, folds: bool) -> None:
    assert isinstance(fold_splats(op), Splat) == folds


def test_growth_is_limited() -> None:
    small = c([[1.0], [2.0]])
    assert isinstance(folded(Expand(small, to=(2, 8192))), Constant)  # 64 KiB
    grown = Expand(small, to=(2, 8193))
    report = Report()
    assert folded(grown, report=report) == grown
    ((subject, reason),) = report.misses
    assert (subject, reason) == (
        "expand: f32[2,8193]",
        "the result takes 65544 bytes, 65536 more than the constants it replaces",
    )


def test_growth_counts_what_dies() -> None:
    a, b = c(np.arange(20000.0)), c(np.arange(20000.0) ** 2)
    assert isinstance(folded(Add(a, b)), Constant), "80 kB replace 160 kB"
    alive = make_graph([], {"y": Reshape(a, to=(2, 10000)), "a": a})
    assert FoldConstants().run(alive, Report()) == alive, "the constant is needed all the same"


def test_weights_are_not_copied_out_of_their_file() -> None:
    weights = c(np.arange(400_000.0))
    assert folded(Reshape(weights, to=(1000, 400))).operands == (weights,)
    assert isinstance(folded(Reshape(weights, to=(1000, 400)), FoldConstants(large=4 << 20)), Constant)


def test_work_is_limited() -> None:
    small = c(np.arange(256.0).reshape(16, 16))
    op = MatMul(small, small)
    assert isinstance(folded(op, FoldConstants(budget=4096)), Constant)
    report = Report()
    assert folded(op, FoldConstants(budget=4095), report) == op
    assert report.misses == [("mat_mul: f32[16,16]", "it takes 4096 operations, 4095 are left of the budget")]


def test_composites_are_folded_whole() -> None:
    assert value(folded(Softmax(c([[1.0, 1.0]]), axis=1))) == [0.5, 0.5]
    assert value(folded(ReduceMean(c([3, 4], i32), axes=(0,)))) == [3]


def test_what_depends_on_an_input_stays() -> None:
    x = Input("x", Type(f32, (2,)))
    graph = make_graph([x], {"y": Maximum(x, Add(c([1.0, 2.0]), c([1.0, 1.0])))})
    (y,) = FoldConstants().run(graph, Report()).outputs
    assert y == Maximum(x, c([2.0, 3.0]))


def test_known_parts_of_a_shape_meet() -> None:
    """A concatenation of which some entries are known keeps them as constants beside what is computed."""
    x = Input("x", Type(i64, (1,)))
    known = Concat((Mul(c([2], i64), c([3], i64)), x, Add(c([1], i64), c([1], i64))), axis=0)
    graph = Graph((x,), (known,), ("y",))
    (y,) = FoldConstants().run(graph, Report()).outputs
    assert [value(part) for part in y.operands if part != x] == [[6], [2]]
