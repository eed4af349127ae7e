"""The boxes that nests write, and which nests may change places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from dlc.base.types import Type, i64
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, Const, Expr, apply, both
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param, Reduce
from dlc.kernel.schedules.box import commute, written_box
from dlc.kernel.text import parse_kernel

EXTENT = 5
X = Param("x", Type(i64, (EXTENT,)))
TENSORS = (Param("y", Type(i64, (EXTENT,))), Param("z", Type(i64, (EXTENT,))))


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """A nest that writes a range of one of two tensors, or where data say, and may read both."""
    out = draw(st.sampled_from(TENSORS))
    axis = Axis("a", draw(st.integers(1, EXTENT)))
    low = EXTENT - axis.extent
    subscript = axis + draw(st.integers(0, low))
    index: Expr = draw(
        st.sampled_from(
            [
                subscript,
                Const(draw(st.integers(0, EXTENT - 1))),
                apply("min", apply("max", X[axis], Const(0)), Const(EXTENT - 1)),
            ]
        )
    )
    read = draw(st.sampled_from([X[axis], Const(3), *(t[axis] for t in TENSORS)]))
    reduce: Reduce | None = draw(st.sampled_from([None, None, None, "add", "max"]))
    if reduce is None and axis not in (index, *getattr(index, "args", ())) and axis.extent > 1:
        reduce = "add"  # an assignment writes each element once
    bounds = [axis >= draw(st.integers(0, 2))] if draw(st.booleans()) else []
    where = both(None, *bounds) if bounds else None
    return Nest(out.name, (index,), (axis,), read, reduce, where)


@settings(max_examples=400, deadline=None)
@given(nests(), nests(), st.integers(0, 1 << 30))
def test_nests_that_commute_compute_the_same_in_either_order(a: Nest, b: Nest, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-1, EXTENT + 1, EXTENT)
    before = tuple(Nest(t.name, (Axis("s", EXTENT),), (Axis("s", EXTENT),), Const(7)) for t in TENSORS)
    both_ways = [Kernel.canonical((X,), TENSORS, (*before, *pair)) for pair in ((a, b), (b, a))]
    if any(kernel_problems(k) for k in both_ways):
        return
    event(f"commute: {commute(a, b)}, one tensor: {a.out == b.out}")
    assert commute(a, b) == commute(b, a)
    if commute(a, b):
        first, second = (run_kernel(k, [x]) for k in both_ways)
        assert all(np.array_equal(p, q) for p, q in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("second", "free"),
    [
        ("i<2: r0[i+2] = p0[i]", True),
        ("i<2: r0[i+1] = p0[i]", False),
        ("i<4: r0[i] = p0[i] if i >= 2", True),
        ("i<4: r0[i] = p0[i] if i >= 1", False),
        ("r0[3] = p0[0]", True),
        ("r0[1] = p0[0]", False),
        ("i<2: r0[i*2] = p0[i]", False),
        ("i<2: r0[i+2] += p0[i]", False),
    ],
)
def test_assignments_to_one_tensor_commute_where_their_boxes_are_disjoint(second: str, free: bool) -> None:
    kernel = parse_kernel(f"kernel(f32[4]) -> (f32[4]) {{ i<2: r0[i] = p0[i] {second} }}")
    assert commute(*kernel.nests) is free


def test_the_box_of_a_nest() -> None:
    kernel = parse_kernel("kernel(f32[4,4]) -> (f32[6,5]) { i<4 j<4: r0[j+1,i] = p0[i,j] if i >= 1 and j < 2 }")
    assert written_box(kernel.nests[0]) == ((1, 3), (1, 4))
