"""The verifier of subscripts against enumeration: it finds what leaves a tensor, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import Array, Type
from dlc.kernel.check.access import accesses
from dlc.kernel.check.inside import find
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.expr import Apply, Axis, Expr, Load, children, loads, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.text import parse_kernel, print_kernel
from dlc.passes.layout import permute
from dlc.passes.lower import composite_kernel
from tests.kernel.points import value
from tests.kernel.random_kernels import random_kernel
from tests.ops.samples import samples

EVERY = 24
"""Of this many mutations of a sample one is tried; which one differs from sample to sample."""


@cache
def sample_kernels() -> tuple[tuple[str, Kernel], ...]:
    """The kernels of all ops' samples, and of them with every tensor's dimensions in another order."""
    found: list[tuple[str, Kernel]] = []
    for op in samples():
        kernel = op.kernel if op.expansion is None else composite_kernel(op)
        orders = {p.name: (*range(1, p.type.rank), *range(min(1, p.type.rank))) for p in kernel.tensors.values()}
        found += [(op.text_name, kernel), (op.text_name, permute(kernel, orders))]
    return tuple(found)


# ---- what enumeration says ----
def leaves(kernel: Kernel) -> bool:
    """Whether a point of a nest certainly accesses what is outside: conditions on data may not hold."""
    return any(_nest_leaves(kernel, n) for n in kernel.nests if n.points)


def _nest_leaves(kernel: Kernel, nest: Nest) -> bool:
    shape = tuple(a.extent for a in nest.axes)
    count = math.prod(shape)
    at = dict(zip(nest.axes, np.indices(shape).reshape(len(shape), count), strict=True))
    held = np.ones(count, bool) if nest.where is None else _known(nest.where, at, count)
    target = Load(nest.out, nest.index)
    everywhere = np.ones(count, bool)
    guard = () if nest.where is None else (nest.where,)
    return (
        any(_leaves(kernel, e, at, held) for e in (nest.body, target))
        or any(_leaves(kernel, e, at, everywhere) for e in guard)
    )  # fmt: skip


def _known(condition: Expr, at: Mapping[Axis, Array], count: int) -> Array:
    """Where a condition certainly holds."""
    match condition:
        case Apply("and", (a, b)):
            return _known(a, at, count) & _known(b, at, count)
        case _ if any(isinstance(x, Load) for x in walk(condition)):
            return np.zeros(count, bool)
        case _:
            return np.broadcast_to(value(condition, at), count)


def _leaves(kernel: Kernel, e: Expr, at: Mapping[Axis, Array], held: Array) -> bool:
    match e:
        case Load(name, index):
            for i, size in zip(index, kernel.tensors[name].shape, strict=True):
                if any(isinstance(x, Load) for x in walk(i)):
                    continue
                where = np.broadcast_to(value(i, at), held.shape)[held]
                if where.size and (where.min() < 0 or where.max() >= size):
                    return True
            return any(_leaves(kernel, i, at, held) for i in index)
        case Apply("select", (condition, then, otherwise)):
            yes = _known(condition, at, held.size)
            no = _known(Apply("not", (condition,)), at, held.size)
            return (
                _leaves(kernel, condition, at, held)
                or _leaves(kernel, then, at, held & yes)
                or _leaves(kernel, otherwise, at, held & no)
            )
        case Apply("and" | "or" as fn, (a, b)) if not any(loads(a)):
            known = _known(a, at, held.size)
            return _leaves(kernel, b, at, held & (known if fn == "and" else ~known))
        case _:
            return any(_leaves(kernel, x, at, held) for x in children(e))


# ---- mutations ----
def mutants(kernel: Kernel) -> Iterator[Kernel]:
    """The kernel with one thing changed: a subscript moved, a guard's half gone, a shape turned or shortened."""
    for k, nest in enumerate(kernel.nests):
        for changed in _nest_mutants(nest):
            yield replace(kernel, nests=(*kernel.nests[:k], changed, *kernel.nests[k + 1 :]))
    for group in ("params", "results", "locals"):
        tensors: tuple[Param, ...] = getattr(kernel, group)
        for k, p in enumerate(tensors):
            shapes = {p.shape[::-1], *((*p.shape[:d], n - 1, *p.shape[d + 1 :]) for d, n in enumerate(p.shape) if n)}
            for shape in sorted(shapes - {p.shape}):
                other = Param(p.name, Type(p.dtype, shape))
                yield replace(kernel, **{group: (*tensors[:k], other, *tensors[k + 1 :])})


def _nest_mutants(nest: Nest) -> Iterator[Nest]:
    for by in (-1, 1):
        for d in range(len(nest.index)):
            yield replace(nest, index=_moved(nest.index, d, by))
        for load in dict.fromkeys(x for e in nest.exprs() for x in walk(e) if isinstance(x, Load)):
            for d in range(len(load.index)):
                moved = Load(load.param, _moved(load.index, d, by))
                yield nest.map_loads(lambda x, load=load, moved=moved: moved if x == load else x)
    match nest.where:
        case Apply("and", (a, b)):
            yield replace(nest, where=a)
            yield replace(nest, where=b)
        case None:
            pass
        case _:
            yield replace(nest, where=None)


def _moved(index: tuple[Expr, ...], d: int, by: int) -> tuple[Expr, ...]:
    return (*index[:d], index[d] + by, *index[d + 1 :])


# ---- tests ----
def test_kernels_of_all_samples_are_sound_and_decided() -> None:
    for name, kernel in sample_kernels():
        assert kernel_problems(kernel) == (), name
        undecided = [
            (a, d)
            for n in kernel.nests
            if n.points
            for a in accesses(n)
            for d in range(len(a.index))
            if find(kernel, a, d).verdict != "inside"
        ]
        assert undecided == [], name


UNDECIDED = {"sample_at", "grid_sample", "deform_conv", "max_roi_pool"}
"""Their loads run where places that are data lie inside of the image, of which the verifier knows nothing."""


def test_mutations_of_all_samples_are_found() -> None:
    caught = 0
    for number, (name, kernel) in enumerate(sample_kernels()):
        if name in UNDECIDED:
            continue
        for mutant in islice(mutants(kernel), number % EVERY, None, EVERY):
            wrong = leaves(mutant)
            found = kernel_problems(mutant)
            # Of data the enumeration knows nothing; what else the verifier finds has to be there.
            assert wrong <= bool(found), f"{name}: missed in {print_kernel(mutant)}"
            if not wrong:
                assert all(_is_data(p.message) for p in found), f"{name}: {found}"
            caught += wrong
    assert caught > 500


def _is_data(message: str) -> bool:
    """Whether a message is of a subscript that loads."""
    return "[" in message.partition("subscript ")[2].partition(" runs ")[0]


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_random_kernels_and_their_mutations(seed: int, choice: int) -> None:
    kernel = random_kernel(seed)
    assert not kernel_problems(kernel)
    changed = list(mutants(kernel))
    mutant = changed[choice % len(changed)]
    assert bool(kernel_problems(mutant)) == leaves(mutant), print_kernel(mutant)


LARGE = {
    "a product": (
        "kernel(f32[4096,4096], f32[4096,4096]) -> (f32[4096,4096]) { k<4096: r0[i,j] += p0[i,k{0}]*p1[k,j] }",
        ("", "+1", "-1"),
    ),
    "a reshape": (
        "kernel(f32[300,7000]) -> (f32[2100000]) { r0[i] = p0[i//7000,i % 7000{0}] }",
        ("", "+1", "-6999"),
    ),
    "a padded convolution": (
        "kernel(f32[8,64,224,224], f32[64,64,7,7]) -> (f32[8,64,112,112]) {\n"
        "  m<64 n<7 u<7: r0[i,j,k,w] += p0[i,m,k*2+n-3,w*2+u-3]*p1[j,m,n,u]"
        " if k*2+n >= 3 and k*2+n < 227{0} and w*2+u >= 3 and w*2+u < 227 }",
        ("", "+1"),
    ),
    "clamped data": (
        "kernel(f32[9,4], i64[5]) -> (f32[5,4]) { r0[i,j] = p0[min(max(p1[i], 0), 8){0},j] }",
        ("", "+1", "-1"),
    ),
    "wrapped data": (
        "kernel(f32[9], i32[5]) -> (f32[5]) "
        "{ r0[i] = p0[min(max(select(i64(p1[i]) < 0, i64(p1[i])+9, i64(p1[i])), 0{0}), 8)] }",
        ("", "-1"),
    ),
    "guarded data": (
        "kernel(f32[9], i64[5]) -> (f32[9]) { i<5: r0[p1[i]] += p0[p1[i]{0}] if p1[i] >= 0 and p1[i] < 9 }",
        ("",),
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_spaces_that_are_too_large_to_enumerate(name: str) -> None:
    text, changes = LARGE[name]
    good, *bad = (parse_kernel(text.replace("{0}", change)) for change in changes)
    assert not kernel_problems(good)
    assert all(kernel_problems(kernel) for kernel in bad)


def test_what_data_or_other_nests_may_exclude_is_no_error() -> None:
    for text in (
        "kernel(f32[4], bool[4]) -> (f32[4]) { r0[i] = select(p1[i], p0[i+1], 0.0) }",
        "kernel(f32[4], i64[4]) -> (f32[4]) { r0[i] = p0[p1[i]] }",
        "kernel(f32[4], i64[4]) -> (f32[4]) { r0[i] = p0[bitand(p1[i], 3)] }",
        "kernel(f32[4], i64[4]) -> (f32[4]) local (i64[4]) {\n t0[i] = min(max(p1[i], 0), 3)\n r0[i] = p0[t0[i]] }",
        "kernel(f32[4], u8[4]) -> (f32[4]) { r0[i] = p0[p1[i]] }",
    ):
        assert kernel_problems(parse_kernel(text)) == (), text


def test_the_message_names_the_subscript_its_range_and_the_nest() -> None:
    (problem,) = kernel_problems(parse_kernel("kernel(f32[4,5]) -> (f32[4]) { k<5: r0[i] += p0[i,k+i % 2] }"))
    assert problem.message == "nest 0: subscript j+i % 2 of p0 runs from 0 to 5, dimension 1 has 5"
    assert problem.nest == "j<5: r0[i] += p0[i,j+i % 2]"
