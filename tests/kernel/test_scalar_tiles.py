"""Register tiles of scalars: which sizes they have, what is computed one by one, and that they are right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import For, Let, Set, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import Scheduled, scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.backend_c.test_schedules import conv, matmul

MANY = Machine(0, 32)
FEW = Machine(0, 8)


def checked(text: str, machine: Machine, choice: str = "") -> Scheduled:
    """The schedule of a kernel, whose loops compute what it means."""
    kernel = parse_kernel(text)
    found = scheduled(kernel, machine, parse_choices(choice) if choice else ())
    args = samples(kernel)
    for got, want in zip(run_loops(found.program, args), run_kernel(kernel, args), strict=True):
        assert close(got, want), choice
    return found


def sums(found: Scheduled) -> int:
    """The most sums that wait in variables at a time: those that one innermost loop adds to."""
    loops = [s for s in walk_stmts(found.program.body) if isinstance(s, For)]
    return max(len({x.local for x in s.body if isinstance(x, Set)}) for s in loops)


@pytest.mark.parametrize(("machine", "elements"), [(MANY, 16), (FEW, 4)])
def test_a_product_has_as_many_sums_as_registers_hold(machine: Machine, elements: int) -> None:
    found = checked(matmul(12, 16, 24, False), machine)
    assert print_choices(found.choices).startswith("scalar-tiles{")
    assert sums(found) == elements


@pytest.mark.parametrize("choice", ["scalar-tiles{columns=4 rows=2}", "scalar-tiles{columns=3 rows=5}"])
@pytest.mark.parametrize("text", [matmul(13, 10, 7, True), conv(9, 3, 8, 3, pad=1), conv(17, 3, 6, 5, 2, 2)])
def test_rows_and_columns_that_are_left(text: str, choice: str) -> None:
    found = checked(text, MANY, choice)
    assert print_choices(found.choices) == choice
    assert sums(found) == int(choice[21]) * int(choice[28])


def test_windows_inside_have_tiles_and_those_at_the_border_do_not() -> None:
    found = checked(conv(12, 4, 8, 3, pad=1), MANY, "scalar-tiles{columns=4 rows=2}")
    loops = [s for s in walk_stmts(found.program.body) if isinstance(s, For)]
    border = [s for s in loops if s.axis.name == "bt"]
    assert [s.axis.extent for s in border] == [2]  # the first and the last of 12
    assert any(s.axis.extent == 5 and s.axis.name.endswith("t") for s in loops)


@pytest.mark.parametrize(("ordered", "order"), [(True, [30, 50]), (False, [50, 30])])
def test_sums_of_an_ordered_machine_keep_the_order_of_their_axes(ordered: bool, order: list[int]) -> None:
    text = """kernel(p0: f32[4,30,50], p1: f32[50,8,30]) -> (r0: f32[4,8]) {
      n<4 f<8 i<30 j<50: r0[n,f] += p0[n,i,j]*p1[j,f,i]
    }"""
    found = checked(text, replace(MANY, ordered=ordered))
    assert print_choices(found.choices).startswith("scalar-tiles")
    loops = [s.axis.extent for s in walk_stmts(found.program.body) if isinstance(s, For)]
    assert [n for n in loops if n in order] == order


def test_long_sums_of_one_row_are_added_in_parts() -> None:
    text = "kernel(p0: f32[2000], p1: f32[8,2000]) -> (r0: f32[8]) {\n  f<8 k<2000: r0[f] += p0[k] * p1[f,k]\n}"
    found = checked(text, MANY)
    assert any(isinstance(s, Let) and s.local.name.endswith("_part") for s in walk_stmts(found.program.body))


@pytest.mark.parametrize(
    ("machine", "choice", "reason"),
    [
        (Machine(32, 16), "scalar-tiles", "there are vectors"),
        (FEW, "scalar-tiles{columns=4 rows=4}", "tiles of 4 rows and 4 columns fit neither output nor 8 registers"),
        (MANY, "scalar-tiles{columns=4 rows=30}", "tiles of 30 rows and 4 columns fit neither output nor 32 registers"),
    ],
)
def test_why_they_do_not_apply(machine: Machine, choice: str, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        scheduled(parse_kernel(matmul(12, 16, 24, False)), machine, parse_choices(choice))


def test_buffers_beyond_the_limit_of_the_stack_lie_in_the_workspace() -> None:
    text = """kernel(p0: f32[6,200]) -> (r0: f32[6]) local (t0: f32[200]) {
      i<200 k<6: t0[i] += p0[k,i]
      n<6 k<200: r0[n] += p0[n,k] * t0[k]
    }"""
    sizes: dict[int, int] = {}
    for stack in (0, 500, 4000):
        found = checked(text, replace(MANY, stack=stack))
        sizes[stack] = sum(b.size * 4 for b in found.program.buffers if b.stack)
    assert sizes == {0: 0, 500: 0, 4000: 800}
