"""Schedules as values: what is chosen can be printed, read and applied again; others are right or say why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.base.diagnostics import DlcError
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.loops.program import For, If, Set, walk_stmts
from dlc.kernel.schedules.candidate import MARGIN
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.plain import Loops
from dlc.kernel.schedules.rows import Rows
from dlc.kernel.schedules.schedule import ALL_FAMILIES, scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.schedules.windows import Windows
from dlc.kernel.text import parse_kernel
from dlc.plugins.builtin import dlc_schedules
from tests.backend_c.harness import close, samples
from tests.backend_c.test_schedules import KERNELS, conv, depthwise, filtered, matmul, pooling
from tests.docs.blocks import ROOT
from tests.kernel.triples import triples
from tests.machines import MACHINES

PRODUCT = parse_kernel(matmul(40, 64, 48, False))
WIDE = Machine(32, 16)
SMALL = replace(WIDE, l2=1 << 10)
DOTS = """kernel(f32[40], f32[33,40], f32[33]) -> (f32[33]) local (f32[33]) {
  k<40: t0[i] += p0[k]*p1[i,k]
  r0[i] = t0[i]+p2[i]
}"""
THREE = "kernel(f32[6,3]) -> (f32[3]) {\n k<6: r0[i] += p0[k,i]\n}"


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_what_is_chosen_gives_the_same_loops_again(first: int) -> None:
    for seed in range(first, first + 10):
        for form, triple in triples(seed):
            found = scheduled(triple.kernel, triple.machine)
            read = parse_choices(print_choices(found.choices))
            assert read == found.choices
            again = scheduled(triple.kernel, triple.machine, read)
            assert print_loops(again.program) == print_loops(found.program), f"seed {seed}, {form}"
            assert again.choices == found.choices


def reasons(kernel: Kernel, machine: Machine) -> dict[str, str]:
    """What does not apply to the first group of a kernel, and why."""
    return {c.choice.brief: c.unfit for c in scheduled(kernel, machine).considered[0] if c.unfit}


@pytest.mark.parametrize(
    ("text", "machine", "choice", "reason"),
    [
        (matmul(40, 64, 48, False), Machine(), "tiles", "vectors have 0 bytes, tiles need 16"),
        (matmul(40, 64, 48, False), replace(WIDE, ordered=True), "tiles", "sums keep the order of their axes"),
        (matmul(40, 64, 8, False), SMALL, "copies", "copies pay from 32 steps of a sum on, and there are 8"),
        (matmul(8, 64, 48, False), WIDE, "copies", "copies pay from 16 rows on, and there are 8"),
        (matmul(40, 64, 48, False), WIDE, "copies", "its 19968 bytes of operands fit the second-level cache of 524288"),
        (matmul(40, 64, 48, False).replace("f32", "i32"), WIDE, "tiles", "there are no vectors of i32"),
        ("kernel(f32[8]) -> (f32[8]) {\n r0[i] = p0[7-i]\n}", WIDE, "tiles", "it adds nothing up"),
        (matmul(40, 64, 48, False), WIDE, "windows", "no windows overlap along its rows"),
        (depthwise(8, 6, 1), WIDE, "windows", "6 columns are fewer than 8 columns of a tile"),
        (pooling(9, 8, 3, 2), WIDE, "windows", "its windows overlap by less than half"),
        (DOTS, WIDE, "rows", "its rows read 5280 bytes, which a cache may hold"),
        (matmul(1, 64, 48, False), WIDE, "rows", "its sums are not along contiguous elements"),
        (THREE, WIDE, "tiles", "the last 3 of 3 columns are no whole vectors of 4"),
    ],
)  # fmt: skip
def test_reasons(text: str, machine: Machine, choice: str, reason: str) -> None:
    found = reasons(parse_kernel(text), machine)
    assert found[choice] == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tiles{columns=7}", "there is no output axis 7"),
        ("tiles{columns=0}", "output axis 0 has no unit stride"),
        ("tiles{columns=1 vectors=4 rows=5}", "5 rows of 4 vectors are more than 16 registers hold"),
        ("heap", "it does not count how many elements come before each"),
        ("loops,loops", "the kernel has 1 groups of nests, and the schedule has 2 parts"),
    ],
)
def test_a_choice_that_does_not_apply_says_why(text: str, reason: str) -> None:
    with pytest.raises(Unfit) as caught:
        scheduled(PRODUCT, WIDE, parse_choices(text))
    assert str(caught.value) == reason


SINES = "kernel(f32[3,5,200]) -> (f32[3,5]) {\n k<200: r0[i,j] += sin(p0[i,j,k])\n}"
LONG = "kernel(f32[9001]) -> (f32[1]) {\n k<9001: r0[0] += p0[k]\n}"
COLUMNS = "kernel(f32[7,5]) -> (f32[5,7]) {\n r0[i,j] = p0[j,i]\n}"


@pytest.mark.parametrize(
    ("text", "given", "chosen"),
    [
        (DOTS, "loops", "loops{sums=4 rows=2}"),
        (DOTS, "loops{sums=9 rows=1}", "loops{sums=5 rows=1}"),  # as many vectors as a row has
        (SINES, "loops", "loops{sums=4 chunk=64}"),
        (LONG, "loops", "loops{sums=4}"),  # in two levels, the second with a rest
        (SINES, "loops{sums=1 chunk=24}", "loops{sums=1 chunk=24}"),
        (COLUMNS, "loops", "loops{innermost=2}"),
        (COLUMNS, "loops{innermost=1}", "loops{innermost=1}"),
        ("kernel(f32[8]) -> (f32[8]) {\n r0[i] = p0[i]\n}", "loops", "loops"),
    ],
)
def test_numbers_of_loops(text: str, given: str, chosen: str) -> None:
    kernel = parse_kernel(text)
    found = scheduled(kernel, WIDE, parse_choices(given))
    assert print_choices(found.choices) == chosen
    args = samples(kernel)
    (got,), (want,) = run_loops(found.program, args), run_kernel(kernel, args)
    assert close(got, want)


@pytest.mark.parametrize(
    ("text", "given", "reason"),
    [
        (COLUMNS, "loops{innermost=3}", "there are 2 outer loops, and no loop 3"),
        (COLUMNS, "loops{sums=2}", "it has no such sum along contiguous elements"),
        (DOTS, "loops{chunk=64}", "it has no such sum along contiguous elements"),
        (DOTS, "loops{sums=17}", "17 partial results are more than 16 registers hold"),
        (SINES, "loops{chunk=20}", "it has no such sum along contiguous elements"),  # no whole vectors of 8
    ],
)
def test_numbers_of_loops_that_mean_nothing(text: str, given: str, reason: str) -> None:
    with pytest.raises(Unfit) as caught:
        scheduled(parse_kernel(text), WIDE, parse_choices(given))
    assert str(caught.value) == reason


def test_numbers_that_are_left_open_are_chosen() -> None:
    (open_,) = scheduled(PRODUCT, WIDE, parse_choices("tiles{columns=1 rows=3}")).choices
    assert open_.brief == "tiles{columns=1 vectors=2 rows=3 block=40}"


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_rows_of_tiles_are_as_many_as_asked_for(rows: int) -> None:
    program = scheduled(PRODUCT, WIDE, parse_choices(f"tiles{{columns=1 vectors=2 rows={rows}}}")).program
    assert f"step {rows}:" in print_loops(program) or rows == 1
    assert f"c{rows - 1}_1: f32x8" in print_loops(program)
    assert f"c{rows}_1: f32x8" not in print_loops(program)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tile", "there is no schedule tile"),
        ("tiles{row=3}", "tiles has no option row"),
        ("tiles{rows=-1}", "tiles: option rows: -1 is below the least value, 0"),
        ("tiles{rows=3", "expected '}' to close tiles{, found the end of the text"),
    ],
)
def test_text_that_is_no_schedule(text: str, message: str) -> None:
    with pytest.raises(DlcError) as caught:
        parse_choices(text)
    assert caught.value.diagnostics[0].message.startswith(message)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_kernel_has_a_schedule(machine: str) -> None:
    for text in (*KERNELS, conv(6, 4, 16, 3, pad=1)):
        for group in scheduled(parse_kernel(text), MACHINES[machine]).considered:
            assert any(c.estimate is not None for c in group)
            assert group[-1].choice.name in (Loops.name, "heap", "blocks")


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_that_is_estimated_takes_much_less_than_what_is_chosen(machine: str) -> None:
    for text in (*KERNELS, conv(6, 4, 16, 3, pad=1)):
        found = scheduled(parse_kernel(text), MACHINES[machine])
        for choice, group in zip(found.choices, found.considered, strict=True):
            cycles = {c.choice: c.estimate.cycles for c in group if c.estimate is not None}
            assert cycles[choice] <= MARGIN * min(cycles.values())


def test_every_family_is_listed() -> None:
    assert {lazy.load() for lazy in dlc_schedules()} == set(ALL_FAMILIES)


def test_the_page_has_every_option() -> None:
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    for family in ALL_FAMILIES:
        assert f"| `{family.name}` | | {family.__doc__} |" in page
        for option in family.options_doc():
            assert f"| | `{option.key}` | {option.doc} |" in page


def test_blocks_for_threads_that_share_a_copy_are_found_again() -> None:
    """Blocks of rows that are copied one at a time would be other loops, and here they do not apply."""
    kernel = parse_kernel(
        """kernel(f32[2,8,9,16], f32[1,3,8,1,16]) -> (f32[2,9,18,16]) {
  m<8 n<2 u<3: r0[i,j,k,m*2+n] += p0[i,m,j,k-u]*p1[0,u,m,0,n] if k-u >= 0 and k-u < 16
}"""
    )
    machine = Machine(64, 32, 2048, 846_041, threads=3)
    found = scheduled(kernel, machine)
    assert print_choices(found.choices) == "tiles{parallel=s0 columns=4 vectors=1 rows=16 block=3 whole=yes}"
    assert scheduled(kernel, machine, found.choices).program == found.program


@pytest.mark.parametrize("extent", [16, 40, 67])
@pytest.mark.parametrize("rows", [2, 4, 5])
@pytest.mark.parametrize("machine", [Machine(16, 16), WIDE, Machine(64, 32), Machine(0, 16)], ids=str)
def test_rows_are_summed_together(machine: Machine, rows: int, extent: int) -> None:
    kernel = parse_kernel(DOTS.replace("40", str(extent)))
    if machine.vector_bytes < 16 or machine.lanes(4) * 2 > extent:
        with pytest.raises(Unfit):
            scheduled(kernel, machine, (Rows(rows),))
        return
    program = scheduled(kernel, machine, (Rows(rows),)).program
    args = samples(kernel)
    (got,), (want,) = run_loops(program, args), run_kernel(kernel, args)
    assert close(got, want)
    # What all rows read is read for all of them in one loop.
    sums = [s for s in walk_stmts(program.body) if isinstance(s, For) and s.axis.extent == extent and s.step > 1]
    assert max(sum(isinstance(x, Set) for x in s.body) for s in sums) % rows == 0


@pytest.mark.parametrize("rows", [0, 2, 3])
@pytest.mark.parametrize("channels", [16, 19, 40])
@pytest.mark.parametrize(("size", "window", "stride"), [(4, 3, 1), (8, 3, 1), (9, 5, 2), (12, 5, 1), (11, 2, 1)])
def test_windows_read_what_they_share_once(size: int, window: int, stride: int, channels: int, rows: int) -> None:
    for text in (pooling(size, channels, window, stride), filtered(size, channels, window, stride)):
        kernel = parse_kernel(text)
        program = scheduled(kernel, Machine(16, 32), (Windows(2, rows),)).program
        args = samples(kernel)
        (got,), (want,) = run_loops(program, args), run_kernel(kernel, args)
        assert close(got, want), text
        # Only which line of a window is read is tested while the program runs.
        assert not any(isinstance(s, If) for s in walk_stmts(program.body))


def test_a_matrix_beyond_the_caches_is_read_in_rows() -> None:
    machine = replace(WIDE, l2=128)
    assert print_choices(scheduled(parse_kernel(DOTS), machine).choices) == "rows{rows=4}"
