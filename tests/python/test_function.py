"""Functions made by `@dlc.kernel`: annotations, specialisation, containers, buffers, kernel text, wrong arguments."""

# Functions to trace are written as users write them, without types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import numpy as np
import pytest
import torch

import dlc

FAST = "c{flags=-O0 cpu=generic}"
f32, i64 = dlc.f32, dlc.i64
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def scaled() -> dlc.Function:
    def scaled(x: Annotated[Array, f32["n=1..8", 3]], w: Annotated[Array, f32["n", 3]], factor: Any = 2.0) -> Any:
        """x · w · factor, and the sum of it."""
        y = x * w * factor
        return {"y": y, "total": [y.sum(), None, "text"]}

    return dlc.kernel(scaled, target=FAST)


def test_one_program_serves_all_sizes(scaled: dlc.Function) -> None:
    for n in (1, 5, 8):
        x, w = np.full((n, 3), 2, np.float32), np.arange(n * 3, dtype=np.float32).reshape(n, 3)
        found = scaled(x, w=w)
        np.testing.assert_allclose(found["y"], x * w * 2)
        np.testing.assert_allclose(found["total"][0], (x * w * 2).sum())
        assert found["total"][1:] == [None, "text"]
    assert len(scaled.compiled) == 1
    assert [p.name for p in scaled.signature.inputs] == ["x", "w", "n"]
    assert [p.name for p in scaled.signature.outputs] == ["y", "total[0]"]
    assert scaled.report.steps and "lower" in str(scaled.report)
    assert scaled.__doc__ and scaled.__doc__.startswith("x · w")


def test_tensors_are_shared_and_buffers_filled(scaled: dlc.Function) -> None:
    before = scaled.compiled[0].copied.arrays
    x, w, y = torch.ones(2, 3), torch.full((2, 3), 3.0), torch.zeros(2, 3)
    found = scaled(x, w, out={"y": y})
    assert found["y"].__array_interface__["data"][0] == y.data_ptr()
    torch.testing.assert_close(y, x * w * 2)
    assert scaled.compiled[0].copied.arrays == before


X = np.ones((2, 3), np.float32)
WRONG: list[tuple[Any, str]] = [
    (lambda f: f(X), "missing a required argument: 'w'"),
    (lambda f: f(X, X, 2.0, 3), "too many positional arguments"),
    (lambda f: f(X, X, other=1), "unexpected keyword argument 'other'"),
    (lambda f: f(X.astype(np.float64), X), 'input "x": expected float32[2,3], found float64[2,3]'),
    (lambda f: f(X, X[:1]), 'input "w": expected float32[2,3], found float32[1,3]'),
    (lambda f: f(X[:, :2], X), 'input "x": expected float32[2,3], found float32[2,2]'),
    (lambda f: f(np.ones((9, 3), np.float32), X), 'dimension 0 of input "x" is 9: n is 1..8'),
    (lambda f: f(X, X, out={"z": X}), 'there is no output "z"'),
    (lambda f: f(X, X, {1, 2}), "factor: set is no argument to compile for"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments_are_refused_by_name(scaled: dlc.Function, call: Any, message: str) -> None:
    with pytest.raises(dlc.DlcError) as found:
        call(scaled)
    assert found.value.diagnostics[0].code == "wrong-argument" and message in str(found.value)


def test_types_and_values_have_programs_of_their_own() -> None:
    calls: list[Any] = []

    @dlc.kernel(target=FAST)
    def f(params: Any, mode: str = "twice") -> Any:
        calls.append(params)
        return params["w"] * 2 if mode == "twice" else params["w"] + params["b"][0]

    w, b = np.arange(3, dtype=np.float32), np.ones((), np.float32)
    np.testing.assert_array_equal(f({"w": w, "b": [b]}), w * 2)
    np.testing.assert_array_equal(f({"w": w + 1, "b": [b]}), w * 2 + 2)
    np.testing.assert_array_equal(f({"w": w, "b": [b]}, mode="sum"), w + 1)
    assert len(calls) == 2 and len(f.compiled) == 2

    def run(k: int) -> None:
        for _ in range(20):
            np.testing.assert_array_equal(f({"w": w + k, "b": [b]}), (w + k) * 2)
            np.testing.assert_array_equal(f({"w": w.astype(np.float64), "b": [b]}), w * 2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert len(calls) == 3  # traced once for the new type, not once a thread


def test_functions_are_parts_of_others_and_so_are_kernels() -> None:
    @dlc.kernel
    def blur(x: Any) -> Any:
        """kernel blur(B: float[4,4]) -> (A: float[2,4]) {
            A[i,j] = (B[i,j] + B[i+1,j] + B[i+2,j]) / 3.0;
        }"""

    @dlc.kernel(target=FAST)
    def f(x: Any) -> Any:
        return half(blur(x) @ x)

    @dlc.kernel
    def half(x: Any) -> Any:
        return x / 2

    x = np.random.default_rng(0).random((4, 4), np.float32)
    want = (x[:2] + x[1:3] + x[2:]) / 3 @ x / 2
    np.testing.assert_allclose(f(x), want, rtol=1e-5)
    assert half.compiled == () and blur.compiled == ()
    with pytest.raises(dlc.DlcError, match=r'"B" is f32\[4,4\], not f32\[2,2\]'):
        dlc.kernel(lambda x: blur(x[:2, :2])).graph(x)
    with pytest.raises(dlc.DlcError, match=r"broken\.kernel"):

        @dlc.kernel
        def broken() -> None:
            """kernel broken(B: float[4]) -> (A: float[4]) { A[i] = C[i]; }"""


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (("n=4..2",), "n=4..2"),
        (("2n",), "'2n' is no size"),
        ((-1,), "-1 is no size"),
        (("n=8..20/8",), "multiples of the step"),
    ],
)
def test_annotations_that_are_no_types_are_refused(dims: tuple[Any, ...], message: str) -> None:
    with pytest.raises(dlc.DlcError) as found:

        @dlc.kernel
        def f(x: Annotated[Array, f32[dims]]) -> Any:
            return x

    assert found.value.diagnostics[0].code == "bad-annotation" and message in str(found.value)


def test_open_sizes_are_numbers_of_the_call() -> None:
    @dlc.kernel
    def f(x: Annotated[Array, f32["n=2..6", 4]]) -> Any:
        n = x.shape[0]
        return x.reshape(n * 2, 2).mean(0), x.sum() / n, x[1:], x[-1], np.zeros_like(x) + n

    graph = f.graph()
    assert [str(o.shape[0]) if o.shape else "" for o in graph.outputs][2] != "3"
    g = dlc.compile(f, FAST)
    x = np.random.default_rng(1).random((5, 4), np.float32)
    want = x.reshape(10, 2).mean(0), x.sum() / 5, x[1:], x[-1], np.zeros_like(x) + 5
    assert len(g.compiled) == 1  # annotations told all types, so it was compiled at once
    for a, b in zip(g(x), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
