"""Rows whose loops run for neighbouring rows at the same time: where that is chosen, and what it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.schedules.text import print_choices
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples

MACHINE = Machine(16, 16)


def softmax(rows: int, columns: int, fn: str = "exp") -> str:
    at = f"f32[{rows},{columns}]"
    return f"""kernel(p0: {at}) -> (r0: {at}) local (t0: f32[{rows}], t1: {at}, t2: f32[{rows}]) {{
      i<{rows} j<{columns}: t0[i] max= p0[i,j]
      i<{rows} j<{columns}: t1[i,j] = {fn}(p0[i,j]-t0[i])
      i<{rows} j<{columns}: t2[i] += t1[i,j]
      i<{rows} j<{columns}: r0[i,j] = t1[i,j]/t2[i]
    }}"""


def log_sum_exp(rows: int, columns: int, last: str = "t0[i]+log(t1[i])") -> str:
    return f"""kernel(p0: f32[{rows},{columns}]) -> (r0: f32[{rows}]) local (t0: f32[{rows}], t1: f32[{rows}]) {{
      i<{rows} j<{columns}: t0[i] max= p0[i,j]
      i<{rows} j<{columns}: t1[i] += exp(p0[i,j]-t0[i])
      i<{rows}: r0[i] = {last}
    }}"""


def chosen(text: str, machine: Machine) -> str:
    """The schedule of a kernel, whose loops are right."""
    kernel = parse_kernel(text)
    found = scheduled(kernel, machine)
    args = samples(kernel)
    for got, want in zip(run_loops(found.program, args), run_kernel(kernel, args), strict=True):
        assert close(got, want)
    return print_choices(found.choices)


@pytest.mark.parametrize(("rows", "columns"), [(6, 32), (6, 35), (5, 32), (6, 130)])
@pytest.mark.parametrize("kernel", [softmax, log_sum_exp])
def test_rows_of_a_cache_overlap(kernel: Callable[[int, int], str], rows: int, columns: int) -> None:
    assert chosen(kernel(rows, columns), MACHINE) == f"pipelined{{rows={rows}}}"


@pytest.mark.parametrize("machine", [MACHINE, Machine(32, 16), Machine(64, 32)], ids=lambda m: str(m.vector_bytes))
@pytest.mark.parametrize("columns", [128, 1024])
def test_rows_beyond_the_caches_overlap(columns: int, machine: Machine) -> None:
    """What hints fetch ahead hides the time of memory in other ways too, but only together with arithmetic."""
    kernel = parse_kernel(softmax((1 << 24) // columns, columns))
    choices = scheduled(kernel, replace(machine, past=32 << 20)).choices
    assert print_choices(choices) == "pipelined{past=r0 rows=128}"


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        (softmax(6, 24), MACHINE),  # short rows
        (softmax(6, 32, "abs"), MACHINE),  # nothing takes long
        (softmax(6, 32), Machine()),
        (softmax(6, 32), replace(MACHINE, ordered=True)),
        (softmax(2, 32), MACHINE),  # fewer rows than are in flight
        (log_sum_exp(6, 32, "t1[i]+p0[i,3]*t0[i]").replace("exp", "abs"), MACHINE),
    ],
)
def test_others_stay_apart(text: str, machine: Machine) -> None:
    assert not chosen(text, machine).startswith("pipelined")


def test_the_checker_accepts_rows_that_overlap() -> None:
    kernel = parse_kernel(log_sum_exp(6, 35))
    assert not check_loops(kernel, scheduled(kernel, MACHINE).program)


def test_threads_get_a_block_each() -> None:
    assert chosen(softmax(12, 32), replace(MACHINE, threads=2)) == "pipelined{rows=6}"
