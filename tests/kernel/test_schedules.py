"""Schedules keep what kernels compute, on every machine: with narrow and wide vectors, few and many registers.

Programs run in an interpreter that refuses what C leaves undefined, so machines that nobody has here are tested too.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Const
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import For, If, Let, LoopProgram, Set, Store, reads, walk_stmts, writes
from dlc.kernel.schedules.flat import coefficient
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.backend_c.test_schedules import KERNELS, conv, equal_weights, matmul, neighbours
from tests.kernel.random_kernels import random_kernel

MACHINES = (Machine(), Machine(16, 16), Machine(32, 16), Machine(64, 32), Machine(32, 16, 2 << 10, 8 << 10))
SMALL = [text for text in KERNELS if sum(n.points for n in parse_kernel(text).nests) < 3_000]


def agree(kernel: Kernel, machine: Machine) -> LoopProgram:
    program = schedule(kernel, machine)
    args = samples(kernel)
    for got, want in zip(run_loops(program, args), run_kernel(kernel, args), strict=True):
        assert close(got, want), f"{machine}\n{got}\n{want}"
    return program


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bytes}x{m.registers}-{m.l2 >> 10}K")
@pytest.mark.parametrize("text", SMALL)
def test_known_shapes(text: str, machine: Machine) -> None:
    agree(parse_kernel(text), machine)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 30), machine=st.sampled_from(MACHINES))
def test_random_kernels(seed: int, machine: Machine) -> None:
    kernel = random_kernel(seed)
    if sum(n.points for n in kernel.nests) < 4_000:
        agree(kernel, machine)


def test_a_convolution_has_no_guard_in_its_loops() -> None:
    program = agree(parse_kernel(conv(6, 4, 16, 3, pad=1)), Machine(32, 16))
    tiles = [s for s in walk_stmts(program.body) if isinstance(s, For) and "p1" in reads(s.body)]
    assert tiles
    assert all(not isinstance(s, If) for t in tiles for s in walk_stmts(t.body))


def test_a_matrix_product_runs_in_registers() -> None:
    program = agree(parse_kernel(matmul(12, 16, 8, False)), Machine(32, 16))
    (inner,) = [s for s in walk_stmts(program.body) if isinstance(s, For) and s.step == 4]
    sums = {s.local for s in inner.body if isinstance(s, Set)}
    assert len(sums) == 12
    assert all(s.lanes == 8 for s in sums)


def test_windows_over_the_innermost_dimension_have_no_loop_of_their_own() -> None:
    program = agree(parse_kernel(neighbours(3, 70, 5, 0.75)), Machine(32, 16))
    loops = [s for s in walk_stmts(program.body) if isinstance(s, For)]
    whole = [s for s in loops if s.start == Const(2) and s.stop == Const(68)]
    assert len(whole) == 1
    assert not any(isinstance(s, For | If) for s in walk_stmts(whole[0].body))
    assert all("t0" in reads(s.body) or "p0" in reads(s.body) for s in loops)
    # A row at a time: what lies between the nests fits the nearest cache.
    assert all(b.type.size == 70 for b in program.buffers)


def test_equal_columns_are_computed_once() -> None:
    kernel = parse_kernel(equal_weights(5, 2, 16, False))
    agree(kernel, Machine(32, 16))
    loops = [s for s in walk_stmts(schedule(kernel, Machine(32, 16)).body) if isinstance(s, For)]
    around = [s for s in loops if any(isinstance(x, For) and "p0" in reads(x.body) for x in s.body)]
    assert all(s.axis.extent != 16 for s in around)


def test_equal_rows_of_several_results_are_computed_once() -> None:
    agree(
        parse_kernel("""kernel(p0: f32[5,6], p1: f32[5,7]) -> (r0: f32[3,6], r1: f32[2,7,4], r2: f32[6,3]) {
          k<5: r0[i,j] += p0[k,j]
          k<5: r1[i,j,m] += exp(p1[k,j])
          k<5: r2[i,j] max= p0[k,i]
        }"""),
        Machine(),
    )


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bytes}x{m.registers}-{m.l2 >> 10}K")
@pytest.mark.parametrize("block", [3, 4, 16])
def test_a_blocked_dimension_is_one_dimension_again(machine: Machine, block: int) -> None:
    text = f"""kernel(p0: f32[{-(-40 // block)},{block}], p1: f32[5,40]) -> (r0: f32[5]) {{
 i<5 k<40: r0[i] += p0[k//{block},k % {block}]*p1[i,k]
}}"""
    program = agree(parse_kernel(text), machine)
    assert all(s.axis.extent == 40 or s.axis.extent == 5 for s in walk_stmts(program.body) if isinstance(s, For))


@pytest.mark.parametrize("text", [conv(4, 8, 16, 3, pad=1), conv(5, 9, 20, 3, pad=1), matmul(9, 24, 96, False)])
def test_a_panel_larger_than_the_cache_is_added_up_in_parts(text: str) -> None:
    program = agree(parse_kernel(text), Machine(32, 16, 4 << 10, 8 << 10))
    assert any(b.name.startswith("part") and b.name in reads(program.body) for b in program.buffers)


def outer_loops(text: str, machine: Machine = MACHINES[2]) -> list[set[str]]:
    """What every outermost loop writes."""
    return [writes((s,)) for s in agree(parse_kernel(text), machine).body]


@pytest.mark.parametrize("guard", ["", " if i >= 2 and i < 5", " if i+j >= 3"])
def test_independent_results_over_one_space_share_their_loops(guard: str) -> None:
    text = f"""kernel(p0: f32[6,7], p1: f32[6,7], p2: f32[7,6]) -> (r0: f32[6,7], r1: f32[6,7], r2: f32[6,7]) {{
      r0[i,j] = p0[i,j]*p1[i,j]{guard}
      r1[i,j] = p0[i,j]*p2[j,i]{guard}
      r2[m,n] = p1[m,n]*p2[n,m]{guard.replace("i", "m").replace("j", "n").replace("mf", "if")}
    }}"""
    loops = outer_loops(text)
    assert loops[-1] == {"r0", "r1", "r2"}
    assert all(len(w) == 1 for w in loops[:-1])
    assert len(loops) == (4 if guard else 1)
    statements = list(walk_stmts(agree(parse_kernel(text), Machine()).body))
    assert not [s for s in statements if isinstance(s, If)]


@pytest.mark.parametrize(
    "second",
    [
        "r1[i,j] = p0[i,j] if i >= 2",
        "r1[i,j] = r0[i,j]+r0[j,i]",
        "k<6: r1[i,j] += p0[i,k]*p0[k,j]",
        "r1[i,j] += p0[j,i]",
        "r0[i,j] = p0[j,i]",
    ],
    ids=["guards differ", "one reads the other", "a contraction", "a sum", "one tensor"],
)
def test_other_nests_keep_loops_of_their_own(second: str) -> None:
    text = f"""kernel(p0: f32[6,6]) -> (r0: f32[6,6], r1: f32[6,6]) {{
      r0[i,j] = exp(p0[i,j])
      {second}
    }}"""
    assert not [w for w in outer_loops(text) if {"r0", "r1"} <= w]


def test_two_contractions_keep_their_tiles() -> None:
    text = """kernel(p0: f32[6,16], p1: f32[16,16], p2: f32[6,16]) -> (r0: f32[6,16], r1: f32[16,16]) {
      k<16: r0[i,j] += p2[i,k]*p1[j,k]
      k<6: r1[i,j] += p0[k,i]*p2[k,j]
    }"""
    assert not [w for w in outer_loops(text) if {"r0", "r1"} <= w]


@pytest.mark.parametrize(
    ("boxes", "fills"),
    [
        (("i < 3", "i >= 3"), 0),
        (("i < 3 and j < 4", "i < 3 and j >= 4", "i >= 3"), 0),
        (("i < 3", "i >= 4"), 1),
        (("i < 3", "i >= 3 and j < 6"), 1),
        (("i+j < 3", "i+j >= 3"), 1),
        (("i < 3", "i >= 3 and p0[i,j] < 0.0"), 1),
    ],
)
def test_boxes_that_cover_an_output_need_no_zero(boxes: tuple[str, ...], fills: int) -> None:
    lines = [f" r0[i,j] = p0[i,j]*{k}.0 if {box}" for k, box in enumerate(boxes, 2)]
    program = agree(parse_kernel("\n".join(["kernel(p0: f32[6,7]) -> (r0: f32[6,7]) {", *lines, "}"])), Machine())
    assert len(program.body) - len(boxes) == fills


def test_equations_are_loop_bounds() -> None:
    text = "kernel(p0: f32[9,9]) -> (r0: f32[9]) {\n k<9: r0[i] += p0[i,k] if 2*k == i\n}"
    program = agree(parse_kernel(text), Machine())
    assert not [s for s in walk_stmts(program.body) if isinstance(s, If)]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bytes}x{m.registers}-{m.l2 >> 10}K")
@pytest.mark.parametrize(
    "nest",
    [
        "r0[i,j] = p0[(1-i)//2*(-1),j] if (1-i) % 2 == 0 and (1-i)//2 >= -3",
        "r0[i,j] = p0[(j-i)//3+3,j] if (2*j-2*i) % 3 == 2 and (j-i)//3 >= -3",
        "k<5: r0[i,j] += p0[k,j]*p1[(i-k)//2] if (i-k) % 2 == 0 and i >= k and i < k+8",
        "k<5: r0[i,j] += p0[k,j] if (i+j*k) % 2 == 0",
    ],
)
def test_remainders_and_quotients_may_bound_loops(nest: str, machine: Machine) -> None:
    agree(parse_kernel(f"kernel(p0: f32[8,9], p1: f32[4]) -> (r0: f32[10,9]) {{\n {nest}\n}}"), machine)


def test_a_remainder_is_a_step() -> None:
    text = "kernel(p0: f32[9]) -> (r0: f32[40]) {\n r0[i] = p0[i//5+1] if i % 5 == 3 and i//5 < 6\n}"
    program = agree(parse_kernel(text), Machine())
    (*_, last) = [s for s in walk_stmts(program.body) if isinstance(s, For)]
    assert (last.start, last.stop, last.step) == (Const(3), Const(30), 5)
    assert not [s for s in walk_stmts(program.body) if isinstance(s, If)]


def test_bounds_of_a_row_are_bounds_of_its_elements() -> None:
    text = "kernel(p0: f32[9,8]) -> (r0: f32[9,8]) {\n r0[i,j] = p0[i,j] if i > 1 and i <= 6\n}"
    program = agree(parse_kernel(text), Machine())
    assert [(s.start, s.stop) for s in program.body if isinstance(s, For)][1:] == [(Const(16), Const(56))]


def test_ordered_sums_are_added_one_by_one() -> None:
    machine = Machine(32, 16, ordered=True)
    for text in SMALL:
        program = agree(parse_kernel(text), machine)
        assert not [s for s in walk_stmts(program.body) if isinstance(s, Let) and s.local.lanes > 1]


def test_loops_that_share_keep_neighbours_innermost() -> None:
    kernel = parse_kernel("""kernel(p0: f32[20,24]) -> (r0: f32[20,24], r1: f32[24]) local (t0: f32[20,24]) {
      i<20 j<24: t0[i,j] = exp(p0[i,j])
      i<20 j<24: r0[i,j] = t0[i,j]+1.0
      j<24 i<20: r1[j] += t0[i,j]
    }""")
    program = agree(kernel, Machine(32, 16))
    loops = [f for f in walk_stmts(program.body) if isinstance(f, For)]
    stores = [(s, f.axis) for f in loops for s in f.body if isinstance(s, Store)]
    assert {s.out for s, _ in stores} == {"t0", "r0"}
    assert all(coefficient(s.at, axis) == 1 for s, axis in stores)


def test_borders_of_copies_are_not_tested_for_each_element() -> None:
    program = agree(parse_kernel(conv(6, 4, 16, 3, pad=1)), Machine(32, 16))
    copies = [s for s in walk_stmts(program.body) if isinstance(s, For) and "pa0" in writes(s.body)]
    assert copies
    assert not any(isinstance(s, If) for c in copies for s in walk_stmts(c.body))
