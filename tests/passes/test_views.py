"""What a view is, against kernels that are run on 0, 1, 2, …"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.types import Type, f32, i64
from dlc.graph import Input, Op
from dlc.graph.structure import Call
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.simplify import simplify_nest
from dlc.passes.lower import composite_kernel
from dlc.passes.views import is_view
from tests.ops.samples import samples

SAMPLES = list(samples())


def moves_nothing(kernel: Kernel) -> bool:
    """By running the kernel on the numbers of the elements."""
    source, result = kernel.params[0], kernel.results[0]
    nest = kernel.nests[0]
    if len(kernel.nests) != 1 or source.dtype != result.dtype or source.type.size != result.type.size:
        return False
    if nest.reduce is not None or nest.where is not None or not isinstance(nest.body, Load):
        return False

    def numbered(p: Param) -> Param:
        return replace(p, type=Type(i64, p.shape))

    numbers = np.arange(source.type.size, dtype=np.int64).reshape(source.shape)
    (out,) = run_kernel(Kernel((numbered(source),), (numbered(result),), (), kernel.nests), (numbers,))
    return bool(np.array_equal(out.reshape(-1), numbers.reshape(-1)))


def called(kernel: Kernel) -> Op:
    return Call(kernel, tuple(Input(p.name, p.type) for p in kernel.params))


def subscripts(number: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
    """The subscripts of an element by its number in memory order."""
    found: list[Expr] = []
    for d in reversed(shape):
        found.append(number % d)
        number = number // d
    return tuple(reversed(found))


def numbered(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The number of an element in memory order."""
    total: Expr = Const(0)
    for i, d in zip(index, shape, strict=True):
        total = total * d + i
    return total


def moved(
    shapes: Sequence[Sequence[int]], orders: Sequence[Sequence[int]], simplified: bool, by_result: bool
) -> Kernel:
    """A copy through tensors of these shapes, each transposed before its elements get the next shape."""
    read = Param("p0", Type(f32, tuple(shapes[0])))
    out = [shapes[-1][d] for d in orders[-1]]
    axes = tuple(Axis(f"i{k}", d) for k, d in enumerate(out if by_result else shapes[-1]))
    index: tuple[Expr, ...] = axes
    if not by_result:  # subscripts of the store are then no plain axes
        index = tuple(axes[d] for d in orders[-1])
    at: tuple[Expr, ...] = axes
    if by_result:
        at = tuple(axes[orders[-1].index(d)] for d in range(len(axes)))
    for shape, order, after in reversed(list(zip(shapes, orders, shapes[1:], strict=False))):
        transposed = subscripts(numbered(at, after), [shape[d] for d in order])
        at = tuple(transposed[order.index(d)] for d in range(len(shape)))
    nest = Nest("r0", index, axes, Load("p0", at))
    return Kernel((read,), (Param("r0", Type(f32, tuple(out))),), (), (simplify_nest(nest) if simplified else nest,))


SIZES = (1, 2, 6, 12, 24, 36, 60)


@st.composite
def movements(draw: st.DrawFn) -> Kernel:
    size = draw(st.sampled_from(SIZES))
    shapes: list[list[int]] = []
    orders: list[list[int]] = []
    for _ in range(draw(st.integers(1, 3))):
        left, shape = size, list[int]()
        while left > 1 and len(shape) < 3:
            shape.append(draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
            left //= shape[-1]
        shapes.append([*shape, left])
        straight = draw(st.booleans())
        orders.append(list(range(len(shape) + 1)) if straight else draw(st.permutations(range(len(shape) + 1))))
    return moved(shapes, orders, draw(st.booleans()), draw(st.booleans()))


@given(movements())
def test_a_view_is_what_moves_nothing(kernel: Kernel) -> None:
    assert is_view(called(kernel)) == moves_nothing(kernel)


@pytest.mark.parametrize("number", range(len(SAMPLES)), ids=[s.text_name for s in SAMPLES])
def test_ops_that_are_views(number: int) -> None:
    op: Op = SAMPLES[number]
    kernel = op.kernel if op.expansion is None else composite_kernel(op)
    if len(kernel.params) == len(kernel.results) == 1:
        assert is_view(called(kernel)) == moves_nothing(kernel)


def test_data_as_a_subscript_is_no_view() -> None:
    """Of the numbers 0, 1, 2… each element is where it says."""
    i, four = Axis("i0", 4), Type(i64, (4,))
    kernel = Kernel(
        (Param("p0", four),), (Param("r0", four),), (), (Nest("r0", (i,), (i,), Load("p0", (Load("p0", (i,)),))),)
    )
    assert not is_view(called(kernel))


@pytest.mark.parametrize(
    ("shapes", "orders", "expected"),
    [
        ([[1 << 12, 1 << 12], [1 << 6, 1 << 18]], [[0, 1], [0, 1]], True),
        ([[1 << 20, 1 << 20], [1 << 40]], [[0, 1], [0]], True),
        ([[1 << 20, 3, 5], [5, 3 << 20]], [[0, 1, 2], [0, 1]], True),
        ([[1 << 20, 3, 5], [5, 3 << 20]], [[0, 2, 1], [0, 1]], False),
        ([[7, 1 << 20], [7 << 20]], [[1, 0], [0]], False),
        ([[1, 1 << 20, 9], [9 << 20]], [[1, 0, 2], [0]], True),
    ],
)
def test_views_of_any_size_are_seen_at_once(shapes: list[list[int]], orders: list[list[int]], expected: bool) -> None:
    start = time.process_time()
    for simplified in (False, True):
        kernel = moved(shapes, orders, simplified, by_result=True)
        assert math.prod(kernel.results[0].shape) >= 1 << 20
        assert is_view(called(kernel)) == expected
    assert time.process_time() - start < 0.5
