"""Loops are read from the text that they print as, and what is wrong with a text is said with its place."""

import pytest

from dlc.base.diagnostics import DlcError
from dlc.base.extents import symbol
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.loops.program import LoopProgram
from dlc.kernel.schedules.schedule import schedule
from dlc.passes.lower import Kernels, lower_op
from tests.kernel.test_limits import OPS, TARGETS
from tests.kernel.triples import triples


def read_again(program: LoopProgram) -> LoopProgram:
    return parse_loops(print_loops(program))


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_loops_of_random_kernels_are_read_as_they_were(first: int) -> None:
    for seed in range(first, first + 10):
        for form, triple in triples(seed):
            program = schedule(triple.kernel, triple.machine, triple.choices)
            assert read_again(program) == program, f"seed {seed}, {form}"


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("name", OPS)
def test_loops_that_end_at_sizes_are_read_as_they_were(name: str, machine: str) -> None:
    kernel = lower_op(OPS[name](symbol("n", 1, 40)), Kernels()).body
    program = schedule(kernel, TARGETS[machine].machine)
    assert read_again(program) == program


TEXT = """\
loops(p0: f32[64] stored as f16, p1: i4[6] packed) -> (r0: f32[64]) aligned {
  t0: f32[8] on the stack
  h: i64[2,4] in the workspace below 300 times 4
  size0<64: i64 = 3
  for i<64 to size0 in 0..size0 step 2 unroll 3 apart parallel own (t0, h):
    block:
      v: f32x8 = p0[i .. +8]
      s: f32 = 0.0
      s = s+add of v
      if i < 3:
        r0[i .. +8] = v*s
      else:
        prefetch r0[i+8] to write later
        r0[i] = -inf
}"""


def test_every_statement_is_read() -> None:
    assert print_loops(parse_loops(TEXT)) == TEXT


def test_indentation_is_free_and_comments_are_ignored() -> None:
    wide = "\n".join(line.replace("  ", "     ") + "  # as it was" for line in TEXT.splitlines())
    assert parse_loops(wide) == parse_loops(TEXT)


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("stored as f16", "stored as half", "unknown element type 'half'", 1),
        ("p1: i4", "p0: i4", "the name p0 is taken", 1),
        ("on the stack", "on the heap", "expected 'stack', found 'heap'", 2),
        ("h: i64", "t0: i64", "the name t0 is taken", 3),
        ("for i<64 to", "for i to", "the loop needs an extent, as in `for i<64 in 0..n:`", 5),
        ("own (t0, h):", "own (t0, h)", "expected ':', found 'block'", 6),
        ("own (t0, h)", "own (t0, r0)", "'r0' is no buffer", 5),
        ("parallel own", "own", "expected ':', found 'own'", 5),
        ("    block:", "  block:", "a statement is expected here, deeper than what it belongs to", 6),
        ("      s: f32", "       s: f32", "this stands deeper than the statements before it", 8),
        ("f32x8", "f23x8", "unknown element type 'f23'", 7),
        ("add of v", "add of w", "w is no variable", 9),
        ("s = s+", "z = s+", "'z' is neither a tensor nor a variable", 9),
        ("prefetch r0[", "prefetch v[", "v is no tensor", 13),
        ("to write", "to keep", "expected 'read', found 'keep'", 13),
        ("-inf", "j", "'j' is neither an axis, a tensor nor a function", 14),
        ("\n}", "", "expected '}', found the end of the text", 14),
    ],
)
def test_errors_say_where(old: str, new: str, message: str, line: int) -> None:
    assert TEXT.count(old) >= 1
    with pytest.raises(DlcError) as caught:
        parse_loops(TEXT.replace(old, new, 1), "loops.dlc")
    (found,) = caught.value.diagnostics
    assert found.message == message
    assert found.location is not None
    assert (found.location.source, found.location.line) == ("loops.dlc", line)


def test_variables_end_with_their_block() -> None:
    with pytest.raises(DlcError, match="'s' is neither a tensor nor a variable"):
        parse_loops(TEXT.replace("        r0[i] = -inf", "  s = 1.0"))


def test_depth_is_limited() -> None:
    deep = "".join(f"{' ' * k}block:\n" for k in range(400))
    with pytest.raises(DlcError, match="loops nested deeper than"):
        parse_loops(f"loops() -> (r0: f32[1]) {{\n{deep}{' ' * 400}r0[0] = 1.0\n}}")
