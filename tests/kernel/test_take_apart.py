"""Axes that subscripts take apart by a constant become loops of their own, in the order of their terms."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, walk
from dlc.kernel.loops.program import Store, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.schedules.split import split_groups
from dlc.kernel.take_apart import take_apart
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import samples

SHUFFLED = """kernel(p0: f32[5,24], p1: f32[24,6]) -> (r0: f32[5,6]) {
  m<24: r0[i,j] += p0[i,m % 4*6+m//4]*p1[m,j]
}"""
WINDOWS = """kernel(p0: f32[2,7,8], p1: f32[12,5]) -> (r0: f32[6,6,5]) {
  m<12: r0[i,j,k] += p0[m//6,i+m % 6//3,j+m % 3]*p1[m,k]
}"""
UNEVEN = """kernel(p0: f32[3,5]) -> (r0: f32[1]) {
  m<15: r0[0] += p0[m % 3,m//4]
}"""


@pytest.mark.parametrize(("text", "axes"), [(SHUFFLED, [6, 4]), (WINDOWS, [2, 2, 3]), (UNEVEN, [5, 3])])
def test_terms_are_those_of_before_in_their_order(text: str, axes: list[int]) -> None:
    kernel = parse_kernel(text)
    (nest,) = kernel.nests
    apart = take_apart(nest)
    assert [a.extent for a in apart.reduction_axes] == axes
    changed = parse_kernel(kernel.text())
    object.__setattr__(changed, "nests", (apart,))
    args = samples(kernel)
    for got, want in zip(run_kernel(changed, args), run_kernel(kernel, args), strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize("text", [SHUFFLED, WINDOWS])
def test_nothing_is_divided_where_divisors_fit(text: str) -> None:
    (nest,) = parse_kernel(text).nests
    found = [x for e in take_apart(nest).exprs() for x in walk(e)]
    assert not any(isinstance(x, Apply) and x.fn in ("floordiv", "mod") for x in found)


def test_a_nest_that_adds_nothing_up_stays() -> None:
    (nest,) = parse_kernel("kernel(p0: f32[24]) -> (r0: f32[24]) { r0[i] = p0[i % 4*6+i//4] }").nests
    assert take_apart(nest) is nest


GROUPED = """kernel(p0: f32[2,12,6], p1: f32[2,3,6,8]) -> (r0: f32[2,12,8]) local (t0: f32[2,12,8]) {
  k<6: t0[b,i,j] += p0[b,i,k]*p1[b,i//4,k,j]
  r0[b,i,j] = t0[b,i,j]*0.5
}"""
ALONG_BOTH = "kernel(p0: f32[12,6], p1: f32[3,8,6]) -> (r0: f32[12,8]) { k<6: r0[i,j] += p0[i,k]*p1[i//4,j,k] }"
OTHERS = "kernel(p0: f32[12,6], p1: f32[3,6,4]) -> (r0: f32[12,8]) { k<6: r0[i,j] += p0[i,k]*p1[i//4,k,j//2] }"
READ_IN_OTHERS = """kernel(p0: f32[12,6], p1: f32[3,6,8]) -> (r0: f32[6,8]) local (t0: f32[12,8]) {
  k<6: t0[i,j] += p0[i,k]*p1[i//4,k,j]
  m<2: r0[i,j] += t0[i*2+m,j]
}"""


def test_places_of_a_group_are_an_axis_of_the_result() -> None:
    kernel = parse_kernel(GROUPED)
    split = split_groups(kernel)
    assert [split.tensors[n].shape for n in ("t0", "r0")] == [(2, 3, 4, 8)] * 2
    args = samples(kernel)
    for got, want in zip(run_kernel(split, args), run_kernel(kernel, args), strict=True):
        assert np.array_equal(np.reshape(got, want.shape), want)


@pytest.mark.parametrize("text", [SHUFFLED, ALONG_BOTH, OTHERS, READ_IN_OTHERS])
def test_groups_that_gain_nothing_stay(text: str) -> None:
    kernel = parse_kernel(text)
    assert split_groups(kernel) is kernel


@pytest.mark.parametrize(("extent", "divisor", "stores"), [(24, 4, 4), (24, 3, 3), (26, 4, 1), (36, 12, 1), (4, 4, 1)])
def test_copies_write_what_lies_together(extent: int, divisor: int, stores: int) -> None:
    count = -(-extent // divisor)
    kernel = parse_kernel(f"""kernel(p0: f32[3,{divisor * count}]) -> (r0: f32[3,{extent}]) {{
      r0[i,j] = p0[i,j % {divisor}*{count}+j//{divisor}]
    }}""")
    program = schedule(kernel, Machine())
    assert sum(isinstance(s, Store) for s in walk_stmts(program.body)) == stores
