"""Factors that are the same along a row: which are multiplied first, and where the order of products stays."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.outer_factors import with_outer_factors_first
from dlc.kernel.text import parse_kernel, print_kernel
from tests.backend_c.harness import samples

FAST = Machine(32, 16, reciprocals=True)


def changed(body: str, of: str = "f32", machine: Machine = FAST) -> str:
    """The body of an equal kernel of a row, p0, and numbers of it, p1 and p2."""
    text = f"kernel(f32[4,20], f32[4], f32[4]) -> ({of}[4,20]) {{ r0[i,j] = {body} }}"
    kernel = parse_kernel(text)
    found = with_outer_factors_first(kernel, machine)
    args = samples(kernel)
    for got, want in zip(run_kernel(found, args), run_kernel(kernel, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    return print_kernel(found).partition("r0[i,j] = ")[2].partition("\n")[0]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("2.0*(p1[i]*p0[i,j])", "2.0*p1[i]*p0[i,j]"),
        ("p0[i,j]*p1[i]*(p0[i,j]*p2[i])-1.0", "p1[i]*p2[i]*p0[i,j]*p0[i,j]-1.0"),
        ("p0[i,j]*p1[i]", "p0[i,j]*p1[i]"),
        ("exp(p0[i,j]*p1[i])*p2[i]", "exp(p0[i,j]*p1[i])*p2[i]"),
    ],
)
def test_what_is_multiplied_first(body: str, wanted: str) -> None:
    assert changed(body) == wanted


def test_the_order_stays() -> None:
    body = "2.0*(p1[i]*p0[i,j])"
    assert changed(body, machine=Machine(32, 16)) == body
    rounded = f"i32(round({body}))"
    assert changed(rounded, "i32") == rounded
