"""Functions traced from numpy's calls are compared with themselves, undecorated, on numpy arrays."""

# Functions to trace are written as users write them, without types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportPrivateUsage=false

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlc
from dlc.graph import evaluate
from tests.python.functions import FUNCTIONS

Array = np.ndarray[Any, Any]


def arrays(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((3, 4), np.float32),
        "y": rng.standard_normal((3, 4), np.float32),
        "v": rng.random(4, np.float32) + np.float32(0.5),
        "k": rng.integers(0, 4, (3, 4)),
        "u": rng.integers(0, 255, (3, 4)).astype(np.uint8),
        "b": rng.random((3, 4)) > 0.5,
    }


def listed(result: Any) -> list[Array]:
    return [np.asarray(a) for a in (result if isinstance(result, (tuple, list)) else [result])]


def same(found: Any, wanted: Any, rtol: float = 1e-5) -> None:
    assert len(found) == len(wanted)
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), k
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6, err_msg=str(k))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_compute_what_numpy_does(name: str) -> None:
    """Values, element types and shapes, by the reference of the graph's ops."""
    given = arrays(len(name))
    graph = dlc.kernel(FUNCTIONS[name]).graph(**given)
    found = evaluate(graph, {i.name: given[i.name] for i in graph.inputs})
    same(list(found.values()), listed(FUNCTIONS[name](*given.values())))


def test_programs_compute_what_numpy_does() -> None:
    """Those that are made of what no other frontend makes, in one program: the reference has computed the others."""
    chosen = ("integers divide as floats", "types mix", "logarithms", "gathers", "chosen")

    def every(x: Any, y: Any, v: Any, k: Any, u: Any, b: Any) -> Any:
        return {name: FUNCTIONS[name](x, y, v, k, u, b) for name in chosen}

    compiled = dlc.kernel(every, target="c{flags=-O0 cpu=generic}")
    given = arrays(1)
    found, wanted = compiled(**given), every(**given)
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        same(listed(found[name]), listed(value), 1e-4)


ONE: dict[str, Callable[[Any], Any]] = {
    "tanh": np.tanh,
    "sum": lambda a: a.sum(axis=-1, keepdims=True),
    "mean": lambda a: np.mean(a, axis=0),
    "T": lambda a: a.T,
    "slice": lambda a: a[..., ::2],
    "new axis": lambda a: a[..., None],
    "ravel": np.ravel,
    "max": lambda a: a.max(axis=0),
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "where": lambda a, b: np.where(a > b, a, b * np.float32(0.5)),
    "matmul": lambda a, b: np.tanh(a @ np.swapaxes(b, -1, -2)) if a.ndim == b.ndim == 2 else a * b,
    "concatenate": lambda a, b: np.concatenate([a.ravel(), b.ravel()]),
}
NAMES = st.sampled_from(sorted((*ONE, *TWO)))


@settings(max_examples=30)
@given(st.lists(st.tuples(NAMES, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6))
def test_random_functions_compute_what_numpy_does(steps: list[tuple[str, int, int]]) -> None:
    """Chains of steps, each on earlier results; steps that numpy refuses are refused when traced as well."""

    def run(x: Any, y: Any) -> Any:
        known: list[Any] = [x, y]
        for name, first, second in steps:
            a, b = known[first % len(known)], known[second % len(known)]
            known.append(ONE[name](a) if name in ONE else TWO[name](a, b))
        return known[-1]

    rng = np.random.default_rng(len(steps))
    x, y = rng.standard_normal((3, 4), np.float32), rng.standard_normal((4,), np.float32)
    traced = dlc.kernel(run)
    try:
        wanted = run(x, y)
    except (ValueError, IndexError, np.exceptions.AxisError):
        with pytest.raises(dlc.DlcError) as refusal:
            traced.graph(x, y)
        assert refusal.value.diagnostics[0].location is not None
        return
    graph = traced.graph(x, y)
    same(list(evaluate(graph, {"x": x, "y": y} if len(graph.inputs) == 2 else {}).values()), listed(wanted), 1e-4)


def condition(x: Any) -> Any:
    if x.sum() > 0:  # here
        return x
    return -x


def loop(x: Any) -> Any:
    total = x
    while total.max() < 3:  # here
        total = total + x
    return total


def number(x: Any) -> Any:
    return x * float(x[0])  # here


def sized(x: Any) -> Any:
    return np.arange(x[0])  # here


def in_place(x: Any) -> Any:
    x += 1  # here
    return x


def element(x: Any) -> Any:
    x[0] = 1  # here
    return x


def mask(x: Any) -> Any:
    return x[x > 0]  # here


def unknown(x: Any) -> Any:
    return np.linalg.svd(x)  # here


def sorts(x: Any) -> Any:
    return np.sort(x)  # here


def shapes(x: Any) -> Any:
    return x + np.ones(7, np.float32)  # here


def outside(x: Any) -> Any:
    return x[9]  # here


def helper(x: Any) -> Any:
    return inner(x) + 1


def inner(x: Any) -> Any:
    return x.reshape(17)  # here


def kinds(x: Any) -> Any:
    return x & 1  # here


def converted(x: Any) -> Any:
    return np.asarray(x)  # here


REFUSED = {
    condition: ("traced-condition", "numpy.where"),
    loop: ("traced-condition", "traced bool[]"),
    number: ("traced-value", "float()"),
    sized: ("traced-value", "known only when the program runs"),
    in_place: ("traced-value", "x = x + y"),
    element: ("traced-value", "in place"),
    mask: ("traced-size", "numpy.where(mask"),
    unknown: ("no-such-function", "numpy.svd"),
    sorts: ("no-such-function", "numpy.sort"),
    shapes: ("bad-operands", "[4] and [7]"),
    outside: ("bad-operands", "subscript 9 of a dimension of size 4"),
    helper: ("bad-operands", "17"),
    kinds: ("bad-operands", "bitwise_and"),
    converted: ("traced-value", "an array with values"),
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_what_needs_values_is_refused_at_its_line(function: Any) -> None:
    code, words = REFUSED[function]
    with pytest.raises(dlc.DlcError) as found:
        dlc.kernel(function).graph(np.ones(4, np.float32))
    (diagnostic,) = found.value.diagnostics
    assert diagnostic.code == code and words in str(found.value)
    assert diagnostic.location is not None and diagnostic.location.source == __file__
    assert diagnostic.source_line.endswith("# here")
