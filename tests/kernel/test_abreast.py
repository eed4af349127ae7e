"""Rows that run at the same time: where they are chosen, and that they are right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.kernel.loops.program import For
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule, scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.text import parse_kernel
from tests.backend_c.test_schedules import softmax
from tests.kernel.triples import Triple
from tests.machines import MACHINES

COSINE = """kernel(f32[5,{0}], f32[5,{0}]) -> (f32[5,{0}]) local (f32[5], f32[5]) {{
  k<{0}: t0[i] += p0[i,k]*p1[i,k]
  k<{0}: t1[i] += p0[i,k]*p0[i,k]
  r0[i,j] = p0[i,j]*t0[i]/sqrt(t1[i])
}}"""


GATHERED = """kernel(f16[8,40], i64[5]) -> (f16[5,40]) local (f32[5,40], f32[5]) {
  t0[i,j] = f32(p0[p1[i],j])
  k<40: t1[i] += t0[i,k]*t0[i,k]
  r0[i,j] = f16(t0[i,j]/sqrt(t1[i]))
}"""


@pytest.mark.parametrize(("rows", "text"), [(2, softmax(5, 40)), (5, COSINE.format(40)), (3, GATHERED)])
@pytest.mark.parametrize("machine", [name for name, m in MACHINES.items() if m.vector_bytes])
def test_rows_with_values_and_buffers_of_their_own(machine: str, rows: int, text: str) -> None:
    assert not Triple(parse_kernel(text), MACHINES[machine], parse_choices(f"loops{{rows={rows}}}")).problem()


def test_several_where_each_waits_longer_than_it_works() -> None:
    machine = replace(MACHINES["wide-vectors"], reciprocals=True)
    short, long = (scheduled(parse_kernel(COSINE.format(n)), machine) for n in (128, 8192))
    assert print_choices(short.choices) == "loops{sums=4 rows=2}"
    assert print_choices(long.choices) == "loops{sums=4}"
    one = scheduled(parse_kernel(COSINE.format(128)), machine, parse_choices("loops{sums=4 rows=1}"))
    (loop,) = one.program.body
    assert isinstance(loop, For) and loop.step == 1


def test_threads_share_them() -> None:
    machine = replace(MACHINES["wide-vectors"], threads=3)
    assert not Triple(parse_kernel(softmax(5, 40)), machine, parse_choices("loops{rows=2 parallel=s0}")).problem()


@pytest.mark.parametrize(
    "text",
    [
        "kernel(f32[9,64]) -> (f32[9,64]) { r0[i,j] = p0[i,j]*2.0 }",
        "kernel(f32[9,64], f32[9]) -> (f32[9]) { k<64: r0[i] += p0[i,k]*i }",
    ],
)
def test_there_are_no_such_rows(text: str) -> None:
    with pytest.raises(Unfit, match="it has no rows that wait for sums of their own"):
        schedule(parse_kernel(text), Machine(32, 16), parse_choices("loops{rows=2}"))
