"""The oracles agree with each other: brute force, its derivatives, closed forms, and numpy on the course's kernels."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from tests.frontend_kernel.brute_force import Unbounded, ranges, run
from tests.frontend_kernel.closed_forms import CLOSED_FORMS, closed_form
from tests.frontend_kernel.derivatives import Array, gradients, second_order
from tests.frontend_kernel.features import features
from tests.frontend_kernel.random_cases import inputs, random_case
from tests.frontend_kernel.read_case import DATA, read_case, read_kernel
from tests.frontend_kernel.small_language import Case

HARD = sorted([*(DATA / "hard").glob("*.json"), *(DATA / "hard_more").glob("*.json")])


def stem(path: Path) -> str:
    return path.stem


def test_every_hard_case_has_closed_forms() -> None:
    assert {p.stem for p in HARD} == set(CLOSED_FORMS)
    for path in HARD:
        assert set(read_case(path).grad_to) == set(CLOSED_FORMS[path.stem])


@pytest.mark.parametrize("path", HARD, ids=stem)
def test_closed_forms_are_the_derivatives(path: Path) -> None:
    case = read_case(path)
    values = inputs(case, 1)
    seeds = {o: [random.Random(2).uniform(-1, 1) for _ in range(math.prod(case.shapes[o]))] for o in case.outs}
    found = gradients(case, values, seeds, case.grad_to)
    arrays = {name: np.reshape(v, case.shapes[name]) for name, v in values.items()}
    seed = np.reshape(seeds[case.outs[0]], case.shapes[case.outs[0]])
    for name in case.grad_to:
        want = closed_form(case.name, name, arrays, seed)
        np.testing.assert_allclose(found.exact[name], want, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(found.central[name], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("path", [*HARD, *sorted((DATA / "project1").glob("*.json"))], ids=stem)
def test_cases_print_as_they_are_read(path: Path) -> None:
    case = read_case(path)
    assert read_kernel(case.text) == case.statements


@pytest.mark.parametrize("seed", range(50))
def test_random_cases_print_as_they_are_read(seed: int) -> None:
    case = random_case(random.Random(seed))
    again = Case(case.name, case.ins, case.outs, case.dtype, read_kernel(case.text), case.grad_to)
    assert again.text == case.text
    assert run(again, inputs(case, seed)) == run(case, inputs(case, seed))


def outputs_of(name: str) -> tuple[dict[str, Array], dict[str, Array]]:
    case = read_case(DATA / "project1" / f"{name}.json")
    values = inputs(case, 3)
    arrays = {n: np.reshape(v, case.shapes[n]) for n, v in values.items()}
    return arrays, {n: np.reshape(v, case.shapes[n]) for n, v in run(case, values).items()}


def test_course_kernels() -> None:
    given, found = outputs_of("case5")
    want = given["alpha"] * (given["B"] @ given["C"]) + given["beta"] * given["D"]
    np.testing.assert_allclose(found["A"], want, rtol=1e-12, atol=1e-12)
    given, found = outputs_of("case9")
    want = np.einsum("ikl,kj,lj->ij", given["B"], given["C"], given["D"])
    np.testing.assert_allclose(found["A"], want, rtol=1e-12, atol=1e-12)
    given, found = outputs_of("case2")
    np.testing.assert_allclose(found["A"], given["A"] + 2)
    given, found = outputs_of("case10")
    b = given["B"]
    np.testing.assert_allclose(found["A"], (b[:8, :8] + b[1:9, :8] + b[2:, :8]) / 3)


def one(kernel: str, **values: list[float]) -> list[float]:
    """The first output of a kernel; tensors that are given are inputs."""
    statements = read_kernel(kernel)
    outs = tuple(dict.fromkeys(s.left.name for s in statements))
    return run(Case("one", tuple(values), outs, "float", statements), values)[outs[0]]


def test_a_term_sums_over_its_own_indices() -> None:
    assert one("A<2>[i] = B<2>[i] + C<3>[k] + 1.0;", B=[1, 2], C=[10, 20, 30]) == [62, 63]
    assert one("A<2>[i] = (B<2>[i] + C<3>[k] + 1.0);", B=[1, 2], C=[10, 20, 30]) == [66, 69]


def test_points_outside_add_nothing() -> None:
    assert one("A<3>[i] = B<2>[i + 1] + 1;", B=[5, 6]) == [7, 0, 0]  # i has one value for the whole statement
    assert one("A<3>[i] = B<4>[i + k] * C<3>[k];", B=[1, 2, 3, 4], C=[1, 10, 100]) == [321, 432, 43]
    assert one("A<2,2>[i,j] = B<2>[i + j] + 1;", B=[5, 6]) == [6, 7, 7, 0]  # i + j = 2 is no point of the statement


def test_an_input_that_is_written_keeps_what_no_point_reaches() -> None:
    assert one("A<3>[i] = A<3>[i + 1] + B<3>[i];", A=[1, 2, 3], B=[10, 20, 30]) == [12, 23, 3]


def test_ranges() -> None:
    def of(kernel: str) -> dict[str, range]:
        return ranges(read_kernel(kernel)[0])

    assert of("A<10>[i] = B<10>[i + 1];") == {"i": range(9)}
    assert of("A<10>[i] = B<10>[i - 1];") == {"i": range(1, 10)}
    assert of("A<10>[i] = B<10>[9 - i];") == {"i": range(10)}
    assert of("A<10>[i] = B<4>[i // 2];") == {"i": range(8)}
    assert of("A<4>[i] = B<10>[i * 3];") == {"i": range(4)}
    assert of("A<4>[i] = B<9>[i * 3];") == {"i": range(3)}
    assert of("A<5>[p] = B<7>[p + r] * C<3>[r];") == {"p": range(5), "r": range(3)}
    with pytest.raises(Unbounded, match="k"):
        of("A<5>[i] = B<5>[k % 5];")


def test_second_order_of_a_product() -> None:
    case = Case("p", ("B", "C"), ("A",), "float", read_kernel("A<2>[i] = B<2>[i] * B<2>[i] * C<2>[i];"))
    values = {"B": [2.0, 3.0], "C": [5.0, 7.0]}
    found = second_order(case, values, {"A": [1, 1]}, {"B": [1, 0], "C": [0, 1]}, ("B", "C"))
    np.testing.assert_allclose(found["B"], [10, 6], rtol=1e-7)
    np.testing.assert_allclose(found["C"], [4, 0], rtol=1e-7, atol=1e-9)


def test_random_cases_cover_the_language() -> None:
    seen = set[str]().union(*(features(random_case(random.Random(seed))) for seed in range(300)))
    assert len(seen) >= 20, seen
