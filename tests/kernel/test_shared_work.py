"""What several elements or several nests need is computed, or read, once: on every machine, with equal values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Const, Expr, walk
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import Block, For, If, Lanes, Let, LoopProgram, Set, exprs_of, walk_stmts
from dlc.kernel.schedules.choice import Choice
from dlc.kernel.schedules.contraction import Tiles
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.plain import Loops
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.machines import MACHINES

SOFTMAX = """kernel(f32[3,40]) -> (f32[3,40]) local (f32[3], f32[3]) {
  k<40: t0[i] max= p0[i,k]
  k<40: t1[i] += exp(p0[i,k]-t0[i])
  r0[i,j] = exp(p0[i,j]-t0[i])/t1[i]
}"""
ROUNDED = """kernel(f32[3,40], f32[3]) -> (f32[3,40]) local (f32[3,40]) {
  t0[i,j] = p0[i,j]/p1[i]
  r0[i,j] = round(t0[i,j])
}"""
DISTANCES = """kernel(f32[9,7], f32[33,7]) -> (f32[9,33]) local (f32[9,33]) {
  k<7: t0[i,j] += (p0[i,k]-p1[j,k])*(p0[i,k]-p1[j,k])
  r0[i,j] = sqrt(t0[i,j])
}"""
LARGEST = "kernel(f32[9,7], f32[7,32]) -> (f32[9,32]) { k<7: r0[i,j] max= p0[i,k]+p1[k,j] }"
LAST = "kernel(f32[8,6], f32[8,10,32]) -> (f32[6,10,32]) { k<8: r0[i,j,m] += p0[k,i]*p1[k,j,m] }"
COSINE = """kernel(f32[5,64], f32[5,64]) -> (f32[5]) local (f32[5], f32[5], f32[5]) {
  k<64: t0[i] += p0[i,k]*p1[i,k]
  k<64: t1[i] += p0[i,k]*p0[i,k]
  k<64: t2[i] += p1[i,k]*p1[i,k]
  r0[i] = t0[i]/sqrt(t1[i]*t2[i])
}"""
OF_DATA = """kernel(f32[3,20], i32[3,20], f32[9]) -> (f32[3]) {
  k<20: r0[i] += p0[i,k]*p2[i64(p1[i,k])] if i64(p1[i,k]) >= 0 and i64(p1[i,k]) < 9
}"""
COVARIANCE = """kernel(f32[24,20], f32[20]) -> (f32[20,20]) {
  k<24: r0[i,j] += (p0[k,i]-p1[i])*(p0[k,j]-p1[j])
}"""
machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())


def loops(text: str, machine: Machine, *given: Choice) -> LoopProgram:
    """The loops of a kernel, by the schedule that is chosen or given, which compute what it says."""
    kernel = parse_kernel(text)
    program = scheduled(kernel, machine, given).program
    args = samples(kernel)
    for got, want in zip(run_loops(program, args), run_kernel(kernel, args), strict=True):
        assert close(got, want), machine
    assert not check_loops(kernel, program)
    return program


def applied(program: LoopProgram, name: str) -> Iterator[Apply]:
    """Where a function is applied, statement by statement."""
    for s in walk_stmts(program.body):
        for e in exprs_of(s):
            yield from (x for x in walk(e) if isinstance(x, Apply) and x.fn == name)


def quotients(program: LoopProgram) -> set[Expr]:
    """Quotients that are no reciprocals."""
    return {x for x in applied(program, "div") if x.args[0] != Const(1.0)}


@machines
def test_a_row_is_divided_by_multiplying(machine: Machine) -> None:
    program = loops(SOFTMAX, machine)
    assert bool(quotients(program)) != machine.reciprocals


@machines
def test_what_is_rounded_to_whole_numbers_keeps_its_quotients(machine: Machine) -> None:
    program = loops(ROUNDED, replace(machine, reciprocals=True))
    assert quotients(program)


@machines
def test_an_exponential_of_a_row_is_taken_once(machine: Machine) -> None:
    once = loops(SOFTMAX, machine)
    twice = loops(SOFTMAX.replace("exp(p0[i,j]-t0[i])/", "exp(p0[i,j]*t0[i])/"), machine)
    assert len(list(applied(once, "exp"))) < len(list(applied(twice, "exp")))


@machines
@pytest.mark.parametrize(("text", "panels"), [(DISTANCES, True), (LARGEST, False), (LAST, False)])
def test_rows_of_a_tile_share_the_operand_of_the_columns(text: str, panels: bool, machine: Machine) -> None:
    loops(text, machine)
    if machine.vector_bytes >= 16:
        columns = len(parse_kernel(text).results[0].shape) - 1
        program = loops(text, machine, Tiles(columns, panels))
        bodies = (s.body for s in walk_stmts(program.body) if isinstance(s, For | Block))
        tile = max(bodies, key=lambda b: sum(isinstance(s, Set) for s in b))
        vectors = {s.local for s in tile if isinstance(s, Let) and isinstance(s.value, Lanes)}
        assert 2 * len(vectors) <= len([s for s in tile if isinstance(s, Set)])


@machines
def test_distances_have_tiles(machine: Machine) -> None:
    (choice,) = scheduled(parse_kernel(DISTANCES), machine).choices
    assert isinstance(choice, Tiles) == (machine.vector_bytes >= 16)


@machines
def test_sums_along_the_same_elements_share_a_loop(machine: Machine) -> None:
    program = loops(COSINE, machine, Loops(rows=1))
    adding = [s for s in walk_stmts(program.body) if isinstance(s, For) and any(isinstance(x, Set) for x in s.body)]
    # Three sums of four vectors each are in registers at once.
    assert (len(adding) == 1) == (machine.vector_bytes >= 16 and machine.registers >= 16)


@machines
def test_a_sum_of_what_data_says_has_a_branch_for_each_element(machine: Machine) -> None:
    program = loops(OF_DATA, machine)
    assert not program.buffers
    assert any(isinstance(s, If) for s in walk_stmts(program.body))


@machines
def test_factors_that_are_computed_alike_are_computed_once(machine: Machine) -> None:
    program = loops(COVARIANCE, machine)
    assert len(set(applied(program, "sub"))) == 1
