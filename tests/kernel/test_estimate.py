"""What loops are estimated to take: exact where the model says so, and in the right order elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.schedules.contraction import Tiles
from dlc.kernel.schedules.estimate import Estimate, estimate, least_cycles, sizes_of
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.text import parse_kernel
from tests.backend_c.test_schedules import conv, matmul
from tests.kernel.triples import triples

MACHINE = Machine(32, 16, 32 << 10, 512 << 10)
N = 1 << 20


def of(text: str, machine: Machine = MACHINE) -> Estimate:
    program = parse_loops(text)
    kernel = Kernel(program.params, program.results, (), ())
    return estimate(program.body, sizes_of(kernel, program.buffers), machine)


def copy(at: str, reads: int = 1, lanes: int = 1) -> str:
    """`N` elements from places of `reads` as many."""
    step, some = (f" step {lanes}", f" .. +{lanes}") if lanes > 1 else ("", "")
    return f"""loops(p0: f32[{reads * N}]) -> (r0: f32[{N}]) {{
  for i in 0..{N}{step}:
    r0[i{some}] = p0[{at}{some}]
}}"""


def test_what_is_copied_crosses_the_caches_once() -> None:
    assert of(copy("i")).bytes == pytest.approx(8 * N, rel=1e-4)
    assert of(copy("i", lanes=8)) == of(copy("i"))  # compilers make the same vectors


def test_elements_that_are_far_apart_bring_whole_lines() -> None:
    assert of(copy("16*i", 16)).bytes == pytest.approx(4 * N + 64 * N, rel=1e-4)
    assert of(copy("2*i", 2)).bytes == pytest.approx(4 * N + 8 * N, rel=1e-4)


def test_without_vectors_each_element_is_an_operation() -> None:
    assert of(copy("i"), Machine(0)).cycles > 4 * of(copy("i"), Machine(32, memory_rate=1e9)).cycles


def again(rows: int, columns: int) -> str:
    """The same vector for every row."""
    return f"""loops(p0: f32[{columns}]) -> (r0: f32[{rows}]) {{
  for i in 0..{rows}:
    a: f32 = 0.0
    for k in 0..{columns}:
      a = a+p0[k]
    r0[i] = a
}}"""


def test_what_a_cache_holds_is_read_once_and_what_it_does_not_each_time() -> None:
    fits, fits_not = 64 << 10, 256 << 10
    assert of(again(100, fits)).bytes == pytest.approx(4 * fits, rel=0.01)
    assert of(again(100, fits_not)).bytes == pytest.approx(400 * fits_not, rel=0.01)


def blocks(size: int) -> str:
    """A vector times a number, so many elements at a time."""
    return f"""loops(p0: f32[{N}]) -> (r0: f32[{N}]) {{
  for b<{N} in 0..{N} step {size}:
    for i<{N} in b..min(b+{size}, {N}):
      r0[i] = exp(p0[i])
}}"""


def test_the_last_of_blocks_counts_what_it_has() -> None:
    whole = of(blocks(N)).cycles
    for size in (N // 2, N // 2 + 1000, N * 5 // 8, N // 3, N * 2 // 5):
        assert of(blocks(size)).cycles == pytest.approx(whole, rel=1e-2), size


def test_what_is_fetched_ahead_takes_no_time_of_its_own() -> None:
    text = f"""loops(p0: f32[{N}]) -> (r0: f32[{N}]) {{
  for i in 0..{N} step 8:
    r0[i .. +8] = exp(exp(exp(exp(p0[i .. +8]))))
}}"""
    ahead = text.replace("    r0[i ", f"    prefetch p0[min(i+4096, {N - 1})] to read later\n    r0[i ")
    machine = replace(MACHINE, memory_rate=4.0)
    assert of(text, machine).bytes == of(ahead, machine).bytes
    assert of(text, machine).cycles - of(ahead, machine).cycles == pytest.approx(0.9 * 4 * N / 4.0, rel=1e-3)


def test_a_sum_waits_for_the_term_before() -> None:
    assert of(again(1, 1000)).cycles >= 4000
    several = again(1, 1000).replace("a = a+p0[k]", "b: f32 = p0[k]*2.0\n      r0[i] = b")
    assert of(several).cycles < 3000


def test_what_runs_never_takes_nothing() -> None:
    assert of(again(0, 8)).cycles == 0
    assert of(again(0, 8)).bytes == 0


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_every_schedule_has_an_estimate(first: int) -> None:
    for seed in range(first, first + 10):
        for form, triple in triples(seed):
            found = scheduled(triple.kernel, triple.machine)
            for choice, group in zip(found.choices, found.considered, strict=True):
                (takes,) = (c.estimate for c in group if c.choice == choice and c.estimate is not None)
                assert takes.cycles >= 0 and takes.bytes >= 0, f"seed {seed}, {form}"


@pytest.mark.parametrize("text", [matmul(64, 64, 64, False), conv(14, 32, 64, 3, pad=1)])
def test_tiles_take_about_what_their_arithmetic_takes(text: str) -> None:
    kernel = parse_kernel(text)
    (takes, *_) = (c.estimate for c in scheduled(kernel, MACHINE).considered[0] if c.estimate is not None)
    least = least_cycles(kernel.nests, kernel, MACHINE)
    assert least <= takes.cycles <= 3 * least


def rows_of(width: int) -> str:
    """A product of rows of this length in a tile of eight rows, one vector at a time."""
    sums = "\n".join(f"      c{i} = c{i}+p0[r*{8 * width}+{i * width}+k]*b" for i in range(8))
    starts = "\n".join(f"    c{i}: f32x8 = 0.0" for i in range(8))
    ends = "\n".join(f"    r0[r*64+{8 * i} .. +8] = c{i}" for i in range(8))
    return f"""loops(p0: f32[64,{width}], p1: f32[{width},8]) -> (r0: f32[64,8]) {{
  for r in 0..8:
{starts}
    for k in 0..{width}:
      b: f32x8 = p1[k*8 .. +8]
{sums}
{ends}
}}"""


def test_rows_that_are_a_power_of_two_long_push_each_other_out_of_the_cache() -> None:
    near = Machine(32, 16, 32 << 10, 512 << 10, memory_rate=1e9)
    plain, far_apart = of(rows_of(1040), near), of(rows_of(1024), near)
    assert far_apart.cycles > 1.5 * plain.cycles
    assert of(rows_of(1024), Machine(32, 16, 128 << 10, 1 << 20, memory_rate=1e9)).cycles < 1.1 * plain.cycles


@pytest.mark.parametrize(("width", "packed"), [(1024, True), (1040, False)])
def test_rows_that_push_each_other_out_are_copied(width: int, packed: bool) -> None:
    """The kernels differ in nothing else; the machine has eight ways of 4 KiB."""
    product = parse_kernel(f"""kernel(p0: f32[128,{width}], p1: f32[16,{width},16]) -> (r0: f32[128,256]) {{
 i0<128 i1<256 i2<{width}: r0[i0,i1] += p0[i0,i2]*p1[i1//16,i2,i1 % 16]
}}""")
    (choice,) = scheduled(product, Machine(64, 32, 32 << 10, 512 << 10)).choices
    assert isinstance(choice, Tiles) and choice.packed == packed


def test_the_branch_that_is_taken_in_the_middle_of_loops_counts() -> None:
    text = """loops(p0: f32[1000]) -> (r0: f32[1000]) {
  for i in 0..1000:
    if i < 990:
      r0[i] = p0[i]
    else:
      r0[i] = exp(exp(exp(p0[i])))
}"""
    assert of(text).cycles < of(text.replace("990", "10")).cycles / 3
