"""When writers fill a tensor, so that its start need not be stored."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.types import Type, f32
from dlc.kernel.expr import Axis, Const, Expr, axes_in
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.extents import limited
from dlc.kernel.schedules.start import Box, needs_fill, tile
from dlc.kernel.text import parse_kernel


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Box], tuple[int, ...]]:
    """A tensor, and boxes in it and a little beyond it: a division of it, some of whose boxes have changed."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=0, max_size=3)))
    boxes: list[Box] = [tuple((0, d) for d in shape)]
    for _ in range(draw(st.integers(0, 5)) if shape else 0):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        d = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(*box[d]))
        boxes += [(*box[:d], (box[d][0], at), *box[d + 1 :]), (*box[:d], (at, box[d][1]), *box[d + 1 :])]
    for _ in range(draw(st.integers(0, 2))):
        k = draw(st.integers(0, len(boxes) - 1))
        if boxes[k]:
            d = draw(st.integers(0, len(shape) - 1))
            start = draw(st.integers(-1, 4))
            boxes[k] = (*boxes[k][:d], (start, start + draw(st.integers(0, 4))), *boxes[k][d + 1 :])
    return draw(st.permutations(boxes)), shape


@given(cases())
def test_boxes_tile_a_tensor_when_each_element_is_in_one(case: tuple[list[Box], tuple[int, ...]]) -> None:
    boxes, shape = case
    counts = dict.fromkeys(product(*(range(-1, 9) for _ in shape)), 0)
    for box in boxes:
        for p in product(*(range(*side) for side in box)):
            counts[p] += 1
    inside = {p for p in counts if all(0 <= x < d for x, d in zip(p, shape, strict=True))}
    assert tile(boxes, shape) == all(n == (p in inside) for p, n in counts.items())


@pytest.mark.parametrize("axis", [0, 1])
def test_many_boxes_are_compared_in_time_proportional_to_their_number(axis: int) -> None:
    """Each pair of 60,000 would be 1,800,000,000 comparisons."""
    n = 60_000
    shape = (3, n) if axis else (n, 3)
    boxes: list[Box] = [((0, 3), (k, k + 1)) if axis else ((k, k + 1), (0, 3)) for k in range(n)]
    assert math.prod(shape) == 3 * n
    assert tile(boxes, shape)
    assert not tile(boxes[:-1], shape)


def writers(shape: tuple[int, ...], *indices: tuple[Expr, ...]) -> Kernel:
    """A local of this shape, written at each of the subscripts and then read."""
    t, r = Param("t", Type(f32, shape)), Param("r", Type(f32, shape))
    axes = [tuple(a for a in (Axis("i", 4), Axis("j", 3), Axis("k", 8)) if a in axes_in(*index)) for index in indices]
    nests = [Nest("t", index, over, Const(1.0)) for index, over in zip(indices, axes, strict=True)]
    whole = tuple(Axis(f"a{d}", n) for d, n in enumerate(shape))
    return Kernel((), (r,), (t,), (*nests, Nest("r", whole, whole, t[whole])))


FOUR, THREE, EIGHT = Axis("i", 4), Axis("j", 3), Axis("k", 8)


@pytest.mark.parametrize(
    ("shape", "indices", "fill"),
    [
        ((8,), [(FOUR * 2,), (FOUR * 2 + 1,)], False),
        ((8,), [(FOUR * 2,)], True),
        ((8,), [(FOUR * 2,), (FOUR * 2,)], True),
        ((9,), [(FOUR * 2,), (FOUR * 2 + 1,)], True),
        ((8, 3), [(FOUR * 2, THREE), (FOUR * 2 + 1, THREE)], False),
        ((8, 6), [(FOUR * 2, THREE), (FOUR * 2 + 1, THREE), (EIGHT, THREE + 3)], False),
        ((8, 6), [(FOUR * 2, THREE), (FOUR * 2 + 1, THREE + 3), (EIGHT, THREE + 3)], True),
        ((8, 6), [(FOUR * 2 + a, THREE * 2 + b) for a in (0, 1) for b in (0, 1)], False),
        ((8, 6), [(FOUR * 2 + a, THREE * 2 + b) for a in (0, 1) for b in (0, 0)], True),
        ((12,), [(FOUR * 3,), (FOUR * 3 + 1,), (FOUR * 3 + 2,)], False),
        ((9,), [(THREE * 3,), (THREE * 3 + 1,), (FOUR * 2 + 1,)], True),
    ],
)
def test_elements_written_in_steps(shape: tuple[int, ...], indices: list[tuple[Expr, ...]], fill: bool) -> None:
    assert needs_fill(writers(shape, *indices), "t") == fill


N, M = "min(max(p0[], 1), 9)", "min(max(p1[], 0), 6)"
FIRST, SECOND = f"i<9: t0[i] = 1.0 if i < {N}", f"i<6: t0[i+{N}] = 2.0 if i < {M}"


@pytest.mark.parametrize(
    ("dim", "nests", "fill"),
    [
        ("n(1,9)", ["i<9: t0[i] = 1.0"], False),
        ("n(1,9)", [FIRST], False),
        ("n(1,9)", [f"i<9: t0[i] = 1.0 if i < {N}+{M}"], False),  # where the dimension ends is sooner
        ("n(1,9)", [f"i<9: t0[i] = 1.0 if i < {N}-1"], True),  # the dimension goes on behind the guard
        ("n(1,9)", [f"i<9: t0[i] = 1.0 if i < {N} and i < {M}"], True),
        ("n(1,9)+1", [FIRST, f"t0[{N}] = 2.0"], False),
        ("n(1,9)+1", [FIRST, f"t0[{N}-1] = 2.0"], True),
        ("n(1,9)+1", ["t0[0] = 2.0", f"i<9: t0[i+1] = 1.0 if i < {N}"], False),
        ("m(0,6)+n(1,9)", [FIRST, SECOND], False),
        ("m(0,6)+n(1,9)", [SECOND, FIRST], False),
        ("m(0,6)+n(1,9)", [FIRST], True),
        ("m(0,6)+n(1,9)", [FIRST, FIRST], True),
        ("m(0,6)+n(1,9)", [FIRST, f"i<6: t0[i+{M}] = 2.0 if i < {M}"], True),  # as many elements, not the same ones
        ("m(0,6)+n(1,9)", [FIRST, f"i<6: t0[i+{N}] = 2.0 if i < {M}-1"], True),
        ("m(0,6)+n(1,9)", [FIRST, f"i<5: t0[i+{N}+1] = 2.0 if i < {M}-1"], True),
        ("m(0,6)+n(1,9)", [FIRST, f"i<6: t0[i+{N}] = 2.0 if i < {M} and i % 2 == 0"], True),
        ("m(0,6)+n(1,9)", [FIRST, f"i<6: t0[i+min(max(p2[], 0), 9)] = 2.0 if i < {M}"], True),
        ("2*n(1,9)", [f"i<9: t0[2*i] = 1.0 if i < {N}", f"i<9: t0[2*i+1] = 1.0 if i < {N}"], False),
        ("2*n(1,9)", [f"i<9: t0[i] = 1.0 if i < {N}", f"i<9: t0[i+{N}] = 1.0 if i < {N}"], False),
        ("2*n(1,9)", [f"i<9: t0[i] = 1.0 if i < {N}", f"i<9: t0[i+9] = 1.0 if i < {N}"], True),
    ],
)
def test_parts_that_meet_at_sizes(dim: str, nests: list[str], fill: bool) -> None:
    head = f"kernel(i64[=n(1,9)], i64[=m(0,6)], i64[]) -> (f32[{dim}]) local (f32[{dim}])"
    kernel = parse_kernel("\n".join([f"{head} {{", *nests, "r0[i] = t0[i]", "}"]))
    small, _ = limited(kernel)
    assert needs_fill(small, "t0") == fill
