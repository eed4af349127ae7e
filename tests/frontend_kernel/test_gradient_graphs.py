"""Gradient graphs that the frontend gives: their signature, and their values against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc import DlcError
from dlc.graph import evaluate
from tests.frontend_kernel.texts import Array, case, fault, parse

STEP = 1e-6


def differences(text: str, wrt: tuple[str, ...], seed: int = 0) -> None:
    """The gradients of a text in double precision equal central differences."""
    forward, gradient = parse(text, data_type="double", forward=True), parse(text, data_type="double", grad=wrt)
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {
        i.name: rng.uniform(0.5, 1.5, i.shape)
        if i.dtype.is_float
        else rng.integers(-1, 5, i.shape).astype(i.dtype.numpy)
        for i in forward.inputs
    }
    outputs = {n: o for n, o in zip(forward.names, forward.outputs, strict=True) if o.dtype.is_float}
    seeds = {f"d{n}": rng.normal(size=o.shape) for n, o in outputs.items()}
    found = evaluate(gradient, {i.name: (feeds | seeds)[i.name] for i in gradient.inputs})

    def weighted(values: dict[str, Array]) -> float:
        results = evaluate(forward, values)
        return sum(float(np.sum(results[n] * seeds[f"d{n}"])) for n in outputs)

    for name in wrt:
        expected = np.zeros(feeds[name].shape)
        for place in np.ndindex(*expected.shape):
            sides: list[float] = []
            for step in (STEP, -STEP):
                moved = np.array(feeds[name])
                moved[place] += step
                sides.append(weighted(feeds | {name: moved}))
            expected[place] = (sides[0] - sides[1]) / (2 * STEP)
        np.testing.assert_allclose(found[f"d{name}"], expected, rtol=1e-6, atol=1e-6)


TEXTS: list[tuple[str, str]] = [
    ("A<8>[i] = select(i >= 1 and i < 7, B<8>[i-1] * B[i+1], 0);", "B"),
    ("A<8>[i] = select(C<8>[i] > 1, B<9>[i-1] * C[i], B[i+1]);", "B C"),
    ("S<4,5>[i,j] = exp(B<4,5>[i,j] - max[k](B[i,k])) / sum[k](exp(B[i,k] - max[l](B[i,l])));", "B"),
    ("A<4>[i] = prod[k](B<4,5>[i,k]) - min[k](B[i,k] * C<5>[k]);", "B C"),
    ("a<1> = b<1> * B<4,5>[i,k] * B[i,k] + b * b;", "b B"),
    ("A<10,3>[i*2,0] = A[i*2,0] * A[i*2,1] + B<5>[i];", "A B"),
    ("T<4>[i] = B<4>[i] * B[i]; T[0] = T[1] * T[2]; A<4>[i] = T[i] / (1 + T[3]);", "B"),
    ("A<6>[i] = B<6>[i]; A[i] = A[i] * B[i+2]; A[i*2] = A[i*2] + B[i];", "B"),
    ("A<4>[i] = B<4>[i] % 0.7 + floor(B[i]) + B[i] // 0.3 + i * B[i];", "B"),
    ("A<4>[i] = pow(B<4>[i], 3) + tanh(B[i]) * sqrt(B[i]);", "B"),
    ("A<3,3>[i,j] = B<5>[max(i, j) + 1] * B[min(i, 2)];", "B"),
    ("kernel g(X: f64[4,5], I: i32[6]) -> (Y: f64[6,5]) { Y[p,j] = X[I[p],j] * X[I[p],4-j]; }", "X"),
    ("kernel g(x: f64[6], n: i32) -> (y: f64[6], m: i32) { y[i] = x[i] * x[5-i] * f64(n); m = n + 1; }", "x"),
]


@pytest.mark.parametrize(("text", "wrt"), TEXTS)
def test_gradients_are_those_of_differences(text: str, wrt: str) -> None:
    differences(text, tuple(wrt.split()))


def names(kernel: str, ins: str, grad: str, **more: Any) -> tuple[list[str], list[str]]:
    graph = parse(case(kernel, ins, grad_to=grad.split(), **more), "test.json")
    return [i.name for i in graph.inputs], list(graph.names)


def test_a_gradient_takes_what_it_reads_then_the_cotangents() -> None:
    assert names("A<4>[i] = B<4>[i] * C<4>[i] + 1.0;", "B C", "B") == (["C", "dA"], ["dB"])
    assert names("A<4>[i] = B<4>[i] * C<4>[i];", "B C", "C B") == (["B", "C", "dA"], ["dC", "dB"])
    assert names("A<4>[i] = B<4>[i] + C<4>[i];", "B C", "B") == (["dA"], ["dB"])


def test_options_choose_between_the_kernel_and_its_gradients() -> None:
    text = case("A<4>[i] = B<4>[i] * C<4>[i];", "B C", grad_to=["B"])
    assert parse(text, "test.json").names == ("dB",)
    assert parse(text, "test.json", grad=("C",)).names == ("dC",)
    assert parse(text, "test.json", forward=True).names == ("A",)


def test_a_gradient_by_what_is_no_float_input_is_refused() -> None:
    kernel = "kernel f(x: f32[2], n: i32) -> (y: f32[2]) { y[i] = x[i] * f32(n); }"
    for wrong in ("n", "y", "z"):
        with pytest.raises(DlcError, match=f'"{wrong}"'):
            parse(kernel, grad=(wrong,))
    assert "no input" in fault(case("A<4>[i] = B<4>[i];", "B", grad_to=["A"]), "test.json")
