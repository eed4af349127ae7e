"""Loops that threads share: which may be, which are chosen, and that the evaluator refuses those that may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.independent import GRAIN, grain, own_buffers
from dlc.kernel.loops.memory import LoopFault
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.loops.program import For, LoopProgram, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule, scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.kernel.test_schedules import matmul

WIDE = Machine(64, 32, 32 << 10, 512 << 10)
FOUR = replace(WIDE, threads=4)
LARGE = """kernel(p0: f32[128,512], p1: f32[512,512]) -> (r0: f32[128,512]) {
  k<512: r0[i,j] += p0[i,k]*p1[k,j]
}"""


def program(body: str, buffers: str = "") -> LoopProgram:
    lines = [f"  {line}" for line in (*buffers.splitlines(), *body.splitlines())]
    return parse_loops("\n".join(["loops(p: f32[64]) -> (r: f32[64]) {", *lines, "}"]))


def first_loop(body: str, buffers: str = "") -> For:
    return next(s for s in walk_stmts(program(body, buffers).body) if isinstance(s, For))


TILES = """for b<49 in 0..49 step 25:
  for t<49 in b..min(b+25, 49):
    for i in 0..2:
      if t//7*2+i < 13 and t % 7*2 < 13:
        r[(t//7*2+i)*13+t % 7*2] = p[0]
      if t//7*2+i < 13 and t % 7*2 < 12:
        r[(t//7*2+i)*13+t % 7*2+1] = p[0]"""
"""Tiles of 2x2 over 13x13 elements, those of the border cut."""
IMAGES = """for b<98 in 0..98 step 25:
  for t<98 in b..min(b+25, 98):
    for i in 0..2:
      if t//7 % 7*2+i < 13 and t % 7*2 < 13:
        r[t//49*169+(t//7 % 7*2+i)*13+t % 7*2] = p[0]
      if t//7 % 7*2+i < 13 and t % 7*2 < 12:
        r[t//49*169+(t//7 % 7*2+i)*13+t % 7*2+1] = p[0]"""
"""The same of two images."""
TAIL = """for y<64 in 0..64 step 28:
  for j in 0..14:
    r[j+y] = 1.0
  if y+28 >= 64:
    r[63] = 1.0"""
"""What is left is done by the last iteration."""
INDEPENDENT: Sequence[tuple[str, str, tuple[str, ...]]] = (
    (TILES, "", ()),
    (IMAGES, "", ()),
    (TAIL, "", ()),
    ("for i in 0..64:\n  r[i] = p[63-i]", "", ()),
    ("for i in 0..8:\n  for j in 0..8:\n    r[8*i+j] = p[i]", "", ()),
    # Columns: those of one iteration lie between those of others, in every row.
    ("for i in 0..4:\n  for j in 0..8:\n    r[8*j+2*i] = 0.0\n    r[8*j+2*i+1] = 1.0", "", ()),
    ("for i in 0..4:\n  r[2*i .. +2] = 0.0\n  r[8+2*i .. +2] = 0.0\n  r[16+2*i .. +2] = 1.0", "", ()),
    ("for i<64 in 0..64 step 16:\n  for j<64 in i..min(i+16, 64):\n    r[j] = p[j]", "", ()),
    # Each reads what it wrote itself.
    ("for i in 0..64:\n  r[i] = p[i]\n  r[i] = r[i]+1.0", "", ()),
    ("for i in 0..64:\n  t[0] = p[i]\n  r[i] = t[0]*t[0]", "t: f32[1] on the stack", ("t",)),
    (
        "for i in 0..8:\n  for j in 0..8:\n    t[j] = p[j]\n  for j in 0..8:\n    r[8*i+j] = t[7-j]",
        "t: f32[8] on the stack",
        ("t",),
    ),
)
DEPENDENT: Sequence[tuple[str, str]] = (
    (TILES.replace("< 12", "< 13"), ""),  # the last column is the next row's first
    (TILES.replace("+25, 49", "+26, 49"), ""),  # blocks have a tile in common
    (TILES.replace("*13+", "*12+"), ""),
    (IMAGES.replace("7*2+i < 13", "7*2+i < 14"), ""),  # the last row is the next image's first
    (TAIL.replace(">= 64", ">= 36"), ""),  # two iterations do it
    (TAIL.replace("r[63]", "r[40]"), ""),
    ("for i in 0..64:\n  r[0] = p[i]", ""),
    ("for i in 0..63:\n  r[i] = p[i]\n  r[i+1] = p[i]", ""),
    ("for i in 0..32:\n  r[i] = p[i]\n  r[63-i] = r[i]", ""),
    ("for i in 0..8:\n  for j in 0..9:\n    r[min(7*i+j, 63)] = p[j]", ""),
    ("for i in 0..8:\n  for j in 0..8:\n    r[8*j+i % 4] = p[j]", ""),
    # The last panel of one row is the first of the next.
    ("for i in 0..3:\n  for j in 0..8:\n    for k in 0..4:\n      r[8*j+4*i+k % 2] = p[j]", ""),
    ("s: f32 = 0.0\nfor i in 0..64:\n  s = s+p[i]\n  r[i] = s", ""),
    ("for i in 0..64:\n  r[i] = t[0]\n  t[0] = p[i]", "t: f32[1] on the stack"),
    ("for i in 0..64:\n  if i < 3:\n    t[0] = p[i]\n  r[i] = t[0]", "t: f32[1] on the stack"),
)


@pytest.mark.parametrize(("body", "buffers", "own"), INDEPENDENT)
def test_iterations_that_may_run_at_the_same_time(body: str, buffers: str, own: tuple[str, ...]) -> None:
    assert own_buffers(first_loop(body, buffers), {"t"}) == own


@pytest.mark.parametrize(("body", "buffers"), DEPENDENT)
def test_iterations_that_may_not(body: str, buffers: str) -> None:
    assert own_buffers(first_loop(body, buffers), {"t"}) is None


def test_a_buffer_that_others_use_is_nobodys_own() -> None:
    assert own_buffers(first_loop(INDEPENDENT[-1][0], INDEPENDENT[-1][1]), ()) is None


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0..64 parallel:\n  r[0] = p[i]\n  r[i] = p[i]",
        "for i in 0..63 parallel:\n  r[i] = p[i]\n  r[i+1] = p[i]",
        "for i in 0..64 parallel own (t):\n  if i == 0:\n    t[0] = p[i]\n  r[i] = t[0]",
        "for i in 0..64 parallel:\n  t[0] = p[i]\n  r[i] = t[0]",
        "for i in 0..64 parallel own (t):\n  t[0] = p[i]\n  r[i] = t[0]\nr[0] = t[0]",
        "s: f32 = 0.0\nfor i in 0..64 parallel:\n  s = s+p[i]\n  r[i] = p[i]",
    ],
)
def test_the_evaluator_refuses_iterations_that_meet(body: str) -> None:
    with pytest.raises(LoopFault):
        run_loops(program(body, "t: f32[1] on the stack"), [np.ones(64, np.float32)])


def test_the_evaluator_runs_those_that_do_not() -> None:
    body = "for j in 0..8:\n  for i in 0..8 parallel own (t):\n    t[0] = p[8*j+i]\n    r[8*j+i] = t[0]+1.0"
    loops = program(body, "t: f32[1] on the stack")
    given = np.arange(64, dtype=np.float32)
    assert np.array_equal(run_loops(loops, [given])[0], given + 1)


def test_short_loops_keep_vectors_together() -> None:
    assert grain(first_loop("for i in 0..64:\n  r[i] = p[i]")) == GRAIN
    assert grain(first_loop("for i in 0..8:\n  r[8*i .. +8] = p[8*i .. +8]")) == 1
    assert grain(first_loop("for i in 0..1:\n  for j<99 in 0..64:\n    r[j] = p[i]")) == 1


def test_a_product_is_shared_where_there_is_enough_work() -> None:
    large = parse_kernel(LARGE)
    assert print_choices(scheduled(large, FOUR).choices) == "copies{parallel=z,hr,cb rows=14 block=128 depth=128}"
    assert print_choices(scheduled(large, WIDE).choices) == "copies{rows=14 block=128 depth=128}"
    small = scheduled(parse_kernel(matmul(8, 16, 32, False)), FOUR)
    assert "parallel" not in print_choices(small.choices) + print_loops(small.program)


def test_rows_of_a_block_are_shared_where_blocks_are_few() -> None:
    """What a loop takes does not depend on where the loops around it stand: here blocks of 18 of 54 rows."""
    text = """kernel(p0: f32[1,3,224,224], p1: f32[6,11,11,3,16]) -> (r0: f32[1,54,54,96]) {
 i0<1 i1<54 i2<54 i3<96 i4<3 i5<11 i6<11: r0[i0,i1,i2,i3] += p0[i0,i4,i1*4+i5,i2*4+i6]*p1[i3//16,i5,i6,i4,i3 % 16]
}"""
    found = scheduled(parse_kernel(text), Machine(64, 32, threads=2))
    (loops,) = ([s for s in walk_stmts(found.program.body) if isinstance(s, For) and s.parallel],)
    assert [s.axis.extent for s in loops] == [54]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_sum_of_two_products_stays(ordered: bool) -> None:
    """A compiler fuses one of them with the sum, and perhaps not the same one in another function."""
    kernel = parse_kernel(
        "kernel(p0: f32[90000], p1: f32[90000]) -> (r0: f32[90000]) {\n r0[i] = 0.9*p0[i]+0.1*p1[i]\n}"
    )
    found = print_choices(scheduled(kernel, replace(FOUR, ordered=ordered)).choices)
    assert found == ("loops{parallel=s0}" if ordered else "loops")


def test_what_iterations_have_to_themselves_is_there_once_for_each_thread() -> None:
    found = scheduled(parse_kernel(LARGE), FOUR).program
    assert {b.name: b.copies for b in found.buffers if not b.stack} == {"pa0": 1, "pb0": 4}
    own = {s.axis.name: s.own for s in walk_stmts(found.body) if isinstance(s, For) and s.parallel}
    assert own == {"z": (), "hr": (), "cb": ("pb0",)}


@pytest.mark.parametrize(
    "text", ["copies{parallel=cb}", "copies{parallel=rt}", "copies{parallel=no}", "tiles{columns=1 parallel=cb}"]
)
def test_loops_are_chosen_by_hand(text: str) -> None:
    kernel = parse_kernel(LARGE)
    found = scheduled(kernel, FOUR, parse_choices(text))
    assert scheduled(kernel, FOUR, parse_choices(print_choices(found.choices))) == found
    args = samples(kernel)
    assert all(
        close(got, want) for got, want in zip(run_loops(found.program, args), run_kernel(kernel, args), strict=True)
    )
    shared = [s.axis.name for s in walk_stmts(found.program.body) if isinstance(s, For) and s.parallel]
    assert shared == ([] if "no" in text else [text.partition("parallel=")[2][:2]])


@pytest.mark.parametrize(
    ("machine", "text", "why"),
    [
        (WIDE, "copies{parallel=cb}", "there is one thread"),
        (FOUR, "copies{parallel=k0}", "there is no loop k0 that threads may share"),
        (FOUR, "copies{parallel=q}", "there is no loop q"),
    ],
)
def test_a_loop_that_cannot_be_shared(machine: Machine, text: str, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        schedule(parse_kernel(LARGE), machine, parse_choices(text))


def test_threads_change_nothing_but_marks() -> None:
    """Loops are otherwise those of one thread: what computes an element is the same."""
    kernel = parse_kernel(LARGE)

    def plain(threads: int) -> str:
        text = print_loops(schedule(kernel, replace(WIDE, threads=threads)))
        for word in (" parallel", " own (pb0)", f" times {threads}"):
            text = text.replace(word, "")
        return text

    assert plain(1) == plain(2) == plain(8)
