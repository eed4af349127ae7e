"""`tidy` keeps what nests compute, merges what can share a loop, and leaves constant guards in no loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import Type, f32
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, Const, Expr, both
from dlc.kernel.fusion.tidy import MOST_BOXES, tidy
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import For, If, walk_stmts
from dlc.kernel.nest import Nest, Param
from dlc.kernel.roles import product
from dlc.kernel.schedules.count import iterations
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples

BLUR = """kernel(p0: f32[8,8]) -> (r0: f32[10,8]) {
  r0[i,j] += p0[i,j]/3.0 if i < 8
  r0[i,j] += p0[i-1,j]/3.0 if i >= 1 and i < 9
  r0[i,j] += p0[i-2,j]/3.0 if i >= 2
}"""


def tidied(kernel: Kernel) -> Kernel:
    """The kernel with tidy nests, checked against the original and against its loops."""
    new = Kernel.canonical(kernel.params, kernel.results, tidy(kernel.nests, kernel.tensors), kernel.locals)
    args = samples(kernel)
    want = run_kernel(kernel, args)
    for got in (run_kernel(new, args), run_loops(schedule(new, Machine()), args)):
        assert all(close(g, w) for g, w in zip(got, want, strict=True)), new
    return new


def count(kernel: Kernel) -> int:
    return sum(iterations(n) for n in kernel.nests)


def test_a_blur_is_prologue_core_and_epilogue() -> None:
    kernel = tidied(parse_kernel(BLUR))
    assert [n.reduce for n in kernel.nests] == [None] * 5
    assert count(kernel) == 80
    core = max(kernel.nests, key=iterations)
    assert (
        core
        == parse_kernel("""kernel(p0: f32[8,8]) -> (r0: f32[10,8]) {
      r0[i,j] = p0[i,j]/3.0+p0[i-1,j]/3.0+p0[i-2,j]/3.0 if i >= 2 and i < 8
    }""").nests[0]
    )


def test_no_loop_of_a_blur_tests_anything_or_sets_zero() -> None:
    program = schedule(tidied(parse_kernel(BLUR)), Machine())
    statements = list(walk_stmts(program.body))
    assert not [s for s in statements if isinstance(s, If)]
    bounds = [(s.start, s.stop) for s in program.body if isinstance(s, For)]
    assert bounds == [(Const(8 * a), Const(8 * b)) for a, b in ((0, 1), (1, 2), (2, 8), (8, 9), (9, 10))]


def test_equal_spaces_are_one_nest() -> None:
    kernel = tidied(parse_kernel("kernel(p0: f32[10,10]) -> (r0: f32[10,10]) {\n"
                                 " r0[i,j] += p0[i,j]\n r0[i,j] += p0[j,i]\n}"))  # fmt: skip
    assert count(kernel) == 100
    assert [n.reduce for n in kernel.nests] == [None]


@pytest.mark.parametrize(
    ("bodies", "text"),
    [
        (("p0[i]*p1[i]", "p1[i]*p0[i]"), "2.0*(p0[i]*p1[i])"),
        (("p0[i]*p1[i]", "2.0*p0[i]*p1[i]", "p0[i]"), "3.0*(p0[i]*p1[i])+p0[i]"),
        (("p0[i]", "neg(p1[i])"), "p0[i]-p1[i]"),
        (("p0[i]*p1[i]", "p0[i]"), "p0[i]*p1[i]+p0[i]"),
        (("p0[i]", "neg(p0[i])"), "p0[i]-p0[i]"),
        (("1.0", "2"), "3.0"),
        (("p0[i]/3.0", "p0[i]/3.0"), "2.0*(p0[i]/3.0)"),
    ],
)
def test_equal_products_are_counted(bodies: tuple[str, ...], text: str) -> None:
    head = "kernel(p0: f32[9], p1: f32[9]) -> (r0: f32[9]) {"
    lines = [f" r0[i] += {b}" for b in bodies]
    kernel = parse_kernel("\n".join([head, *lines, "}"]))
    assert tidied(kernel).nests == parse_kernel(f"{head}\n r0[i] = {text}\n}}").nests


def test_integers_are_counted_in_integers() -> None:
    head = "kernel(p0: i32[9]) -> (r0: i32[9]) {"
    kernel = tidied(parse_kernel(f"{head}\n r0[i] += p0[i]\n r0[i] += p0[i]\n}}"))
    assert kernel.nests == parse_kernel(f"{head}\n r0[i] = 2*p0[i]\n}}").nests


def test_two_contractions_stay_two() -> None:
    kernel = tidied(
        parse_kernel("""kernel(p0: f32[6,6], p1: f32[6,6]) -> (r0: f32[6,6]) {
      k<6: r0[i,j] += p0[i,k]*p1[k,j]
      k<6: r0[i,j] += p0[k,j]*p1[k,i]
    }""")
    )
    assert [product(n) is not None for n in kernel.nests] == [True, True]


def test_one_product_twice_is_one_loop() -> None:
    kernel = tidied(
        parse_kernel("""kernel(p0: f32[6,6], p1: f32[6,6]) -> (r0: f32[6,6]) {
      k<6: r0[i,j] += p0[i,k]*p1[k,j]
      m<6: r0[i,j] += p1[m,j]*p0[i,m]
    }""")
    )
    assert count(kernel) == 216


def test_sums_without_products_share_their_loops() -> None:
    kernel = tidied(
        parse_kernel("""kernel(p0: f32[6,7], p1: f32[6,7]) -> (r0: f32[6]) {
      k<7: r0[i] += p0[i,k] if i+k >= 3
      k<7: r0[i] += exp(p1[i,k]) if i+k >= 3
      k<7: r0[i] += p1[i,k] if i+k >= 4
    }""")
    )
    assert len(kernel.nests) == 2


@pytest.mark.parametrize(
    "between", ["r1[i] = r0[i]", "r0[i] = p0[i]", "m<9: r0[i] max= p0[m]"], ids=["read", "assigned", "maximum"]
)
def test_what_happens_between_two_sums_stays_between(between: str) -> None:
    kernel = tidied(
        parse_kernel(f"""kernel(p0: f32[9]) -> (r0: f32[9], r1: f32[9]) {{
      r0[i] += p0[i]
      {between}
      r0[i] += p0[8-i]
    }}""")
    )
    assert len(kernel.nests) == 3


def test_a_value_is_not_read_before_it_is_there() -> None:
    tidied(
        parse_kernel("""kernel(p0: f32[9]) -> (r0: f32[9]) local (t0: f32[9]) {
      r0[i] += p0[i]
      t0[i] = exp(p0[i])
      r0[i] += t0[i]
    }""")
    )


def test_a_space_in_too_many_boxes_is_left() -> None:
    n = 3 * MOST_BOXES + 1
    lines = [f" r0[i] += p0[i-{k}] if i >= {k}" for k in range(1, n)]
    kernel = parse_kernel("\n".join([f"kernel(p0: f32[{n}]) -> (r0: f32[{n}]) {{", *lines, "}"]))
    assert len(tidied(kernel).nests) == n - 1


def test_a_nest_that_never_runs_is_gone() -> None:
    kernel = tidied(parse_kernel("kernel(p0: f32[4]) -> (r0: f32[4]) {\n r0[i] += p0[i] if i >= 4\n}"))
    assert kernel.nests == ()


def test_gradients_in_equal_boxes_share_their_loops() -> None:
    kernel = tidied(
        parse_kernel("""kernel(p0: f32[8], p1: f32[10], p2: f32[10]) -> (r0: f32[10], r1: f32[10]) {
      r0[i] += p0[i]*p1[i] if i < 8
      r0[i] += p0[i-2]*p1[i] if i >= 2
      r1[i] += p0[i]*p2[i] if i < 8
      r1[i] += p0[i-2]*p2[i] if i >= 2
    }""")
    )
    assert [n.out for n in kernel.nests] == ["r0", "r1"] * 3
    assert [type(s) for s in schedule(kernel, Machine()).body] == [For] * 3


def test_a_thousand_shifts_take_no_time_and_no_depth() -> None:
    axis, p = Axis("i", 4000), Param("p", Type(f32, (5000,)))
    nests = [Nest("y", (axis,), (axis,), p[axis + k], "add") for k in range(1000)]
    y = Param("y", Type(f32, (4000,)))
    new = tidy(nests, {"p": p, "y": y})
    assert len(new) <= 3
    values = np.arange(5000, dtype=np.float32) % 7
    (got,) = run_kernel(Kernel.canonical((p,), (y,), new), [values])
    np.testing.assert_array_equal(got, np.convolve(values, np.ones(1000, np.float32), "valid")[:4000])


@st.composite
def sums(draw: st.DrawFn) -> Kernel:
    """A tensor written by guarded sums, some reduced, some between uses of it."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=2)))
    x, y, z = (Param(n, Type(f32, shape)) for n in "xyz")
    nests: list[Nest] = []
    for _ in range(draw(st.integers(1, 5))):
        outer = [Axis(f"a{d}", e) for d, e in enumerate(shape)]
        index: list[Expr] = []
        guard: Expr | None = None
        for a in outer:
            shift = draw(st.integers(-2, 2))
            index.append(a + shift)
            guard = both(guard, both(a + shift >= 0, a + shift < a.extent))
        if draw(st.booleans()):
            guard = both(guard, outer[0] < draw(st.integers(0, 6)))
        out, source = draw(st.sampled_from([("y", x), ("y", x), ("y", x), ("z", x), ("z", y), ("y", z)]))
        reduced = draw(st.sampled_from([(), (), (), (Axis("k", 3),)]))
        nests.append(Nest(out, tuple(outer), (*outer, *reduced), source[tuple(index)] * 1.5, "add", guard))
    return Kernel.canonical((x,), (y, z), tuple(nests))


@settings(max_examples=80, deadline=None)
@given(sums())
def test_any_sums(kernel: Kernel) -> None:
    tidied(kernel)
