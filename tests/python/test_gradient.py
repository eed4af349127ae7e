"""`dlc.grad` and `dlc.value_and_grad` against torch's autograd, of functions, kernels and compiled models; composed."""

# Functions to trace are written as users write them, without types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from typing import Any

import numpy as np
import pytest
import torch

import dlc
from dlc.graph import evaluate

FAST = "c{flags=-O0 cpu=generic}"
RNG = np.random.default_rng(0)
PARAMS = {
    "w": [RNG.standard_normal((4, 5), np.float32), RNG.standard_normal((5, 3), np.float32)],
    "b": RNG.standard_normal(5, np.float32),
}
X, LABELS = RNG.standard_normal((6, 4), np.float32), RNG.integers(0, 3, 6)


def loss(params: Any, x: Any, labels: Any) -> Any:
    h = np.tanh(x @ params["w"][0] + params["b"])
    scores = np.where(h > 0, h, h * 0.1) @ params["w"][1]
    scores = scores - scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    picked = logs[np.arange(6), labels]
    return -picked.mean() + 0.01 * (params["w"][0] ** 2).sum()


def torch_loss(params: Any, x: Any, labels: Any) -> Any:
    h = torch.tanh(x @ params["w"][0] + params["b"])
    scores = torch.where(h > 0, h, h * 0.1) @ params["w"][1]
    return torch.nn.functional.cross_entropy(scores, labels) + 0.01 * (params["w"][0] ** 2).sum()


def test_a_network_has_torchs_gradients() -> None:
    step = dlc.value_and_grad(dlc.kernel(loss, target=FAST), wrt="params")
    value, found = step(PARAMS, X, LABELS)
    w = [torch.tensor(a, requires_grad=True) for a in PARAMS["w"]]
    b = torch.tensor(PARAMS["b"], requires_grad=True)
    wanted = torch_loss({"w": w, "b": b}, torch.tensor(X), torch.tensor(LABELS))
    wanted.backward()
    np.testing.assert_allclose(value, wanted.item(), rtol=1e-5)
    np.testing.assert_allclose(value, loss(PARAMS, X, LABELS), rtol=1e-5)
    assert list(found) == ["w", "b"] and isinstance(found["w"], list)
    for a, t in zip([*found["w"], found["b"]], [*w, b], strict=True):
        assert t.grad is not None
        np.testing.assert_allclose(a, t.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_gradients_are_functions_to_differentiate_again() -> None:
    def f(x: Any, y: Any) -> Any:
        return (np.sin(x) * np.exp(y)).sum()

    def second(x: Any, y: Any) -> Any:
        """∂/∂x of Σ (∂f/∂y · x)."""
        return (dlc.grad(f, wrt="y")(x, y) * x).sum()

    both = dlc.kernel(lambda x, y: (dlc.grad(second)(x, y), dlc.grad(dlc.grad(lambda z: f(z, 0.5)))(x[0])), target=FAST)
    x, y = np.array([0.3, -1.2, 2.0]), np.array([0.1, 0.5, -0.7])
    found = both(x, y)
    np.testing.assert_allclose(found[0], np.exp(y) * (np.cos(x) * x + np.sin(x)), rtol=1e-9)
    np.testing.assert_allclose(found[1], -np.sin(x[0]) * np.exp(0.5), rtol=1e-9)


def test_only_what_is_read_as_the_argument_counts() -> None:
    """A value that a function reads otherwise, here of an outer function, is a constant for the derivative."""

    @dlc.kernel(target=FAST)
    def f(x: Any) -> Any:
        y = x * x
        return dlc.grad(lambda z: z * y + z * z)(y), dlc.grad(lambda z: z * dlc.grad(lambda v: v * z)(z))(x)

    found = f(np.float64(3))
    np.testing.assert_allclose(found, [27, 6])  # y + 2y, and 2z of z · z


def test_several_arguments_give_a_tuple() -> None:
    f = dlc.kernel(lambda a, b, n=2: (a * b).sum() ** n, target=FAST)
    a, b = np.array([1.0, 2.0]), np.array([3.0, -1.0])
    value, (da, db) = dlc.value_and_grad(f, wrt=(0, "b"))(a, b)
    assert value == 1
    np.testing.assert_allclose(da, 2 * b)
    np.testing.assert_allclose(db, 2 * a)


def test_compiled_models_and_kernels_have_gradients() -> None:
    text = "kernel f(A: float[3,4], w: float[4]) -> (s: float) { s = sum[i,j](A[i,j] * w[j] * w[j]); }"
    kernel = dlc.kernel(text, target=FAST)
    graph = kernel.graph()
    compiled = dlc.compile(graph, FAST)
    a, w = RNG.standard_normal((3, 4), np.float32), RNG.standard_normal(4, np.float32)
    want = (a * 2 * w).sum(0)
    for of in (kernel, compiled, graph):
        found = dlc.grad(of, wrt="w").graph(a, w)
        np.testing.assert_allclose(evaluate(found, {"A": a, "w": w})["result"], want, rtol=1e-4)
    np.testing.assert_allclose(dlc.grad(compiled, wrt="w")(a, w), want, rtol=1e-4)


REFUSED: list[tuple[Any, str]] = [
    (lambda: dlc.grad(lambda x: x)(X), "returns f32[6,4], which is no scalar"),
    (lambda: dlc.grad(lambda x: x.sum(), wrt="y"), 'has no argument "y"'),
    (lambda: dlc.grad(lambda x: x.sum(), wrt=1), "has no argument 1: there are 1"),
    (lambda: dlc.grad(lambda x, k: x[k].sum(), wrt="k")(X, LABELS), "k is i64[6]: only floats have gradients"),
    (lambda: dlc.grad(lambda x: {"a": x.sum(), "b": x.max()})(X), "returns 2 arrays"),
    (lambda: dlc.grad(lambda x: {"a": x.sum(), "b": x.max()}, of="c")(X), 'returns no "c"'),
    (lambda: dlc.grad(3), "3 cannot be differentiated"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_has_no_gradient_is_refused(call: Any, message: str) -> None:
    with pytest.raises(dlc.DlcError) as found:
        call()
    assert found.value.diagnostics[0].code == "no-gradient" and message in str(found.value)
