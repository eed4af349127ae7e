"""The eleven forward cases of the course against formulas written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dlc import Report, Source
from dlc.graph import Graph, evaluate, verify
from dlc.plugins.discovery import load_registry
from tests.frontend_kernel.texts import Array

DATA = Path(__file__).parent.parent / "data" / "kernel" / "project1"


def graph(name: str) -> Graph:
    """The graph of a case, read the way a build reads it."""
    source = Source(DATA / f"{name}.json")
    registry = load_registry(kinds=("frontends",))
    entry = registry.frontend_for(source)
    assert entry.name == "kernel"
    found = entry.load()().parse(source, Report())
    assert not verify(found)
    return found


def convolution(a: Array, b: Array, c: Array) -> Array:
    out = np.array(a)
    for r in range(3):
        for s in range(3):
            out += np.einsum("ncpq,kc->nkpq", b[:, :, r : r + 5, s : s + 5], c[:, :, r, s])
    return out


Feeds = dict[str, Array]
FORMULAS: dict[str, tuple[str, Callable[[Feeds], Array]]] = {
    "example": ("B C", lambda t: t["B"] * t["C"]),
    "case1": ("", lambda t: np.full((32, 16), 2.0)),
    "case2": ("A", lambda t: t["A"] + 2),
    "case3": ("B C", lambda t: t["B"] + t["C"]),
    "case4": ("B C A", lambda t: t["A"] + t["B"] @ t["C"]),
    "case5": ("B C D alpha beta A", lambda t: t["A"] + t["alpha"] * (t["B"] @ t["C"]) + t["beta"] * t["D"]),
    "case6": ("B C A", lambda t: convolution(t["A"], t["B"], t["C"])),
    "case7": ("A", lambda t: t["A"].T),
    "case8": ("B", lambda t: np.repeat(t["B"][:, None, :], 2, axis=1)),
    "case9": ("B C D A", lambda t: t["A"] + np.einsum("ikl,kj,lj->ij", t["B"], t["C"], t["D"])),
    "case10": ("B", lambda t: (t["B"][:8, :8] + t["B"][1:9, :8] + t["B"][2:10, :8]) / 3),
}


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_a_case_computes_its_formula(name: str) -> None:
    found = graph(name)
    inputs, formula = FORMULAS[name]
    assert [i.name for i in found.inputs] == inputs.split(), "ins, then in/out tensors"
    assert found.names == (("B",) if name == "case7" else ("A",))
    rng = np.random.default_rng(0)
    given = {i.name: rng.uniform(-10, 10, i.shape).astype(i.dtype.numpy) for i in found.inputs}
    (result,) = evaluate(found, given).values()
    wide = {name: x.astype(np.float64) for name, x in given.items()}
    np.testing.assert_allclose(result, formula(wide), rtol=1e-4, atol=1e-4)


def test_every_case_has_a_formula() -> None:
    assert {p.stem for p in DATA.glob("*.json")} == set(FORMULAS)


@pytest.mark.parametrize("name", ["case2", "case4", "case5", "case6", "case9"])
def test_a_tensor_that_is_read_first_is_in_and_out(name: str) -> None:
    found = graph(name)
    ((output, place),) = found.aliases
    assert (found.names[output], found.inputs[place].name) == ("A", "A")


def test_integers_wrap_as_in_c() -> None:
    found = graph("case3")
    assert {str(i.dtype) for i in found.inputs} == {"i32"}
    large = np.full((16, 32), 2**31 - 1, np.int32)
    (result,) = evaluate(found, {"B": large, "C": large}).values()
    assert result[0, 0] == -2


def test_sums_round_in_the_order_of_plain_loops() -> None:
    """Case 5: `g += alpha * (B * C)` in the order of k, one rounding per operation, equal to the last bit."""
    found = graph("case5")
    rng = np.random.default_rng(1)
    given = {i.name: rng.uniform(-10, 10, i.shape).astype(np.float32) for i in found.inputs}
    b, c, d, alpha, beta, total = given.values()
    for k in range(32):
        total = total + alpha * (b[:, k, None] * c[None, k, :])
    total = total + beta * d
    (result,) = evaluate(found, given).values()
    assert result.tobytes() == total.tobytes()
