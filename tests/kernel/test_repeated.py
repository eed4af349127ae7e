"""Reductions that are written more than once are computed once."""

from __future__ import annotations

import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.repeated import without_repeated
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel, print_kernel
from tests.backend_c.harness import close, samples

LOCALS = """kernel(f32[5,40], f32[5,40]) -> (f32[5,40]) local (f32[5], f32[5]) {
  FIRST
  SECOND
  r0[i,j] = (p0[i,j]-t0[i])*t1[i]
}"""


def locals_of(first: str, second: str) -> Kernel:
    return parse_kernel(LOCALS.replace("FIRST", first).replace("SECOND", second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("k<40: t0[i] += p0[i,k]", "k<40: t1[i] += p0[i,k]"),
        ("k<40: t0[i] += p0[i,k]*p1[i,k]", "j<40: t1[i] += p1[i,j]*p0[i,j]"),
        ("k<40: t0[i] max= p0[i,k]+(p1[i,k]+1.0)", "k<40: t1[i] max= p0[i,k]+(1.0+p1[i,k])"),
        ("k<40: t0[i] += p0[i,k] if k <= i", "k<40: t1[i] += p0[i,k] if k <= i"),
    ],
)
def test_a_local_that_repeats_another(first: str, second: str) -> None:
    kernel = locals_of(first, second)
    found = without_repeated(kernel)
    assert [n.out for n in found.nests] == ["t0", "r0"]
    assert [p.name for p in found.locals] == ["t0"]
    agree(kernel)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("k<40: t0[i] += p0[i,k]", "k<40: t1[i] += p1[i,k]"),
        ("k<40: t0[i] += p0[i,k]", "k<40: t1[i] max= p0[i,k]"),
        ("k<40: t0[i] += p0[i,k]-p1[i,k]", "k<40: t1[i] += p1[i,k]-p0[i,k]"),
        ("k<40: t0[i] += p0[i,k]*p0[i,k]", "k<40: t1[i] += p0[i,k]"),
        ("k<40: t0[i] += p0[i,k]", "k<40: t1[i] += p0[i,k] if k <= i"),
        ("t0[i] = p0[i,0]", "t1[i] = p0[i,0]"),  # what is read once more costs nothing
    ],
)
def test_others_stay(first: str, second: str) -> None:
    kernel = locals_of(first, second)
    assert without_repeated(kernel) is kernel


CHAIN = """kernel(f32[5,40]) -> (f32[5], f32[5]) local (f32[5], f32[5], f32[5,40]) {
  k<40: t0[i] += p0[i,k]
  t2[i,j] = p0[i,j]-t0[i]
  k<40: t1[i] += t2[i,k]*t2[i,k]
  k<40: r0[i] += t2[i,k]*t2[i,k]
  r1[i] = t0[i]*t1[i]
}"""
CHANGED = """kernel(f32[5,40]) -> (f32[5]) local (f32[5], f32[5], f32[5,40]) {
  t2[i,j] = p0[i,j]
  k<40: t0[i] += t2[i,k]
  t2[i,j] += 1.0
  k<40: t1[i] += t2[i,k]
  r0[i] = t0[i]*t1[i]
}"""
AGAIN = """kernel(f32[5,40]) -> (f32[5]) local (f32[5], f32[5]) {
  k<40: t0[i] += p0[i,k]
  k<40: t1[i] += p0[i,k]
  k<40: t1[i] += p0[i,k]
  r0[i] = t0[i]*t1[i]
}"""


def test_a_result_that_repeats_a_local_is_a_copy() -> None:
    kernel = parse_kernel(CHAIN)
    assert "  r0[i] = t1[i]\n" in print_kernel(without_repeated(kernel))
    agree(kernel)


@pytest.mark.parametrize("text", [CHANGED, AGAIN])
def test_what_is_written_later_is_another_value(text: str) -> None:
    kernel = parse_kernel(text)
    assert len(without_repeated(kernel).nests) == len(kernel.nests)
    agree(kernel)


def agree(kernel: Kernel) -> None:
    for machine in (Machine(), Machine(32, 16)):
        program = schedule(kernel, machine)
        args = samples(kernel)
        for got, want in zip(run_loops(program, args), run_kernel(kernel, args), strict=True):
            assert close(got, want)
        assert not check_loops(kernel, program)
