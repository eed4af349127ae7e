"""The course's ten gradient cases: values, order of inputs and outputs, and how often the loops' bodies run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pytest

from dlc.kernel.schedules.count import iterations
from tests.frontend_kernel.properties import check_written, seeds_of
from tests.frontend_kernel.random_cases import inputs
from tests.frontend_kernel.read_case import DATA, read_case, read_kernel
from tests.frontend_kernel.small_language import Case
from tests.frontend_kernel.through_dlc import as_double, interpreted, nests_of, parse

Array = np.ndarray[Any, np.dtype[Any]]


def _convolution(d: Array, c: Array) -> Array:
    """dB[n,c,h,w] = Σ_{k,p,q} [0<=h-p<3][0<=w-q<3] dA[n,k,p,q]·C[k,c,h-p,w-q]."""
    found = np.zeros((2, 16, 7, 7))
    for r, s in np.ndindex(3, 3):
        found[:, :, r : r + 5, s : s + 5] += np.einsum("nkpq,kc->ncpq", d, c[:, :, r, s])
    return found


def _blur(d: Array) -> Array:
    found = np.zeros((10, 8))
    for r in range(3):
        found[r : r + 8] += d / 3
    return found


Gradient = Callable[[Mapping[str, Array], Array], Array]
EXPECTED: Final[Mapping[int, Mapping[str, Gradient]]] = {
    1: {"A": lambda t, d: d * t["B"]},
    2: {"A": lambda t, d: 2 * d * t["A"]},
    3: {"A": lambda t, d: d @ t["B"].T},
    4: {"B": lambda t, d: d @ t["C"].T, "C": lambda t, d: t["B"].T @ d},
    5: {"B": lambda t, d: np.einsum("ij,kj,lj->ikl", d, t["C"], t["D"])},
    6: {"B": lambda t, d: _convolution(d, t["C"])},
    7: {"A": lambda t, d: d.T},
    8: {"A": lambda t, d: d.reshape(2, 16)},
    9: {"A": lambda t, d: d.sum(axis=1)},
    10: {"B": lambda t, d: _blur(d)},
}
SIGNATURES: Final = {
    1: (("B", "dC"), ("dA",)),  # A does not occur in the gradient
    2: (("A", "dB"), ("dA",)),
    3: (("B", "dC"), ("dA",)),
    4: (("B", "C", "dA"), ("dB", "dC")),
    5: (("C", "D", "dA"), ("dB",)),
    6: (("C", "dA"), ("dB",)),
    7: (("dB",), ("dA",)),
    8: (("dB",), ("dA",)),
    9: (("dB",), ("dA",)),
    10: (("dA",), ("dB",)),
}
"""Inputs: those of `ins` that occur in the gradient, then d<out>. Outputs: d<g> in the order of `grad_to`."""


def course(number: int) -> Case:
    return read_case(DATA / "project2" / f"case{number}.json")


@pytest.mark.parametrize("number", EXPECTED)
def test_value(number: int) -> None:
    case = as_double(course(number))
    values, seeds = inputs(case, number), seeds_of(case, number + 1)
    got = interpreted(parse(case, grad=True), values, seeds)
    tensors = {n: np.reshape(v, case.shapes[n]) for n, v in values.items()}
    seed = np.reshape(seeds[case.outs[0]], case.shapes[case.outs[0]])
    for name in case.grad_to:
        np.testing.assert_allclose(got[f"d{name}"], EXPECTED[number][name](tensors, seed), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("number", SIGNATURES)
def test_order_of_inputs_and_outputs(number: int) -> None:
    graph = parse(course(number), grad=True)
    assert (tuple(i.name for i in graph.inputs), graph.names) == SIGNATURES[number]


@pytest.mark.parametrize("number", EXPECTED)
def test_gathers_without_tests_under_a_reduction(number: int) -> None:
    case = course(number)
    check_written(case, parse(case, grad=True))


def counted(case: Case) -> int:
    return sum(iterations(nest) for nest in nests_of(parse(case, grad=True)))


MOST: Final = {
    1: 4 * 16,
    2: 2 * 4 * 16,
    3: 4 * 16 * 16,
    4: 2 * 16 * 32 * 32,
    5: 16 * 32 * 4 * 32,
    6: 57_600,
    7: 16 * 32,
    8: 32,
    9: 4 * 6,
    10: 300,
}
"""One per term, reference and point; 57,600 is every multiplication of the convolution's gradient once."""


@pytest.mark.parametrize("number", MOST)
def test_iterations(number: int) -> None:
    assert counted(course(number)) <= MOST[number]


def test_iterations_of_a_sum_with_its_transpose() -> None:
    kernel = read_kernel("B<10,10>[i,j] = A<10,10>[i,j] + A<10,10>[j,i];")
    assert counted(Case("s", ("A",), ("B",), "float", kernel, ("A",))) <= 200


def test_iterations_of_a_system_without_unit_coefficients() -> None:
    """k + 6l == n has thirty solutions with k < 6 and l < 5."""
    kernel = read_kernel("B<6,5>[k,l] = A<30>[k + l*6];")
    assert counted(Case("s", ("A",), ("B",), "float", kernel, ("A",))) == 30
