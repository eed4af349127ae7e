"""Nests that compare all pairs to rank elements become loops over a heap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import Array, DType, Type, f32, i32, u8
from dlc.graph.op import Op
from dlc.graph.structure import Input
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops import evaluate as loop_evaluate
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.memory import Batch
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.loops.program import Stmt
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.ranking import SMALL, rankings
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel
from dlc.ops.order import FirstOf, Rank
from dlc.passes.lower import lower_op

MACHINES = (Machine(), Machine(64, 32), Machine(ordered=True))


def _drawn(dtype: DType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Few different values, so that many are equal; of floats, infinities and NaN too."""
    values = np.random.default_rng(seed).integers(0, 9, shape).astype(dtype.numpy)
    if dtype is f32:
        values[values == 1] = np.nan
        values[values == 2] = np.inf
        values[values == 3] = -np.inf
    return values


def _check(op: Op, x: np.ndarray, machine: Machine) -> Kernel:
    kernel = lower_op(op).body
    (want,) = run_kernel(kernel, (x,))
    (got,) = run_loops(schedule(kernel, machine), (x,))
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(want, op.evaluate(x))
    return kernel


@settings(max_examples=6)
@given(
    st.sampled_from([f32, i32, u8]),
    st.integers(SMALL - 1, SMALL + 24),
    st.integers(1, 2),
    st.integers(0, 1),
    st.booleans(),
    st.integers(0, 99),
    st.sampled_from(MACHINES),
    st.data(),
)
def test_the_heap_gives_the_order_of_the_definition(
    dtype: DType, n: int, rows: int, axis: int, largest: bool, seed: int, machine: Machine, data: st.DataObject
) -> None:
    shape = (n, rows) if axis == 0 else (rows, n)
    x = Input("x", Type(dtype, shape))
    count = data.draw(st.sampled_from([0, 1, 2, n // 2, n - 1, n]))
    for op in (Rank(x, axis=axis, largest=largest), FirstOf(x, axis=axis, count=count, largest=largest)):
        kernel = _check(op, _drawn(dtype, shape, seed), machine)
        assert [r.reader is not None for r in rankings(kernel).values()] == [isinstance(op, FirstOf)] * (n > SMALL)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_checker_of_loops_accepts_it(machine: Machine) -> None:
    """A heap needs an order in which less than something less is less, which random bits of comparisons do not give."""
    x = Input("x", Type(f32, (2, SMALL + 1)))
    for op in (Rank(x, axis=1), FirstOf(x, axis=1, count=3)):
        kernel = lower_op(op).body
        assert check_loops(kernel, schedule(kernel, machine)) == ()


def test_a_wrong_mark_on_a_loop_that_never_runs_is_found() -> None:
    kernel = lower_op(Rank(Input("x", Type(f32, (2, SMALL + 1))), axis=1)).body
    text = print_loops(schedule(kernel, Machine()))
    assert text.count("for h4 in 0..6:") == 3
    before, dead = text.split("for h2 in ")
    marked = f"{before}for h2 in {dead.replace('for h4 in 0..6:', 'for h4 in 0..6 parallel:', 1)}"
    (found,) = check_loops(kernel, parse_loops(marked))
    assert found.problem == "iterations marked parallel share the variable hhole"
    assert found.statement == "for h4 in 0..6 parallel:"
    assert found.path[:2] == ("for i0 in 0..2:", f"for h2 in {SMALL + 1}..{SMALL + 1}:")


def _never(*_: object) -> bool:
    """Every iteration by itself: statements that run for several at once would count once."""
    return False


def _steps(count: int, n: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Statements that run for the first `count` of n elements."""
    steps = 0
    once = loop_evaluate.Machine.step

    def counted(self: loop_evaluate.Machine, s: Stmt, batch: Batch, active: Array | None) -> None:
        nonlocal steps
        steps += 1
        once(self, s, batch, active)

    kernel = lower_op(FirstOf(Input("x", Type(f32, (n,))), count=count)).body
    with monkeypatch.context() as patch:
        patch.setattr(loop_evaluate.Machine, "step", counted)
        patch.setattr(loop_evaluate.Machine, "_together", _never)
        run_loops(schedule(kernel, Machine()), (_drawn(f32, (n,), 0),))
    return steps


def test_steps_grow_as_n_log_n_and_the_first_few_cost_one_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = _steps(100, 100, monkeypatch), _steps(400, 400, monkeypatch)
    assert large < 4 * 1.4 * small
    assert _steps(3, 400, monkeypatch) < 6 * 400


NOT_AN_ORDER = """kernel(f32[50]) -> (i64[50]) {
  j<50: r0[i] += i64(p0[j] > p0[i] or not(p0[i] > p0[j]) and j-i < 0)
}"""
ANOTHER_KEY = """kernel(i32[50], i32[50]) -> (i64[50]) {
  j<50: r0[i] += i64(p0[j] > p1[i] or not(p0[i] > p1[j]) and j-i < 0)
}"""
BACKWARD = """kernel(i32[50]) -> (i64[50]) {
  j<50: r0[i] += i64(p0[j] > p0[i] or not(p0[i] > p0[j]) and i-j < 0)
}"""


@pytest.mark.parametrize("text", [NOT_AN_ORDER, ANOTHER_KEY, BACKWARD], ids=["nan", "keys", "backward"])
def test_what_is_no_order_is_counted(text: str) -> None:
    kernel = parse_kernel(text)
    assert not rankings(kernel)
    args = [_drawn(p.dtype, p.shape, k) for k, p in enumerate(kernel.params)]
    for machine in MACHINES:
        (got,) = run_loops(schedule(kernel, machine), args)
        np.testing.assert_array_equal(got, run_kernel(kernel, args)[0])


READ_TWICE = """kernel(i32[50]) -> (i64[50], i64[50]) local (i64[50]) {
  j<50: t0[i] += i64(p0[j] > p0[i] or not(p0[i] > p0[j]) and j-i < 0)
  i<50: r0[t0[i]] = i64(i) if t0[i] >= 0 and t0[i] < 7
  r1[i] = t0[i]*2
}"""
ANOTHER_GUARD = """kernel(i32[50]) -> (i64[50]) local (i64[50]) {
  j<50: t0[i] += i64(p0[j] > p0[i] or not(p0[i] > p0[j]) and j-i < 0)
  i<50: r0[t0[i]] = i64(i) if t0[i] > 2
}"""
A_VALUE = """kernel(i32[3,50], f32[3,50]) -> (f32[3,9]) local (i64[3,50]) {
  k<50: t0[i,j] += i64(p0[i,j] > p0[i,k] or not(p0[i,k] > p0[i,j]) and k-j < 0)
  i<3 j<50: r0[i,t0[i,j]] = p1[i,j]*2.0 if t0[i,j] < 9
}"""


@pytest.mark.parametrize("text, selects", [(READ_TWICE, False), (ANOTHER_GUARD, False), (A_VALUE, True)])
def test_only_a_count_that_selects_is_not_made(text: str, selects: bool) -> None:
    kernel = parse_kernel(text)
    (ranking,) = rankings(kernel).values()
    assert (ranking.reader is not None) == selects
    args = [
        _drawn(p.dtype, p.shape, k) if p.dtype is i32 else np.ones(p.shape, np.float32)
        for k, p in enumerate(kernel.params)
    ]
    for machine in MACHINES:
        for got, want in zip(run_loops(schedule(kernel, machine), args), run_kernel(kernel, args), strict=True):
            np.testing.assert_array_equal(got, want)
