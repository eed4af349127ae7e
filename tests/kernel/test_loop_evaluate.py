"""The evaluator of loops refuses what C leaves undefined; iterations that depend on others run in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dlc.base.types import Type, f32, i32
from dlc.kernel.expr import Axis, Const, Expr, Load, apply, select
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.memory import LoopFault
from dlc.kernel.loops.program import (
    Block,
    Buffer,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Local,
    LoopProgram,
    Prefetch,
    Set,
    Stmt,
    Store,
    loop,
)
from dlc.kernel.nest import Param

N = 12
ALONG, SHORT = Axis("i", N), Axis("j", 5)
X = Param("x", Type(f32, (N,)))
Y = Param("y", Type(f32, (N,)))
VALUES = np.arange(1, N + 1, dtype=np.float32)


def x(at: Expr | int) -> Load:
    return Load("x", (apply("add", at, 0),))


def y(at: Expr | int) -> Load:
    return Load("y", (apply("add", at, 0),))


def run(*body: Stmt, buffers: Sequence[Buffer] = (), result: Param = Y) -> Any:
    program = LoopProgram((X,), (result,), tuple(buffers), body)
    return run_loops(program, [VALUES])[0]


@pytest.mark.parametrize("at", [ALONG + 1, ALONG - 1])
def test_outside_of_a_tensor(at: Expr) -> None:
    with pytest.raises(LoopFault, match=r"x\[(12|-1)\] is outside of its 12 elements"):
        run(loop(ALONG, Store("y", ALONG, x(at))))
    with pytest.raises(LoopFault, match=r"y\[(12|-1)\] is outside"):
        run(loop(ALONG, Store("y", at, x(ALONG))))


def test_a_vector_that_is_partly_outside() -> None:
    v = Local("v", f32, 4)
    with pytest.raises(LoopFault, match=r"x\[12\] is outside"):
        run(Let(v, Lanes(x(9), 4)), Store("y", Const(0), v, 4))
    with pytest.raises(LoopFault, match=r"x\[12\] is outside"):
        run(loop(ALONG, Store("y", ALONG, x(ALONG))), Prefetch("x", Const(N)))


def test_what_nobody_wrote() -> None:
    buffer = Buffer("t", Type(f32, (N,)))
    with pytest.raises(LoopFault, match=r"t\[5\] is read before it is written"):
        run(
            For(ALONG, Const(0), Const(5), (Store("t", ALONG, x(ALONG)),)),
            loop(ALONG, Store("y", ALONG, Load("t", (ALONG,)))),
            buffers=[buffer],
        )
    with pytest.raises(LoopFault, match=r"y\[0\] is read before"):
        run(loop(ALONG, Store("y", ALONG, y(ALONG) + x(ALONG))))


def test_a_result_that_is_not_written_whole() -> None:
    with pytest.raises(LoopFault, match=r"y\[11\] is never written \(1 of 12\)"):
        run(For(ALONG, Const(0), Const(N - 1), (Store("y", ALONG, x(ALONG)),)))


def test_variables_end_with_their_block() -> None:
    a = Local("a", f32)
    with pytest.raises(LoopFault, match="a has no value"):
        run(Block((Let(a, x(0)),)), loop(ALONG, Store("y", ALONG, a)))
    with pytest.raises(LoopFault, match="a is not declared"):
        run(loop(ALONG, Set(a, x(ALONG)), Store("y", ALONG, x(ALONG))))
    with pytest.raises(LoopFault, match="j has no value"):
        run(loop(SHORT, Store("y", SHORT, x(SHORT))), loop(ALONG, Store("y", ALONG, x(SHORT))))


def test_iterations_that_see_what_others_wrote_run_in_order() -> None:
    chained = run(
        Store("y", Const(0), x(0)), For(ALONG, Const(1), Const(N), (Store("y", ALONG, y(ALONG - 1) + x(ALONG)),))
    )
    assert chained.tolist() == np.cumsum(VALUES).tolist()
    turned = run(
        loop(ALONG, Store("y", ALONG, x(ALONG))),
        For(ALONG, Const(0), Const(N - 1), (Store("y", ALONG, y(ALONG + 1)),)),
    )
    assert turned.tolist() == [*VALUES[1:].tolist(), VALUES[-1]]
    last = run(loop(ALONG, Store("y", ALONG, x(0))), loop(ALONG, Store("y", Const(3), x(ALONG))))
    assert last[3] == VALUES[-1]


def test_a_copy_that_iterations_share() -> None:
    t = Buffer("t", Type(f32, (1,)))
    got = run(loop(ALONG, Store("t", Const(0), x(ALONG)), Store("y", ALONG, Load("t", (Const(0),)))), buffers=[t])
    assert got.tolist() == VALUES.tolist()


def test_a_stale_copy_is_not_what_was_meant() -> None:
    """Only the first iteration fills the copy: the evaluator reads what memory holds, as C does."""
    t = Buffer("t", Type(f32, (1,)))
    fill = If(apply("lt", ALONG, 1), (Store("t", Const(0), x(ALONG)),))
    assert run(loop(ALONG, fill, Store("y", ALONG, Load("t", (Const(0),)))), buffers=[t]).tolist() == [1.0] * N


def test_sums_and_other_variables_across_iterations() -> None:
    a, b = Local("a", f32), Local("b", f32)
    total = run(Let(a, Const(0.5)), loop(ALONG, Set(a, a + x(ALONG))), loop(ALONG, Store("y", ALONG, a)))
    assert total.tolist() == [VALUES.sum() + 0.5] * N
    horner = run(Let(a, Const(0.0)), loop(ALONG, Set(a, x(ALONG) - a * 0.5)), loop(ALONG, Store("y", ALONG, a)))
    want = np.float32(0)
    for v in VALUES:
        want = v - want * np.float32(0.5)
    assert horner[0] == pytest.approx(want)
    seen = run(Let(a, Const(0.0)), loop(ALONG, Set(a, a + x(ALONG)), Let(b, a), Store("y", ALONG, b)))
    assert seen.tolist() == np.cumsum(VALUES).tolist()


def test_loops_of_different_lengths_inside_one() -> None:
    a = Local("a", f32)
    inner = For(SHORT, Const(0), apply("min", ALONG, 5), (Set(a, apply("max", a, x(SHORT))),))
    got = run(loop(ALONG, Let(a, Const(0.0)), inner, Store("y", ALONG, a)))
    assert got.tolist() == [0, 1, 2, 3, 4, *[5] * 7]


def test_only_the_chosen_branch_is_evaluated() -> None:
    got = run(loop(ALONG, Store("y", ALONG, select(ALONG >= 1, x(ALONG - 1), 0.0))))
    assert got.tolist() == [0, *VALUES[:-1].tolist()]
    inside = apply("and", ALONG < N - 1, x(ALONG + 1) > 5.0)
    got = run(loop(ALONG, If(inside, (Store("y", ALONG, Const(1.0)),), (Store("y", ALONG, Const(0.0)),))))
    assert got.tolist() == [*(VALUES[1:] > 5).tolist(), 0.0]


def test_lanes_fold_into_one() -> None:
    v = Local("v", f32, 4)
    got = run(
        For(ALONG, Const(0), Const(N), (Let(v, Lanes(x(ALONG), 4)), Store("y", ALONG, v * 2.0, 4)), 4),
        Let(v, Lanes(x(0), 4)),
        Store("y", Const(0), Fold("add", v)),
    )
    assert got.tolist() == [10.0, *(2 * VALUES[1:]).tolist()]


def test_integers_wrap() -> None:
    result = Param("y", Type(i32, (1,)))
    got = run(Store("y", Const(0), apply("add", apply("i32", Const(2**31 - 1)), 1)), result=result)
    assert got.tolist() == [-(2**31)]


def test_more_points_than_are_evaluated_at_once() -> None:
    count = (1 << 18) + 7
    k, big = Axis("k", count), Param("y", Type(i32, (count,)))
    a = Local("a", i32)
    got = run(
        Let(a, apply("i32", Const(0))),
        loop(k, Set(a, a + apply("i32", k % 3))),
        loop(k, Store("y", k, a)),
        result=big,
    )
    assert got[0] == got[-1] == sum(n % 3 for n in range(count))


def nested(at: Expr, *, inner: bool = True) -> Any:
    """y[at] = x[4 a + b] for a in 0..3 and b in 0..4, both loops parallel."""
    a, b = Axis("a", 3), Axis("b", 4)
    within = For(b, Const(0), Const(4), (Store("y", at, x(a * 4 + b)),), parallel=inner)
    return run(For(a, Const(0), Const(3), (If(apply("lt", a, 3), (within,)),), parallel=True))


def test_parallel_loops_inside_of_each_other() -> None:
    a, b = Axis("a", 3), Axis("b", 4)
    np.testing.assert_array_equal(nested(a * 4 + b), VALUES)
    for at in (b, a):  # iterations of the outer loop, or of the inner one, write the same elements
        for inner in (True, False):
            with pytest.raises(LoopFault):
                nested(at, inner=inner)
