"""Joining and inlining kernels keeps what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import Type, f32
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, apply
from dlc.kernel.fusion.inline import inline, is_pointwise_map, loads_of
from dlc.kernel.fusion.merge import compose, inline_locals, is_epilogue, is_movement, join
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.roles import product, roles, spatial_axes, window_axes
from dlc.kernel.text import parse_kernel, print_kernel
from tests.kernel.random_kernels import random_kernel

Array = Any


def arguments(kernel: Kernel, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(p.shape) * 4).astype(p.dtype.numpy) for p in kernel.params]


def close(a: Array, b: Array) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30))
def test_locals_without_storage_compute_the_same(seed: int) -> None:
    kernel = random_kernel(seed)
    small = inline_locals(kernel)
    assert len(small.nests) <= len(kernel.nests)
    assert kernel_problems(small) == ()
    args = arguments(kernel, seed)
    close(run_kernel(small, args)[0], run_kernel(kernel, args)[0])
    assert inline_locals(small) == small


def follower(of: Type, seed: int) -> Kernel:
    """A kernel that reads a value of this type: a map, a reduction, a transposed copy, or a guarded sum of shifts."""
    shape = ",".join(map(str, of.shape))
    axes = "ijkmn"[: of.rank]
    index, back = ",".join(axes), ",".join(reversed(axes))
    turned = ",".join(map(str, reversed(of.shape)))
    t = of.dtype
    head = f"kernel({t}[{shape}], {t}[{shape}])"
    front = " ".join(f"{a}<{d}" for a, d in zip(axes, of.shape, strict=True))
    shift = f"{axes[0]}+1" + index[1:]
    texts = (
        f"{head} -> ({t}[{shape}]) {{ r0[{index}] = p0[{index}]*p0[{index}]+p1[{index}] }}",
        f"{head} -> ({t}[]) {{ {front}: r0[] += p0[{index}] }}",
        f"{head} -> ({t}[{turned}]) {{ r0[{index}] = max(p0[{back}], p1[{back}]) }}",
        f"{head} -> ({t}[{shape}]) {{ r0[{index}] = p0[{shift}]-p0[{index}] if {axes[0]} < {of.shape[0] - 1} }}",
    )
    return parse_kernel(texts[seed % len(texts)])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30))
def test_joined_kernels_compute_one_after_the_other(seed: int) -> None:
    producer = random_kernel(seed)
    made = producer.results[0].type
    consumer = follower(made, seed)
    count = len(producer.params)
    shared = next((k for k, p in enumerate(producer.params) if p.type == made), count)
    joined = join(producer, range(count), consumer, (99, shared), 99)
    assert joined.arguments == tuple(dict.fromkeys((*range(count), shared)))
    assert kernel_problems(joined.kernel) == ()
    assert parse_kernel(print_kernel(joined.kernel)) == joined.kernel  # its names are canonical
    args = arguments(producer, seed)
    other = args[shared] if shared < count else arguments(consumer, seed + 1)[1]
    (middle,) = run_kernel(producer, args)
    (expected,) = run_kernel(consumer, [middle, other])
    given_args = [args[n] if n < count else other for n in joined.arguments]
    close(run_kernel(joined.kernel, given_args)[0], expected)
    close(run_kernel(inline_locals(joined.kernel), given_args)[0], expected)


def test_values_that_both_read_are_one_parameter() -> None:
    add = parse_kernel("kernel(f32[2], f32[2]) -> (f32[2]) { r0[i] = p0[i]+p1[i] }")
    joined = join(add, (5, 7), add, (9, 5), 9)
    assert joined.arguments == (5, 7)
    assert print_kernel(inline_locals(joined.kernel)).splitlines()[1] == "  r0[i] = p0[i]+p1[i]+p0[i]"


def test_compose_names_every_value_once() -> None:
    double = parse_kernel("kernel(f32[2]) -> (f32[2]) { r0[i] = p0[i]*2.0 }")
    total = parse_kernel("kernel(f32[2], f32[2]) -> (f32[]) { k<2: r0[] += p0[k]*p1[k] }")
    a = Param("a", Type(f32, (2,)))
    kernel = compose([(double, (0,)), (total, (1, 0))], {0: a}, (1, 2))
    assert run_kernel(kernel, [np.array([1, 3], np.float32)])[0] == 20


def test_what_is_read_before_it_is_written_stays() -> None:
    text = "kernel(f32[2]) -> (f32[2]) local (f32[2]) { r0[i] = t0[i]+p0[i] t0[i] = 1.0 }"
    assert inline_locals(parse_kernel(text)) == parse_kernel(text)


@pytest.mark.parametrize(
    ("nest", "expected"),
    [
        ("r0[i,j] = p0[i,j]", True),
        ("r0[j,i] = p0[i,j]", True),
        ("k<3: r0[i,j] += p0[i,k]", False),
        ("r0[i,j] = p0[i,j] if i < 2", False),
        ("i<2 j<3: r0[i,j] = p0[i,j]", False),
        ("i<3: r0[i,i] = p0[i,i]", False),
        ("i<3 j<3: r0[i,2-j] = p0[i,j]", False),
    ],
)
def test_maps_write_every_element_once_at_plain_subscripts(nest: str, expected: bool) -> None:
    kernel = parse_kernel(f"kernel(f32[3,3]) -> (f32[3,3]) {{ {nest} }}")
    assert is_pointwise_map(kernel.nests[0], (3, 3)) is expected


def test_inlining_substitutes_at_the_subscripts_of_the_load() -> None:
    i, j = Axis("i", 4), Axis("j", 4)
    p, t, r = (Param(n, Type(f32, (4,))) for n in "ptr")
    producer = Nest("t", (j,), (j,), apply("exp", p[j]))
    consumer = Nest("r", (i,), (i,), t[i + 1] + t[i], None, i < 3)
    assert inline(consumer, "t", producer).body == apply("exp", p[i + 1]) + apply("exp", p[i])
    kernel = Kernel((p,), (r,), (t,), (producer, consumer))
    assert loads_of(kernel, "t") == {1: 2}
    assert not is_movement(producer.body)
    assert is_movement(p[i])
    assert is_epilogue(Nest("r", (i,), (i,), t[i] * 2.0), t)
    assert not is_epilogue(Nest("r", (i,), (i,), t[3 - i]), t)


CONV = (
    "kernel(f32[2,3,6,6], f32[5,3,3,3]) -> (f32[2,5,4,4]) { c<3 y<3 x<3: r0[n,f,h,w] += p0[n,c,h+y,w+x]*p1[f,c,y,x] }"
)


def test_roles_of_a_convolution() -> None:
    (nest,) = parse_kernel(CONV).nests
    factors = product(nest)
    assert factors is not None
    found = roles(nest, *factors)
    n, f, h, w, c, y, x = nest.axes
    assert (found.batch, found.rows, found.columns) == ((), (n, h, w), (f,))
    assert (found.reduction, found.window) == ((c, y, x), (y, x))
    assert spatial_axes(nest) == {h, w}
    assert window_axes(factors[1].index) == set()


def test_roles_of_a_batched_product() -> None:
    text = "kernel(f32[4,2,3], f32[4,3,5]) -> (f32[4,2,5]) { k<3: r0[b,m,n] += p0[b,m,k]*p1[b,k,n] }"
    (nest,) = parse_kernel(text).nests
    b, m, n, k = nest.axes
    left, right = product(nest) or (None, None)
    assert left is not None
    assert right is not None
    found = roles(nest, left, right)
    assert (found.batch, found.rows, found.columns, found.reduction) == ((b,), (m,), (n,), (k,))
    turned = roles(nest, right, left)
    assert (turned.rows, turned.columns) == ((n,), (m,))
    assert spatial_axes(nest) == set()


def test_what_is_no_sum_of_products_has_no_roles() -> None:
    for body in ("r0[i] = p0[i]*p0[i]", "k<2: r0[i] max= p0[k]*p0[i]", "k<2: r0[i] += p0[k]+p0[i]"):
        assert product(parse_kernel(f"kernel(f32[2]) -> (f32[2]) {{ {body} }}").nests[0]) is None
