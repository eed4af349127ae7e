"""The checker of loops: right loops pass, each kind of fault is found, also where loops are run in part."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

import dlc.kernel.loops.check as check
from dlc.base.types import Type, f32
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import Finding, check_loops
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.loops.program import Buffer, For, If, Let, Local, LoopProgram, Set, Stmt, Store, loop, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel
from tests.kernel.loop_faults import KINDS, Fault, Oracle, on_one_thread, seeded
from tests.kernel.triples import triples

ROW, COLUMN = Axis("i", 6), Axis("j", 4)
SUMS = parse_kernel("kernel(f32[6,4]) -> (f32[6]) { j<4: r0[i] += 2.0*p0[i,j] }")
T = Buffer("t", Type(f32, (4,)), True)


def p(at: Expr) -> Load:
    return Load("p0", (at,))


def t(at: Expr) -> Load:
    return Load("t", (at,))


def program(*body: Stmt, buffers: Sequence[Buffer] = (T,)) -> LoopProgram:
    return LoopProgram(SUMS.params, SUMS.results, tuple(buffers), body)


def found(*body: Stmt) -> str:
    """What is found of loops for `SUMS`."""
    return "\n".join(map(str, check_loops(SUMS, program(*body))))


S = Local("s", f32)
COPY = loop(COLUMN, Store("t", COLUMN, p(ROW * 4 + COLUMN) * 2.0))
ADD = (Let(S, Const(0.0)), loop(COLUMN, Set(S, S + t(COLUMN))), Store("r0", ROW, S))


def test_right_loops_pass() -> None:
    assert not found(loop(ROW, COPY, *ADD))
    # Sums have no order, factors move, constants are the numbers that they are.
    other = Set(S, (p(ROW * 4 + COLUMN) * 0.5 + S) + p(ROW * 4 + COLUMN) * 1.5)
    assert not found(loop(ROW, Let(S, Const(0.0)), loop(COLUMN, other), Store("r0", ROW, S)))
    backwards = Set(S, S + p(ROW * 4 + 3 - COLUMN))
    assert not found(loop(ROW, Let(S, Const(0.0)), loop(COLUMN, backwards), Store("r0", ROW, S + S)))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ((For(ROW, Const(0), Const(5), (COPY, *ADD)),), "r0[5] is never written"),
        ((For(ROW, Const(0), Const(7), (COPY, *ADD)),), "p0[24] is outside of its 24 elements"),
        ((loop(ROW, *ADD, COPY),), "t[0] is read before it is written"),
        ((loop(ROW, For(COLUMN, Const(0), Const(3), COPY.body), *ADD),), "t[3] is read before it is written"),
        (
            (loop(ROW, COPY, ADD[0], For(COLUMN, Const(1), Const(4), (Set(S, S + t(COLUMN)),)), ADD[2]),),
            "r0[0] is not the kernel's",
        ),
        ((loop(ROW, COPY, *ADD[:2], Set(S, S + t(Const(2))), ADD[2]),), "r0[0] is not the kernel's"),
        (
            (loop(ROW, loop(COLUMN, Store("t", COLUMN, p(ROW * 4 + COLUMN)))), loop(ROW, *ADD)),
            "r0[0] is not the kernel's",
        ),
        ((loop(ROW, loop(COLUMN, Set(S, S + p(COLUMN)))),), "s is used, and is not declared"),
    ],
)
def test_wrong_loops(body: tuple[Stmt, ...], problem: str) -> None:
    assert problem in found(*body)


def test_a_finding_says_where() -> None:
    (finding,) = check_loops(SUMS, program(For(ROW, Const(0), Const(7), (COPY, *ADD))))
    assert finding == Finding(
        "p0[24] is outside of its 24 elements",
        ("for i<6 in 0..7:", "for j in 0..4:"),
        "t[j] = p0[i*4+j]*2.0",
        {"i": 6, "j": 0},
    )
    assert str(finding).endswith("in for i<6 in 0..7: for j in 0..4: t[j] = p0[i*4+j]*2.0 with i=6, j=0")
    wrong = loop(ROW, COPY, *ADD[:2], Store("r0", 5 - ROW, S))
    (finding,) = check_loops(SUMS, program(wrong))
    assert "r0[0] is not the kernel's, nor are 5 more" in finding.problem
    assert finding.statement == "r0[5-i] = s"
    assert finding.values == {"i": 5}


SOFTMAX_OF_ONE = parse_kernel("""kernel(f32[6,1]) -> (f32[6,1]) local (f32[6,1], f32[6,1], f32[6,1]) {
  t0[i,0] max= p0[i,0]
  t1[i,0] = exp(p0[i,0]-t0[i,0])
  t2[i,0] += t1[i,0]
  r0[i,0] = t1[i,0]/t2[i,0]
}""")


def test_a_maximum_of_nothing_is_no_number() -> None:
    """Any other number in the place of the maximum cancels, and an infinite one gives NaN."""
    for start, right in ((2.0, True), (-math.inf, False)):
        power = Apply("exp", (p(ROW) - S,))
        body = loop(ROW, Let(S, Const(start)), Store("r0", ROW, power / power))
        loops = LoopProgram(SOFTMAX_OF_ONE.params, SOFTMAX_OF_ONE.results, (), (body,))
        assert bool(check_loops(SOFTMAX_OF_ONE, loops)) is not right


def test_what_is_divided_by_nothing_is_no_number() -> None:
    """Were it 0, it would cancel as the right quotient does, which is 1."""
    text = """kernel(f32[3], f32[3]) -> (f32[3]) local (f32[3], f32[3]) {{
      t0[i] += p0[i]{}
      t1[i] = p0[i]/t0[i]
      r0[i] = t1[i]*(p1[i] - p1[i]*t1[i])
    }}"""
    kernel = parse_kernel(text.format(""))
    for changed, right in (("", True), (" - p0[i]", False)):
        assert bool(check_loops(kernel, schedule(parse_kernel(text.format(changed)), Machine()))) is not right


def test_computed_values_lie_between_the_literals_that_they_are_compared_with() -> None:
    text = """kernel(f32[5], f32[9], f32[5,9]) -> (f32[5]) {{
      j<9: r0[i] += select(p0[i]*p1[j] >= (-0.5) and p0[i]*p1[j] <= 2.0, p2[i,j]{}, 0.0)
    }}"""
    kernel = parse_kernel(text.format(""))
    for changed, right in (("", True), ("*2.0", False)):
        assert bool(check_loops(kernel, schedule(parse_kernel(text.format(changed)), Machine()))) is not right


MAXIMUM = "kernel(f32[1,1000]) -> (f32[1]) {{ j<{}: r0[i] max= p0[i,j] }}"
CLIPPED = """kernel(f32[1,9], f32[9]) -> (f32[1]) local (f32[1]) {{
  j<{}: t0[i] += p0[i,j]*p1[j]
  r0[i] = min(max(t0[i], 0.0), 6.0)
}}"""
ROWS = "kernel(f32[1,9], f32[9]) -> (f32[1]) {{ r0[i] = {} }}"
CHOSEN = """kernel(f32[9,1]) -> (i64[1]) local (f32[1]) {{
  j<{}: t0[i] max= p0[j,i]
  j<9: r0[i] min= select(p0[j,i] == t0[i] or isnan(p0[j,i]), i64(j), 8)
}}"""


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [(MAXIMUM, 1000, 999), (CLIPPED, 9, 8), (CHOSEN, 9, 7)]
    + [(ROWS, "max(p0[i,0], 0.0)", other) for other in ("p0[i,0]", "min(p0[i,0], 0.0)", "max(p0[i,1], 0.0)")],
)
def test_a_term_of_the_only_maximum_shows(text: str, right: str | int, wrong: str | int) -> None:
    """By random numbers in their order it would for one in a thousand."""
    kernel, other = (parse_kernel(text.format(x)) for x in (right, wrong))
    assert not check_loops(kernel, schedule(kernel, Machine()))
    for seed in range(5):
        assert check_loops(kernel, schedule(other, Machine()), seed)


def no_draws(kernel: Kernel, program: LoopProgram, most: int) -> int:
    return 0


def test_a_number_that_decides_few_elements_of_a_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a vector of 4, two are elements of the result, and comparisons are all that the product is for.

    The true order shows it nearly always; here only the arithmetic in which each number that is compared shows.
    """
    monkeypatch.setattr(check, "draws", no_draws)
    kernel = parse_kernel("""kernel(f32[6,12], f32[6,2], f32[12,2], f32[12,2]) -> (f32[12,2]) local (f32[12,2]) {
      k<6: t0[i,j] += p0[k,i]*p1[k,j]
      r0[i,j] = select(t0[i,j] < p2[i,j], 0.0, p3[i,j]*select(t0[i,j] == p2[i,j], 0.5, 1.0))
    }""")
    text = print_loops(schedule(kernel, Machine(16, 16)))
    assert not check_loops(kernel, parse_loops(text))
    assert "f32x4 = p0[69]" in text
    wrong = parse_loops(text.replace("f32x4 = p0[69]", "f32x4 = p0[70]"))
    assert all(check_loops(kernel, wrong, seed) for seed in range(8))


def test_a_maximum_of_literals_is_one_of_numbers() -> None:
    kernel = parse_kernel("kernel(f32[6]) -> (f32[6]) { r0[i] = select(max(p0[i]*0.0, 0.0) > 0.0, p0[i], 1.0) }")
    condition = Apply("gt", (Apply("max", (Const(0.0), Const(0.0))), Const(0.0)))
    body = loop(ROW, Store("r0", ROW, Apply("select", (condition, p(ROW + 0), Const(1.0)))))
    assert not check_loops(kernel, LoopProgram(kernel.params, kernel.results, (), (body,)))


@pytest.mark.parametrize(("low", "stop"), [(0, 3), (0, 1), (-1, 2), (1, 2)])
def test_a_guard_that_holds_subscripts_within_a_tensor(low: int, stop: int) -> None:
    kernel = parse_kernel("kernel(i64[17]) -> (i64[2]) { i<17: r0[p0[i]] += 1 if p0[i] >= 0 and p0[i] < 2 }")
    assert not check_loops(kernel, schedule(kernel, Machine()))
    i = Axis("i", 17)
    for wrong in ((low, stop), (0, 2)):
        within = Apply("and", (Apply("ge", (p(i), Const(wrong[0]))), Apply("lt", (p(i), Const(wrong[1])))))
        counted = Store("r0", p(i), Load("r0", (p(i),)) + 1)
        zero = loop(Axis("z", 2), Store("r0", Axis("z", 2), Const(0)))
        loops = LoopProgram(kernel.params, kernel.results, (), (zero, loop(i, If(within, (counted,), ()))))
        assert bool(check_loops(kernel, loops)) == (wrong != (0, 2))


def test_a_term_of_a_maximum_that_is_taken_twice() -> None:
    kernel = parse_kernel(MAXIMUM.format(1000))
    j, again = Axis("j", 1000), Axis("j", 500)
    body = (Let(S, Const(-math.inf)), *(loop(a, Set(S, Apply("max", (S, p(a + 0))))) for a in (j, again)))
    loops = LoopProgram(kernel.params, kernel.results, (), (*body, Store("r0", Const(0), S)))
    (finding,) = check_loops(kernel, loops)
    assert "r0[0] is not the kernel's, nor are 0 more: a term of a maximum or minimum is" in finding.problem


def test_loops_of_another_kernel() -> None:
    other = parse_kernel("kernel(f32[6,4], f32[2]) -> (f32[3]) { j<4: r0[i] += p0[i,j] }")
    problems = [f.problem for f in check_loops(other, program(loop(ROW, COPY, *ADD)))]
    assert any("parameters of the loops are p0, of the kernel p0, p1" in text for text in problems)
    assert any("result r0 is" in text for text in problems)


def marked(*body: Stmt, own: tuple[str, ...] = ()) -> For:
    return For(ROW, Const(0), Const(6), body, parallel=True, own=own)


def test_loops_marked_parallel() -> None:
    assert not found(marked(COPY, *ADD, own=("t",)))
    assert "iterations marked parallel share t[0]: iteration 0 writes what iteration 5 writes" in found(
        marked(COPY, *ADD)
    )
    shared = (Let(S, Const(0.0)), marked(loop(COLUMN, Set(S, S + p(ROW * 4 + COLUMN)))), loop(ROW, Store("r0", ROW, S)))
    assert "iterations marked parallel share the variable s" in found(*shared)
    before = (loop(COLUMN, Store("t", COLUMN, Const(0.0))), marked(*ADD, own=("t",)))
    assert "t[0] is read before it is written" in found(*before)
    after = (marked(COPY, *ADD, own=("t",)), loop(ROW, *ADD))
    assert "t[0] is read before it is written" in found(*after)
    neighbours = marked(COPY, *ADD, Store("r0", Axis("i", 6) // 2, S), own=("t",))
    assert "iterations marked parallel share r0[" in found(neighbours)


def test_what_a_buffer_is_said_to_hold() -> None:
    kernel = parse_kernel("kernel(i64[6]) -> (i64[6]) { r0[i] = p0[i]+1 }")
    buffer = Buffer("t", Type(kernel.params[0].dtype, (6,)), True, below=3)
    body = (loop(ROW, Store("t", ROW, ROW + 0)), loop(ROW, Store("r0", ROW, p(ROW) + 1)))
    (finding,) = check_loops(kernel, LoopProgram(kernel.params, kernel.results, (buffer,), body))
    assert "t is said to hold less than 3, and gets 3" in finding.problem


PRODUCT = parse_kernel("kernel(f32[90,24], f32[24,70]) -> (f32[90,70]) { k<24: r0[i,j] += p0[i,k]*p1[k,j] }")
CACHES = Machine(32, 16, 2 << 10, 4 << 10)


def test_long_loops_are_run_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[bool] = []
    original = check.CheckedMachine.start

    def start(machine: check.CheckedMachine, body: Sequence[Stmt]) -> None:
        original(machine, body)
        ran.append(machine.marks.left_out)

    monkeypatch.setattr(check.CheckedMachine, "start", start)
    loops = schedule(PRODUCT, CACHES)
    assert not check_loops(PRODUCT, loops, most=2000)
    assert not check_loops(PRODUCT, loops)
    assert ran == [True, False]


def test_faults_in_what_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds, and that results are written whole, hold for every iteration."""
    i, j, k = Axis("i", 90), Axis("j", 70), Axis("k", 24)
    value = Load("p0", (i * 24 + k,)) * Load("p1", (k * 70 + j,))
    sums = (Let(S, Const(0.0)), loop(k, Set(S, S + value)), Store("r0", i * 70 + j, S))

    def problems(*body: Stmt) -> str:
        loops = LoopProgram(PRODUCT.params, PRODUCT.results, (), body)
        return "\n".join(map(str, check_loops(PRODUCT, loops, most=5000)))

    def rows(start: int, stop: int) -> For:
        return For(i, Const(start), Const(stop), (loop(j, *sums),))

    assert not problems(rows(0, 90))
    assert "r0[0,0] is not" in problems(For(i, Const(0), Const(90), (loop(j, sums[0], *sums[2:]),)))
    hole = For(i, Const(0), Const(89), (loop(j, *sums),))
    assert "r0[89,0] is never written" in problems(hole)
    far = Set(S, S + Load("p0", ((i * 24 + k) + ((i + 40) // 90) * 5000,)))
    assert "is outside of its 2160 elements" in problems(
        For(i, Const(0), Const(90), (loop(j, sums[0], loop(k, far), sums[2]),))
    )


def test_seeded_faults_are_rejected() -> None:
    """One of each kind; benchmarks/loop_faults.py tries ten thousand."""
    rng = random.Random(0)
    rejected: Counter[str] = Counter()
    for seed in range(100):
        for _, triple in triples(seed):
            if triple.is_open or sum(n.points for n in triple.kernel.nests) > 3000:
                continue
            loops = on_one_thread(triple)
            for kind in KINDS:
                fault = seeded(loops, rng, kind) if rejected[kind] < 1 else None
                if fault is not None and Oracle(triple.kernel, loops).changes(fault):
                    assert check_loops(triple.kernel, fault.program), f"seed {seed}: {fault.where}\n{triple}"
                    rejected[kind] += 1
        if min(rejected[kind] for kind in KINDS) >= 1:
            return
    raise AssertionError(rejected)


def test_a_fault_is_in_one_place_of_statements_that_are_one_object() -> None:
    twice = loop(ROW, loop(COLUMN, Store("r0", ROW, p(ROW))))
    for seed in range(8):
        fault = seeded(program(twice, twice), random.Random(seed), "a wrong parallel mark")
        assert fault is not None
        assert [isinstance(s, For) and s.parallel for s in walk_stmts(fault.program.body)].count(True) == 1


def test_a_change_that_means_nothing_is_no_fault() -> None:
    loops = schedule(PRODUCT, Machine())
    (first, *rest) = loops.body
    twice = replace(loops, body=(first, first, *rest))
    assert not Oracle(PRODUCT, loops).changes(Fault("", "", loops))
    assert Oracle(PRODUCT, loops).changes(Fault("", "", twice)) == bool(check_loops(PRODUCT, twice))


OPEN = """kernel(f32[n(1,9),5], i64[=n(1,9)]) -> (f32[n(1,9)]) {
  i<9 k<5: r0[i] += p0[i,k] if i < min(max(p1[], 1), 9)
}"""


# Sizes that nobody limits, of what callers pass and of what lies in the arena.
FREE = """kernel(f32[*,n(1,2147483647),5], i64[=n(1,2147483647)]) -> (f32[*,n(1,2147483647),2])
local (f32[n(1,2147483647)]) {
  k<5: t0[i] += p0[i*5+k] if i < min(max(p1[], 1), 2147483647)
  i<2147483647 j<2: r0[i*2+j] = t0[i] if i < min(max(p1[], 1), 2147483647)
}"""


@pytest.mark.parametrize("vector_bytes", [0, 32])
@pytest.mark.parametrize("text", [OPEN, FREE])
def test_open_sizes(text: str, vector_bytes: int) -> None:
    kernel = parse_kernel(text)
    loops = schedule(kernel, Machine(vector_bytes, 16))
    assert not check_loops(kernel, loops)
    fault = seeded(loops, random.Random(1), "a bound off by one")
    assert fault is not None
    (finding, *_) = check_loops(kernel, fault.program)
    assert finding.sizes["n"] in range(1, 100)
