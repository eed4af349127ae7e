"""Loops as text: every statement and expression has a spelling, and kernels become what they should."""

from textwrap import dedent

import pytest

from dlc.base.types import Type, f32
from dlc.kernel.expr import Axis, Const, Load
from dlc.kernel.loops.print import print_loops
from dlc.kernel.loops.program import Block, Buffer, Fold, For, If, Lanes, Let, Local, LoopProgram, Prefetch, Set, Store
from dlc.kernel.nest import Param
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.schedules.text import parse_choices
from dlc.kernel.text import parse_kernel


def test_every_statement_has_a_spelling() -> None:
    i = Axis("i", 16)
    total, vector = Local("total", f32), Local("v", f32, 4)
    body = (
        Let(vector, Lanes(Load("p0", (i * 4,)), 4)),
        Set(total, total + Fold("add", vector)),
        If(i < 3, (Store("r0", i + 1, total * 2.0),), (Store("r0", i * 4, vector, 4),)),
        Prefetch("p0", i + 8),
        Prefetch("r0", i, write=True),
        Prefetch("p0", i + 16, hint="later"),
    )
    program = LoopProgram(
        (Param("p0", Type(f32, (64,))),),
        (Param("r0", Type(f32, (4, 16))),),
        (Buffer("t0", Type(f32, (8,)), stack=True), Buffer("t1", Type(f32, (1 << 20,)))),
        (Block((Let(total, Const(0.0)), For(i, Const(0), Const(16), body, 4))),),
    )
    expected = """\
        loops(p0: f32[64]) -> (r0: f32[4,16]) {
          t0: f32[8] on the stack
          t1: f32[1048576] in the workspace
          block:
            total: f32 = 0.0
            for i in 0..16 step 4:
              v: f32x4 = p0[i*4 .. +4]
              total = total+add of v
              if i < 3:
                r0[i+1] = total*2.0
              else:
                r0[i*4 .. +4] = v
              prefetch p0[i+8] to read
              prefetch r0[i] to write
              prefetch p0[i+16] to read later
        }"""
    assert print_loops(program) == dedent(expected)


def test_a_product_of_matrices() -> None:
    kernel = parse_kernel("kernel(f32[2,3], f32[3,4]) -> (f32[2,4]) {\n  k<3: r0[i,j] += p0[i,k]*p1[k,j]\n}")
    expected = """\
        loops(p0: f32[2,3], p1: f32[3,4]) -> (r0: f32[2,4]) {
          for s0 in 0..2:
            for s1 in 0..4:
              a0: f32 = 0.0
              for s2 in 0..3:
                a0 = a0+p0[s0*3+s2]*p1[s2*4+s1]
              r0[s0*4+s1] = a0
        }"""
    assert print_loops(schedule(kernel, Machine(), parse_choices("loops"))) == dedent(expected)


@pytest.mark.parametrize("machine", [Machine(), Machine(16), Machine(32, 16), Machine(64, 32)], ids=str)
@pytest.mark.parametrize(
    "text",
    [
        "kernel(f32[64,48], f32[48,80]) -> (f32[64,80]) {\n  k<48: r0[i,j] += p0[i,k]*p1[k,j]\n}",
        "kernel(f32[7,33]) -> (f32[7]) {\n  k<33: r0[i] max= p0[i,k] if k >= i\n}",
        "kernel(f32[9], i64[4]) -> (f32[9]) {\n  i<4: r0[p1[i]] += p0[i]\n}",
    ],
)
def test_whatever_a_schedule_gives_can_be_printed(text: str, machine: Machine) -> None:
    printed = print_loops(schedule(parse_kernel(text), machine))
    assert printed.count("\n") > 3
    assert printed.startswith("loops(p0: f32[")
    assert printed.endswith("}")
