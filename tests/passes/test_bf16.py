"""Products by bf16: their errors stay within the bounds of docs/math.md, on all kinds of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc.base.report import Report
from dlc.graph import Graph, evaluate, parse_graph
from dlc.plugins.builtin import dlc_ops
from dlc.spec import Spec
from tests.passes.conftest import STRUCTURE
from tests.passes.test_properties import PASSES

Array = np.ndarray[Any, np.dtype[Any]]
BOUNDS = {1: 2.0**-7, 2: 2.0**-15, 3: 2.0**-24}
"""Of the error of an output, relative to the sum of the sizes of its terms, beside what f32 rounds."""
M, N, K = 6, 5, 8


def product(weights: Array, parts: int) -> Graph:
    """x[M,K]·w by so many parts, or (0) as f32 has it."""
    ops = {op.text_name: op for op in dlc_ops()} | STRUCTURE
    values = ",".join(f"{float(v)!r}" for v in weights.ravel())
    text = f"""graph(%0 "x": f32[{M},{K}]) {{
  %1 = constant() tensor=f32[{K},{N}]{{{values}}}
  %2 = mat_mul(%0, %1)
  return %2 "y"
}}"""
    graph = parse_graph(text, ops)
    for spec in Spec.parse_pipeline(f"lower,bf16{{parts={parts} when=always}}", "test"):
        graph = PASSES[spec.name].from_spec(spec).run(graph, Report())
    return graph


def computed(x: Array, w: Array, parts: int) -> Array:
    return evaluate(product(w, parts), {"x": x})["y"]


def numbers(seed: int, spread: int) -> tuple[Array, Array]:
    """Numbers of both signs and exponents that differ by up to twice the spread."""
    rng = np.random.default_rng(seed)

    def some(*shape: int) -> Array:
        return np.ldexp(rng.uniform(-2, 2, shape), rng.integers(-spread, spread + 1, shape)).astype(np.float32)

    return some(M, K), some(K, N)


@pytest.mark.parametrize("spread", [0, 10, 40])
@pytest.mark.parametrize("parts", BOUNDS)
def test_errors_are_bounded(parts: int, spread: int) -> None:
    for seed in range(5):
        x, w = numbers(seed, spread)
        a, b = x.astype(np.float64), w.astype(np.float64)
        sizes = np.abs(a) @ np.abs(b)
        error = np.abs(computed(x, w, parts) - a @ b) / sizes
        assert error.max() <= BOUNDS[parts] + 6 * K * 2.0**-24
        if parts < 3:
            assert error.max() > BOUNDS[parts + 1]  # it is not computed more exactly than it says


def test_the_bounds_are_nearly_reached() -> None:
    """By numbers that lie between two of bf16, and one that lies between two of the sum of two bf16."""
    for parts, value in {1: 1 + 2.0**-8, 2: 1 + 2.0**-8 + 2.0**-9 - 2.0**-17}.items():
        x, w = np.full((M, K), value, np.float32), np.full((K, N), value, np.float32)
        error = np.abs(computed(x, w, parts) / (K * np.float64(value) ** 2) - 1)
        assert BOUNDS[parts] / 8 < error.max() <= BOUNDS[parts]


def test_three_parts_lose_nothing() -> None:
    x, _ = numbers(3, 20)
    w = np.eye(K, N, dtype=np.float32)
    np.testing.assert_array_equal(computed(x, w, 3), x[:, :N])


@pytest.mark.parametrize("parts", BOUNDS)
def test_what_is_not_finite(parts: int) -> None:
    """One bf16 has infinities and NaN as f32 has them; of several, the rest of an infinity is no number."""
    x, w = numbers(1, 2)
    x[0, 1], x[1, 1], x[2, 0] = np.inf, -np.inf, np.nan
    x[3, 2] = 3.4e38  # more than bf16 has
    with np.errstate(all="ignore"):
        got, want = computed(x, w, parts), x.astype(np.float64) @ w.astype(np.float64)
    assert not np.isfinite(got[:4]).any() and np.isfinite(got[4:]).all()
    if parts == 1:
        np.testing.assert_array_equal(got[:3], want[:3])
        np.testing.assert_array_equal(np.sign(got[3]), np.sign(w[2]))


def test_tiny_numbers() -> None:
    """Nothing is lost beyond the smallest numbers of f32."""
    x, w = numbers(2, 4)
    x = np.ldexp(x, -130).astype(np.float32)
    a, b = x.astype(np.float64), w.astype(np.float64)
    for parts, bound in BOUNDS.items():
        error = np.abs(computed(x, w, parts) - a @ b)
        assert np.all(error <= (bound + 2.0**-19) * (np.abs(a) @ np.abs(b)) + 6 * K * 2.0**-133 * np.abs(b).max())
