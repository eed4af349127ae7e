"""Defects of earlier solvers of these exercises, each as a kernel that shows it: gradients equal the derivatives."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC

from tests.frontend_kernel.compiled import check_compiled
from tests.frontend_kernel.properties import check_gradient, check_second_order
from tests.frontend_kernel.read_case import read_kernel
from tests.frontend_kernel.small_language import Case, refs
from tests.frontend_kernel.through_dlc import as_double, interpreted, parse

KERNELS: Final = {
    # substitution of subscripts
    "offsets do not move the next reference": "A<8,8>[i,j] = (B<10,8>[i,j] + B<10,8>[i+1,j] + B<10,8>[i+2,j]) / 3.0;",
    "every reference has its own place": "A<6>[i] = B<8>[i+2] * B<8>[i] - B<8>[i+1];",
    "points outside of the forward loops receive nothing": "A<8>[i] = B<10>[i+1];",
    "ranges of two references differ": "A<4,4>[i,j] = B<7>[i+j] * C<6>[i+2];",
    "a factor is divided out only where it divides": "A<4>[i] = B<9>[i*2];",
    "a factor and an offset": "A<3>[i] = B<12>[i*3+2];",
    "coefficients without a one among them": "A<4,3>[i,j] = B<13>[i*2+j*3];",
    "a determinant that is not one": "A<4,4>[i,j] = B<8,8>[i+j,i-j+4];",
    "two minus signs": "A<4,3>[i,j] = B<8>[7-i-j];",
    "a free variable of the system": "A<3,4>[i,j] = B<6,6>[i+j,i+j];",
    "quotient alone: the remainder is summed over": "A<32>[i] = B<2>[i//16];",
    "remainder alone": "A<12>[i] = B<4>[i%4];",
    "remainder that is no reshape": "A<8>[i] = B<4,4>[i//2,i%4];",
    "quotient and remainder of different operands": "A<8>[i] = B<5,4>[(i+1)//2,i%4];",
    "quotient beside another index": "A<6,3>[i,j] = B<6>[i//2+j];",
    "an output is zeroed before anything is added": "A<4>[i] = B<9>[i+i+1];",
    # names
    "indices may be called like those that gradients add": "A<4>[u0] = B<4,3>[u0,w0] * C<3>[w0] * z_0<1>;",
    "inputs may be called like gradients": "A<4>[d] = dB<4>[d] * B<4>[d] * dC<4>[3-d];",
    # signs
    "the subtrahend's sign": "A<5>[i] = B<5>[i] - C<5>[i];",
    "zero minus something": "A<5>[i] = 0 - B<5>[i];",
    "a constant minus something": "A<5>[i] = 2.0 - B<5>[i] * C<5>[i];",
    "minus of a parenthesis": "A<5>[i] = B<5>[i] - (C<5>[i] - (D<5>[i] - B<5>[i]));",
    "differences from left to right": "A<5>[i] = B<5>[i] - C<5>[i] - D<5>[i];",
    # quotients
    "the denominator varies too": "A<5>[i] = B<5>[i] / C<5>[i];",
    "one over a square": "A<5>[i] = 1.0 / (B<5>[i] * B<5>[i]);",
    "a quotient of quotients": "A<5>[i] = B<5>[i] / C<5>[i] / D<5>[i];",
    "a product after a quotient": "A<5>[i] = B<5>[i] / C<5>[i] * D<5>[i];",
    "a quotient with itself": "A<5>[i] = B<5>[i] / (B<5>[i] * B<5>[4-i]);",
    # parentheses
    "parentheses of a product are kept": "A<5>[i] = B<5>[i] * (C<5>[i] + D<5>[i]);",
    "parentheses of a quotient are kept": "A<5>[i] = B<5>[i] / (C<5>[i] * D<5>[i]);",
    "two parentheses are multiplied out": "A<5>[i] = (B<5>[i] + C<5>[i]) * (B<5>[i] + C<5>[i]);",
    "parentheses in each other": "A<5>[i] = ((B<5>[i] - 3.0) * (C<5>[i] - (B<5>[i] + 2.0))) / 3.0;",
    "constants are printed as numbers": "A<5>[i] = B<5>[i] * 3.0 / 0.125;",
    # sums
    "a constant is added once": "A<4>[i] = B<4,5>[i,k] + 1.0;",
    "a term is summed over its own indices only": "A<4>[i] = B<4>[i] * C<4>[i] + D<5>[k];",
    "parentheses are summed as a whole": "A<4>[i] = (B<4>[i] * C<4>[i] + D<5>[k]);",
    # programs
    "a derivative flows through an earlier statement": "T<5>[i] = B<5>[i] * B<5>[i]; A<5>[i] = T<5>[i] * T<5>[4-i];",
    "a tensor that is written twice": "A<5>[i] = B<5>[i]; A<5>[i] = A<5>[i] * A<5>[4-i] + B<5>[i];",
    "a statement without points": "T<3>[i] = B<2>[i] * B<2>[i%2+2]; A<3>[i] = C<3>[i] * T<3>[r] + B<2>[0];",
    "a statement without points is read element by element": (
        "T<3>[i] = B<2>[i] * B<2>[i%2+2]; A<3,2>[i,j] = C<3>[i] * T<3>[i] + D<2>[j] * T<3>[2-i];"
    ),
}


def case_of(name: str) -> Case:
    """A kernel whose inputs are all tensors that it never writes; differentiated by all of them."""
    statements = read_kernel(KERNELS[name])
    outs = tuple(dict.fromkeys(s.left.name for s in statements))
    ins = tuple(dict.fromkeys(r.name for s in statements for r in refs(s.right) if r.name not in outs))
    return Case("defect", ins, outs, "float", statements, ins)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient(name: str) -> None:
    check_gradient(case_of(name), 5)


@pytest.mark.parametrize("name", KERNELS)
def test_second_order(name: str) -> None:
    check_second_order(case_of(name), 6)


@pytest.mark.parametrize(
    ("kernel", "wrt", "expected"),
    [
        ("A<4>[i] = B<4>[i] // C<4>[i];", "B", [0, 0, 0, 0]),
        ("A<4>[i] = B<4>[i] // C<4>[i];", "C", [0, 0, 0, 0]),
        ("A<4>[i] = B<4>[i] % C<4>[i];", "B", [1, 1, 1, 1]),
        ("A<4>[i] = B<4>[i] % C<4>[i];", "C", [-3, 4, 4, -3]),  # -floor(B / C)
    ],
)
def test_floor_division_is_flat_and_the_remainder_is_not(kernel: str, wrt: str, expected: list[int]) -> None:
    """Almost everywhere; it is not the quotient that is differentiated."""
    case = as_double(Case("floor", ("B", "C"), ("A",), "float", read_kernel(kernel), (wrt,)))
    values: dict[str, list[float]] = {"B": [7.3, -7.3, 7.3, -7.3], "C": [2.0, 2.0, -2.0, -2.0]}
    got = interpreted(parse(case, grad=True), values, {"A": [1.0, 2.0, 3.0, 4.0]})
    np.testing.assert_allclose(got[f"d{wrt}"], np.array([1.0, 2.0, 3.0, 4.0]) * expected, atol=1e-12)


def test_compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As C, into memory that holds something else before: outputs are written completely, and nothing else is."""
    cases = [case_of(name) for name in KERNELS]
    check_compiled(cases, range(len(cases)), GENERIC, tmp_path_factory.mktemp("c"), "gcc")
