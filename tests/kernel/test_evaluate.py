"""The interpreter of kernels against plain Python loops, written without looking at it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import DTYPES, DType, Type, bool_, f32, i8, i32, u8
from dlc.kernel import evaluate as module
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param, identity
from dlc.kernel.scalar import SCALARS
from dlc.kernel.text import parse_kernel
from tests.kernel.random_kernels import random_kernel

Array = Any
FOLDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": np.maximum,
    "min": np.minimum,
}


def loops(kernel: Kernel, args: list[Array]) -> tuple[Array, ...]:
    """One point at a time, in order; the value of an expression from its definition."""
    env: dict[str, Array] = dict(zip((p.name for p in kernel.params), args, strict=True))
    for t in (*kernel.results, *kernel.locals):
        first = next((n.reduce for n in kernel.nests if n.out == t.name), None)
        env[t.name] = np.full(t.shape, identity(first, t.dtype), t.dtype.numpy)
    for nest in kernel.nests:
        for point in itertools.product(*(range(a.extent) for a in nest.axes)):
            at = dict(zip(nest.axes, point, strict=True))
            if nest.where is not None and not value(kernel, nest.where, at, env, None):
                continue
            of = kernel.tensors[nest.out].dtype
            index = tuple(int(value(kernel, i, at, env, None)) for i in nest.index)
            assert all(0 <= i < d for i, d in zip(index, env[nest.out].shape, strict=True))
            got = value(kernel, nest.body, at, env, of)
            old = env[nest.out][index]
            env[nest.out][index] = got if nest.reduce is None else FOLDS[nest.reduce](old, got)
    return tuple(env[r.name] for r in kernel.results)


def value(kernel: Kernel, e: Expr, at: Mapping[Axis, int], env: Mapping[str, Array], like: DType | None) -> Any:
    match e:
        case Const(v):
            return v if like is None else like.numpy.type(v)
        case Axis():
            return np.int64(at[e])
        case Load(param, index):
            where = tuple(int(value(kernel, i, at, env, None)) for i in index)
            assert all(0 <= i < d for i, d in zip(where, env[param].shape, strict=True)), "an unguarded load leaves"
            return env[param][where]
        case Apply("select", (condition, a, b)):
            chosen = a if value(kernel, condition, at, env, None) else b
            return value(kernel, chosen, at, env, kernel.dtype_of(e) or like)
        case Apply(fn, args) if SCALARS[fn].rule == "cast":
            return DTYPES[fn].numpy.type(value(kernel, args[0], at, env, None))
        case Apply(fn, args):
            known = [d for a in args if (d := kernel.dtype_of(a)) is not None]
            inner = known[0] if known else None if SCALARS[fn].rule == "bool" else like
            return SCALARS[fn].value(*(value(kernel, a, at, env, inner) for a in args))
        case _:
            raise AssertionError(e)


def arguments(kernel: Kernel, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(p.shape).astype(np.float32)
        if p.dtype is f32
        else rng.integers(-9, 9, p.shape).astype(p.dtype.numpy)
        for p in kernel.params
    ]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30))
def test_random_kernels_compute_what_loops_compute(seed: int) -> None:
    kernel = random_kernel(seed)
    if sum(n.points for n in kernel.nests) > 3000:
        return
    args = arguments(kernel, seed)
    with np.errstate(all="ignore"):
        expected = loops(kernel, args)
    for got, want in zip(run_kernel(kernel, args), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-4)


def test_slabs_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "kernel(f32[9,7], f32[7,5]) -> (f32[9,5]) { k<7: r0[i,j] += p0[i,k]*p1[k,j] if i+k < 12 }"
    kernel = parse_kernel(text)
    args = arguments(kernel, 1)
    (whole,) = run_kernel(kernel, args)
    monkeypatch.setattr(module, "SLAB_POINTS", 70)
    np.testing.assert_allclose(run_kernel(kernel, args)[0], whole, rtol=1e-6)


NESTS: dict[str, tuple[str, list[Array], Array]] = {
    "sum of nothing": ("(f32[0]) -> (f32[]) { k<0: r0[] += p0[k] }", [np.zeros(0, "f")], np.float32(0)),
    "product of nothing": ("(f32[0]) -> (f32[]) { k<0: r0[] *= p0[k] }", [np.zeros(0, "f")], np.float32(1)),
    "max of nothing": ("(f32[0]) -> (f32[]) { k<0: r0[] max= p0[k] }", [np.zeros(0, "f")], np.float32(-np.inf)),
    "min of nothing": ("(i8[0]) -> (i8[]) { k<0: r0[] min= p0[k] }", [np.zeros(0, "i1")], np.int8(127)),
    "scalar": ("(f32[]) -> (f32[]) { r0[] = p0[]*2.0 }", [np.array(3, "f")], np.float32(6)),
    "literal": ("() -> (i64[2]) { r0[i] = 7 }", [], np.array([7, 7])),
    "axis as data": ("() -> (i64[3]) { r0[i] = i*i }", [], np.array([0, 1, 4])),
    "scatter": ("(i64[3], f32[3]) -> (f32[2]) { i<3: r0[p0[i]] += p1[i] }", [[1, 0, 1], [1, 2, 4]], np.array([2, 5.0])),
    "two nests, one result": (
        "(f32[2], f32[1]) -> (f32[3]) { i<2: r0[i] = p0[i] i<1: r0[i+2] = p1[i] }",
        [[1, 2], [3]],
        np.array([1, 2, 3.0]),
    ),
    "guard": ("(f32[4]) -> (f32[4]) { r0[i] = p0[i] if i % 2 == 1 }", [[1, 2, 3, 4]], np.array([0, 2, 0, 4.0])),
    "guarded load outside": (
        "(f32[3]) -> (f32[3]) { k<3: r0[i] += p0[i+k-1] if i+k >= 1 and i+k < 4 }",
        [[1, 2, 4]],
        np.array([3, 7, 6.0]),
    ),
    "local": ("(f32[2]) -> (f32[2]) local (f32[]) { k<2: t0[] += p0[k] r0[i] = p0[i]/t0[] }", [[1, 3]], [0.25, 0.75]),
}


@pytest.mark.parametrize("name", NESTS)
def test_nests(name: str) -> None:
    text, args, expected = NESTS[name]
    kernel = parse_kernel("kernel" + text)
    (got,) = run_kernel(kernel, [np.asarray(a, p.dtype.numpy) for a, p in zip(args, kernel.params, strict=True)])
    np.testing.assert_allclose(got, expected)
    assert got.dtype == kernel.results[0].dtype.numpy
    assert got.shape == kernel.results[0].shape


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d is not bool_ and d.name != "f8e8m0"], ids=str)
@pytest.mark.parametrize("reduce", ["add", "mul", "max", "min"])
def test_identities_of_reductions(dtype: DType, reduce: str) -> None:
    low, high = (-1.5, 2.5) if dtype.is_float else dtype.limits
    start = dtype.numpy.type(identity(reduce, dtype))
    for x in (low, high, 0, 1):
        assert FOLDS[reduce](start, dtype.numpy.type(x)) == dtype.numpy.type(x)


def test_literals_wrap_as_data_does() -> None:
    kernel = parse_kernel("kernel(u8[2]) -> (u8[2]) { r0[i] = p0[i]-1 }")
    assert run_kernel(kernel, [np.array([0, 9], np.uint8)])[0].tolist() == [255, 8]


@pytest.mark.parametrize("dtype", [i8, u8, i32], ids=str)
def test_integer_functions_at_the_edges(dtype: DType) -> None:
    low, high = dtype.limits
    values = [v for v in {low, low + 1, -7, -2, -1, 1, 2, 7, high - 1, high} if low <= v <= high]
    pairs = [(a, b) for a in values for b in values if b and not (a == low and b == -1)]
    a, b = (np.array(side, dtype.numpy) for side in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        truncated, floored = SCALARS["truncdiv"].value(a, b), SCALARS["floordiv"].value(a, b)
        c_remainder, mod = SCALARS["fmod"].value(a, b), SCALARS["mod"].value(a, b)
    for k, (p, q) in enumerate(pairs):
        toward_zero = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        assert truncated[k] == toward_zero
        assert floored[k] == math.floor(p / q) if abs(p) < 1 << 50 else True
        assert c_remainder[k] == p - toward_zero * q
        assert mod[k] == p % q


NAN = float("nan")


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        ("max", (NAN, 1.0), NAN),
        ("max", (1.0, NAN), NAN),
        ("min", (NAN, 1.0), NAN),
        ("min", (1.0, NAN), NAN),
        ("sign", (-0.0,), 0.0),
        ("sign", (NAN,), NAN),
        ("round", (2.5,), 2.0),
        ("round", (-3.5,), -4.0),
        ("fmod", (-7.5, 2.0), -1.5),
        ("mod", (-7.5, 2.0), 0.5),
        ("exp", (1000.0,), math.inf),
        ("log", (0.0,), -math.inf),
        ("sqrt", (-1.0,), NAN),
        ("div", (1.0, 0.0), math.inf),
        ("div", (0.0, 0.0), NAN),
        ("erf", (math.inf,), 1.0),
        ("tanh", (-math.inf,), -1.0),
        ("pow", (-8.0, 2.0), 64.0),
        ("pow", (0.0, 0.0), 1.0),
    ],
)
def test_special_values(fn: str, args: tuple[float, ...], expected: float) -> None:
    with np.errstate(all="ignore"):
        got = SCALARS[fn].value(*(np.array([a], np.float32) for a in args))
    np.testing.assert_array_equal(got, np.array([expected], np.float32))


def test_reductions_of_nan() -> None:
    for op in ("max", "min", "+", "*"):
        kernel = parse_kernel(f"kernel(f32[3]) -> (f32[]) {{ k<3: r0[] {op}= p0[k] }}")
        for place in range(3):
            x = np.ones(3, np.float32)
            x[place] = NAN
            assert math.isnan(run_kernel(kernel, [x])[0])


def test_a_nest_reads_what_nests_before_it_wrote() -> None:
    p, r = Param("p", Type(f32, (3,))), Param("r", Type(f32, (3,)))
    i = Axis("i", 3)
    twice = Nest("r", (i,), (i,), r[i] + r[i])
    kernel = Kernel.canonical((p,), (r,), (Nest("r", (i,), (i,), p[i] * 1.5), twice))
    assert run_kernel(kernel, [np.array([1, 2, 3], np.float32)])[0].tolist() == [3, 6, 9]


def test_a_converted_literal_is_read_in_the_type_it_becomes() -> None:
    kernel = parse_kernel("kernel() -> (f64[], f32[], i32[]) { r0[] = f64(0.9) r1[] = f32(1) r2[] = i32(2.7) }")
    assert [float(r) for r in run_kernel(kernel, [])] == [0.9, 1.0, 2.0]
