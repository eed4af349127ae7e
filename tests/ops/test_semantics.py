"""What ops promise at the edges: element types, wrong operands, empty and scalar tensors, NaN and infinities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlc.base.types import DType, Type, bool_, f16, f32, f64, i8, i32, i64, u8, u16
from dlc.graph import Graph, Input, Op, Splat, evaluate, toposort
from dlc.graph.walk import evaluate_ops
from dlc.kernel.define import ShapeError
from dlc.kernel.evaluate import run_kernel
from dlc.ops import elementwise as e
from dlc.ops import index, linear, normalize, pool, reduce, shape
from tests.ops.samples import samples

Array = Any
SAMPLES = list(samples())
NAN, INF = math.nan, math.inf


def named(op: Op) -> str:
    return f"{op.text_name}-{op.type}"


def values_for(op: Op, seed: int = 0) -> list[Array]:
    """Small values that every function can take: between 1/4 and 1, indices 0 to 2, integers 1 to 3."""
    rng = np.random.default_rng(seed)
    out: list[Array] = []
    for x in op.operands:
        word = x.name.rstrip("0123456789") if isinstance(x, Input) else ""
        if word == "permutation":
            value = np.stack([rng.permutation(4)[: x.shape[0]] for _ in range(x.shape[1])], 1)
        elif x.dtype.is_float:
            value = rng.uniform(0.25, 1, x.shape) + (word == "above")
        else:
            value = rng.integers(0, 2, x.shape) + (word != "index" and x.dtype.is_integer)
        out.append(np.asarray(value).astype(x.dtype.numpy))
    return out


def derived(op: Op, arrays: list[Array]) -> Array:
    """The value by the declaration alone."""
    if op.expansion is None:
        return run_kernel(op.kernel, arrays)[0]
    known: dict[Op, Array] = dict(zip(op.operands, arrays, strict=True))
    for part in toposort((op.expansion,), known):
        known[part] = derived(part, [known[x] for x in part.operands])
    return known[op.expansion]


def retyped(op: Op, to: DType) -> Op | None:
    """The op on operands of another type; None when it refuses that type."""
    new = [Input(x.name, Type(to, x.shape)) if x.dtype is f32 and isinstance(x, Input) else x for x in op.operands]
    try:
        return op.with_operands(new)
    except ShapeError:
        return None


@pytest.mark.parametrize("to", [f16, f64, i8, i32, u8, u16], ids=str)
def test_overrides_equal_derivations_in_every_type(to: DType) -> None:
    tried = 0
    for sample in SAMPLES:
        if all(x.dtype is not f32 for x in sample.operands) or (op := retyped(sample, to)) is None:
            continue
        tried += 1
        arrays = values_for(op)
        got = evaluate_ops((op,), dict(zip(op.operands, arrays, strict=True)))[0]
        want = derived(op, arrays)
        assert got.dtype == want.dtype == op.dtype.numpy, named(op)
        assert got.shape == want.shape == op.shape, named(op)
        tolerance = {f16: 2e-2, f64: 1e-9}.get(to, 0)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=named(op))
    assert tried > (100 if to.is_float else 40)


ODD = [Type(t, s) for t in (f32, i64, bool_) for s in ((), (0,), (2,), (3, 1), (1, 2, 3), (2, 3, 4, 5), (1,) * 6)]


@pytest.mark.parametrize("op", SAMPLES, ids=named)
def test_wrong_operands_are_refused_as_shape_errors(op: Op) -> None:
    for k in range(len(op.operands)):
        for of in ODD:
            new = [*op.operands]
            new[k] = Input("odd", of)
            try:
                made = op.with_operands(new)
            except ShapeError as refused:
                assert str(refused)
                continue
            assert made.types == made.derive_types()


def run(op: Op, *arrays: Any) -> Array:
    inputs = [x for x in toposort((op,)) if isinstance(x, Input)]
    feeds = {i.name: np.asarray(a, i.dtype.numpy) for i, a in zip(inputs, arrays, strict=True)}
    got = evaluate(Graph(tuple(inputs), (op,), ("y",)), feeds)["y"]
    want = derived(op, [feeds[x.name] if isinstance(x, Input) else x.evaluate() for x in op.operands])
    np.testing.assert_array_equal(got, want)
    return got


def x(*dims: int, dtype: DType = f32, name: str = "x") -> Input:
    return Input(name, Type(dtype, dims))


EMPTY: list[tuple[Op, tuple[int, ...], float]] = [
    (e.Add(x(0, 3), x(3, name="b")), (0, 3), 0),
    (e.Exp(x(2, 0)), (2, 0), 0),
    (e.Where(x(0, dtype=bool_), x(0, name="a"), x(0, name="b")), (0,), 0),
    (reduce.ReduceSum(x(2, 0), axes=(1,)), (2,), 0),
    (reduce.ReduceProd(x(2, 0), axes=(1,), keep=True), (2, 1), 1),
    (reduce.ReduceMax(x(2, 0), axes=(1,)), (2,), -INF),
    (reduce.ReduceMin(x(2, 0), axes=(1,)), (2,), INF),
    (reduce.ReduceSum(x(0, 3), axes=(1,)), (0,), 0),
    (reduce.CumSum(x(0, 3), axis=0), (0, 3), 0),
    (reduce.ArgMax(x(0, 3), axis=1), (0, 1), 0),
    (linear.MatMul(x(2, 0), x(0, 3, name="b")), (2, 3), 0),
    (linear.MatMul(x(0, 4), x(4, 3, name="b")), (0, 3), 0),
    (linear.Gemm(x(2, 0), x(0, 3, name="b")), (2, 3), 0),
    (linear.Conv(x(0, 2, 5, 5), x(3, 2, 3, 3, name="w")), (0, 3, 3, 3), 0),
    (pool.MaxPool(x(0, 2, 5, 5), window=(2, 2)), (0, 2, 4, 4), 0),
    (pool.AveragePool(x(0, 2, 5, 5), window=(2, 2)), (0, 2, 4, 4), 0),
    (normalize.Softmax(x(0, 3)), (0, 3), 0),
    (shape.Reshape(x(0, 3), to=(3, 0)), (3, 0), 0),
    (shape.Transpose(x(0, 3), perm=(1, 0)), (3, 0), 0),
    (shape.Concat((x(0, 3), x(0, 3, name="b")), axis=0), (0, 3), 0),
    (shape.Slice(x(4), starts=(4,), sizes=(0,)), (0,), 0),
    (shape.Pad(x(0), pads=(1, 1), value=2.0), (2,), 2),
    (shape.Tile(x(2), repeats=(0,)), (0,), 0),
    (shape.Expand(x(1), to=(0,)), (0,), 0),
    (index.Gather(x(3), x(0, dtype=i64, name="i")), (0,), 0),
    (index.Trilu(x(0, 3)), (0, 3), 0),
]


@pytest.mark.parametrize(("op", "dims", "fill"), EMPTY, ids=[named(op) for op, _, _ in EMPTY])
def test_tensors_without_elements(op: Op, dims: tuple[int, ...], fill: float) -> None:
    inputs = [i for i in toposort((op,)) if isinstance(i, Input)]
    got = run(op, *(np.zeros(i.shape, i.dtype.numpy) for i in inputs))
    assert got.shape == dims
    assert np.all(got == fill)


SCALARS: list[tuple[Op, float]] = [
    (e.Neg(x()), -2),
    (e.Add(x(), Splat(1.0, Type(f32, ()))), 3),
    (reduce.ReduceSum(x(), axes=()), 2),
    (reduce.ReduceMean(x(), axes=()), 2),
    (shape.Transpose(x(), perm=()), 2),
    (shape.Reshape(x(), to=(1, 1)), 2),
    (shape.Expand(x(), to=(2, 2)), 2),
    (shape.Tile(x(), repeats=()), 2),
    (e.Cast(x(), i32), 2),
]


@pytest.mark.parametrize(("op", "expected"), SCALARS, ids=[named(op) for op, _ in SCALARS])
def test_scalars(op: Op, expected: float) -> None:
    assert np.all(run(op, 2.0) == expected)


SPECIAL: list[tuple[Op, list[float], Any]] = [
    (e.Relu(x(4)), [NAN, -1, -0.0, INF], [NAN, 0, 0, INF]),
    (e.Clip(x(4), low=0.0, high=6.0), [NAN, -INF, INF, 3], [NAN, 0, 6, 3]),
    (e.Clip(x(2)), [NAN, INF], [NAN, INF]),
    (e.LeakyRelu(x(3), alpha=0.5), [NAN, -2, INF], [NAN, -1, INF]),
    (e.Abs(x(3)), [NAN, -INF, -0.0], [NAN, INF, 0]),
    (e.Sign(x(4)), [NAN, -INF, 0, 3], [NAN, -1, 0, 1]),
    (e.Sigmoid(x(4)), [-INF, INF, -1000, 1000], [0, 1, 0, 1]),
    (e.Softplus(x(3)), [-1000, 0, 1000], [0, np.float32(math.log(2)), 1000]),
    (e.Reciprocal(x(3)), [0, -0.0, INF], [INF, -INF, 0]),
    (e.IsNan(x(3)), [NAN, INF, 0], [True, False, False]),
    (e.IsInf(x(3)), [NAN, -INF, 0], [False, True, False]),
    (e.Round(x(4)), [0.5, 1.5, -2.5, NAN], [0, 2, -2, NAN]),
    (e.Cast(x(4), bool_), [0, -0.0, 0.5, NAN], [False, False, True, True]),
    (e.Cast(x(3), i32), [1.9, -1.9, 0], [1, -1, 0]),
    (reduce.ReduceMax(x(3), axes=(0,)), [1, NAN, 2], NAN),
    (reduce.ReduceMin(x(3), axes=(0,)), [1, NAN, 2], NAN),
    (reduce.ReduceMax(x(2), axes=(0,)), [-INF, -INF], -INF),
    (reduce.ReduceLogSumExp(x(2), axes=(0,)), [-INF, -INF], -INF),
    (reduce.ReduceLogSumExp(x(2), axes=(0,)), [INF, 0], INF),
    (reduce.ReduceLogSumExp(x(2), axes=(0,)), [1000, -INF], 1000),
    (reduce.ArgMax(x(4), axis=0, keep=False), [1, 3, 3, -INF], 1),
    (reduce.ArgMax(x(4), axis=0, keep=False, last=True), [1, 3, 3, -INF], 2),
    (reduce.ArgMin(x(3), axis=0, keep=False), [INF, INF, INF], 0),
    (reduce.ArgMax(x(4), axis=0, keep=False), [1, NAN, 3, NAN], 1),
    (reduce.ArgMax(x(4), axis=0, keep=False, last=True), [1, NAN, 3, NAN], 3),
    (reduce.ArgMin(x(4), axis=0, keep=False), [1, NAN, -INF, NAN], 1),
    (normalize.Softmax(x(3)), [-INF, 0, 0], [0, 0.5, 0.5]),
    (normalize.LogSoftmax(x(2)), [1000, 1000], [-np.float32(math.log(2))] * 2),
    (pool.MaxPool(x(1, 1, 3), window=(2,)), [1, NAN, 2], [NAN, NAN]),
]


@pytest.mark.parametrize(("op", "given", "expected"), SPECIAL, ids=[named(op) for op, _, _ in SPECIAL])
def test_special_values(op: Op, given: list[float], expected: Any) -> None:
    got = run(op, np.reshape(given, op.operands[0].shape))
    np.testing.assert_array_equal(got.reshape(-1), np.reshape(expected, -1))


def test_an_argument_of_nothing_but_nan_is_a_valid_index() -> None:
    for op in (reduce.ArgMax(x(3), axis=0), reduce.ArgMin(x(3), axis=0, last=True)):
        assert 0 <= run(op, [NAN, NAN, NAN])[0] <= 2


PAIRS: list[tuple[Callable[[Op, Op], Op], Callable[[int, int], int]]] = [
    (e.Add, lambda a, b: a + b),
    (e.Sub, lambda a, b: a - b),
    (e.Mul, lambda a, b: a * b),
    (e.Minimum, min),
    (e.Maximum, max),
    (e.Div, lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
    (e.Mod, lambda a, b: a % b),
    (lambda a, b: e.Mod(a, b, fmod=True), lambda a, b: int(math.fmod(a, b))),
    (e.Less, lambda a, b: a < b),
    (e.Equal, lambda a, b: a == b),
]


@pytest.mark.parametrize("dtype", [i8, u8, i32], ids=str)
@pytest.mark.parametrize("case", range(len(PAIRS)))
def test_integers_wrap_and_round_toward_zero(dtype: DType, case: int) -> None:
    make, exact = PAIRS[case]
    low, high = dtype.limits
    values = [v for v in (low, low + 1, -7, -2, -1, 1, 2, 3, 7, high - 1, high) if low <= v <= high]
    pairs = [(a, b) for a in values for b in values if b and not (a == low < 0 and b == -1)]
    a, b = x(len(pairs), dtype=dtype), x(len(pairs), dtype=dtype, name="b")
    got = run(make(a, b), [p for p, _ in pairs], [q for _, q in pairs])
    for value, (p, q) in zip(got.tolist(), pairs, strict=True):
        want = exact(p, q)
        span = high - low + 1
        assert value == (want if isinstance(want, bool) else (want - low) % span + low), (p, q)


def test_sums_of_integers_wrap() -> None:
    assert run(reduce.ReduceSum(x(3, dtype=u8), axes=(0,)), [200, 100, 1]).tolist() == 45
    assert run(reduce.ReduceProd(x(2, dtype=i8), axes=(0,)), [16, 8]).tolist() == -128
    assert run(reduce.CumSum(x(2, dtype=i8), axis=0), [127, 1]).tolist() == [127, -128]
    assert run(linear.MatMul(x(1, 2, dtype=i8), x(2, 1, dtype=i8, name="b")), [[100, 100]], [[1], [1]]).tolist() == [
        [-56]
    ]
    assert run(e.Neg(x(1, dtype=i8)), [-128]).tolist() == [-128]
    assert run(e.Cast(x(2, dtype=i32), u8), [-1, 257]).tolist() == [255, 1]


def test_subscripts_of_narrow_types_reach_every_row() -> None:
    """What is computed with them, minus one as the last row, is wider than they are."""
    rows, at = np.arange(300, dtype=np.float32), np.array([-1, 5, -128, 127], np.int8)
    data, places, pairs = x(300, dtype=f32), x(4, dtype=i8, name="b"), x(4, 1, dtype=i8, name="b")
    for op, given in (
        (index.Gather(data, places, axis=0), at),
        (index.GatherElements(data, places, axis=0), at),
        (index.GatherNd(data, pairs), at[:, None]),
    ):
        assert run(op, rows, given).tolist() == rows[at].tolist()
