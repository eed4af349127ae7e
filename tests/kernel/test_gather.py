"""A gather has the points of the scatter, each once: random systems against enumeration, hard ones against values."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, both, lift
from dlc.kernel.gradient.gather import NoInverse, gather
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.print import print_expr
from dlc.kernel.schedules.count import iterations
from dlc.kernel.simplify import conjuncts
from dlc.kernel.text import parse_kernel
from tests.kernel.points import points


def show(nest: Nest) -> str:
    where = "" if nest.where is None else f" if {print_expr(nest.where)}"
    axes = ", ".join(f"{a.name}<{a.extent}" for a in nest.axes)
    return f"{axes}: {print_expr(Load(nest.out, nest.index))} += {print_expr(nest.body)}{where}"


def random_nest(seed: int) -> tuple[Nest, tuple[int, ...]]:
    """A scatter over two to four small axes whose subscripts combine them with // and %, under random guards."""
    rng = random.Random(seed)
    axes = [Axis(n, rng.choice((1, 2, 3, 4, 5, 6))) for n in "ijkl"[: rng.randint(1, 4)]]

    def affine() -> Expr:
        e: Expr = Const(rng.randint(-4, 6))
        for a in rng.sample(axes, rng.randint(1, len(axes))):
            e = e + a * rng.choice((1, 1, 1, 1, -1, 2, 3, -2, 4))
        return e

    def subscript(depth: int) -> Expr:
        pick = rng.random()
        if depth == 0 or pick < 0.4:
            return rng.choice(axes) if rng.random() < 0.4 else affine()
        if pick < 0.75:
            return apply(rng.choice(("floordiv", "mod")), subscript(depth - 1), rng.choice((2, 3, 4, 5)))
        return subscript(depth - 1) * rng.choice((1, 2, 3)) + subscript(depth - 1)

    index = [subscript(2) for _ in range(rng.randint(0, 3))]
    if index and rng.random() < 0.2:
        index.append(index[0])
    where: Expr | None = None
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        fn = rng.choice(("eq", "lt", "ge", "le", "gt", "ne"))
        where = both(where, apply(fn, subscript(1), subscript(1) if rng.random() < 0.3 else rng.randint(-2, 6)))
    body = Load("x", tuple(axes))
    nest = Nest("y", tuple(lift(i) for i in index), tuple(axes), body, "add", where)
    written = points(nest)
    low = [min((w[d] for w in written), default=0) for d in range(len(index))]
    moved = tuple(e - m for e, m in zip(nest.index, low, strict=True))
    shape = tuple(max((w[d] for w in written), default=0) - m + 1 + rng.randint(0, 1) for d, m in enumerate(low))
    return Nest("y", moved, tuple(axes), body, "add", where), shape


@given(st.integers(0, 1 << 32))
def test_a_gather_has_the_points_of_the_scatter(seed: int) -> None:
    nest, shape = random_nest(seed)
    nests = gather(nest, shape)
    assert not isinstance(nests, NoInverse), f"{show(nest)}: {nests.reason}"
    found = sorted(p for n in nests for p in points(n))
    assert found == points(nest), "\n".join(["", show(nest), *map(show, nests)])


def scatter(text: str) -> tuple[Kernel, Nest]:
    """A kernel and its only nest."""
    kernel = parse_kernel(text)
    (nest,) = kernel.nests
    return kernel, nest


def gathered(text: str) -> tuple[Kernel, tuple[Nest, ...]]:
    kernel, nest = scatter(text)
    nests = gather(nest, kernel.results[0].shape)
    assert not isinstance(nests, NoInverse), nests.reason
    return kernel, nests


# d(input)[subscripts] += d(output)[left side] · the other factors, for the kinds of subscripts that are hard to invert.
HARD = {
    "h01 stride": "kernel(f64[4]) -> (f64[10]) { i<4: r0[i*2+1] += p0[i] }",
    "h02 strided conv": "kernel(f64[4], f64[3]) -> (f64[9]) { i<4 k<3: r0[i*2+k] += p0[i]*p1[k] }",
    "h03 dilated conv": "kernel(f64[5], f64[3]) -> (f64[9]) { i<5 k<3: r0[i+k*2] += p0[i]*p1[k] }",
    "h04 stride 3, dilation 2": "kernel(f64[3], f64[3]) -> (f64[11]) { i<3 k<3: r0[i*3+k*2] += p0[i]*p1[k] }",
    "h05 upsample": "kernel(f64[12]) -> (f64[4]) { i<12: r0[i//3] += p0[i] }",
    "h06 modulo": "kernel(f64[10]) -> (f64[4]) { i<10: r0[i % 4] += p0[i] }",
    "h07 ragged upsample": "kernel(f64[11]) -> (f64[4]) { i<11: r0[i//3] += p0[i] }",
    "h08 unequal divisors": "kernel(f64[8]) -> (f64[4,4]) { i<8: r0[i//2,i % 4] += p0[i] }",
    "h09 unflatten": "kernel(f64[3,4]) -> (f64[12]) { i<3 j<4: r0[i*4+j] += p0[i,j] }",
    "h10 unflatten with holes": "kernel(f64[3,3]) -> (f64[12]) { i<3 j<3: r0[i*4+j] += p0[i,j] }",
    "h11 overlapping frames": "kernel(f64[3,4]) -> (f64[8]) { i<3 j<4: r0[i*2+j] += p0[i,j] }",
    "h12 diagonal": "kernel(f64[5]) -> (f64[5,5]) { i<5: r0[i,i] += p0[i] }",
    "h13 diagonal sum": "kernel(f64[3]) -> (f64[3,4,4]) { i<3 k<4: r0[i,k,k] += p0[i] }",
    "h14 Hankel": "kernel(f64[4,5]) -> (f64[8]) { i<4 j<5: r0[i+j] += p0[i,j] }",
    "h15 Toeplitz": "kernel(f64[4,5]) -> (f64[9]) { i<4 j<5: r0[i-j+4] += p0[i,j] }",
    "h16 rank one": "kernel(f64[3,4]) -> (f64[6,6]) { i<3 j<4: r0[i+j,i+j] += p0[i,j] }",
    "h17 rotated by 45 degrees": "kernel(f64[4,4]) -> (f64[8,8]) { i<4 j<4: r0[i+j,i-j+4] += p0[i,j] }",
    "h18 determinant 3": "kernel(f64[4,4]) -> (f64[10,10]) { i<4 j<4: r0[i*2+j,i+j*2] += p0[i,j] }",
    "h19 first of a product": "kernel(f64[8], f64[10]) -> (f64[10]) { i<8: r0[i] += p0[i]*p1[i+2] }",
    "h19 second of a product": "kernel(f64[8], f64[10]) -> (f64[10]) { i<8: r0[i+2] += p0[i]*p1[i] }",
    "h20 square": "kernel(f64[4,4], f64[4,4]) -> (f64[4,4]) { i<4 j<4 k<4: r0[k,j] += p0[i,j]*p1[i,k] }",
    "h21 transpose": "kernel(f64[4,4], f64[4,4]) -> (f64[4,4]) { i<4 j<4: r0[j,i] += p0[i,j]*p1[i,j]*p1[i,j] }",
    "h22 quotient": "kernel(f64[4], f64[5]) -> (f64[4,5]) { i<4 k<5: r0[i,k] += p0[i]/(p1[k]+2.0) }",
    "h23 signs": "kernel(f64[6], f64[6]) -> (f64[6]) { i<6: r0[i] += neg(p0[i]*p1[i]) }",
    "h24 atomic parentheses": "kernel(f64[4], f64[5]) -> (f64[4]) { i<4 k<5: r0[i] += p0[i]*p1[k] }",
    "h25 per-term sum": "kernel(f64[4]) -> (f64[4,5]) { i<4 k<5: r0[i,k] += p0[i] }",
    "h26 disjoint reductions": "kernel(f64[2]) -> (f64[2,4]) { i<2 k<4: r0[i,k] += p0[i] }",
    "h27 scalar": "kernel(f64[3,4], f64[3,4]) -> (f64[1]) { i<3 j<4: r0[0] += p0[i,j]*p1[i,j] }",
    "h28 clipped domain": "kernel(f64[10]) -> (f64[10]) { i<10: r0[i+1] += p0[i] if i+1 < 10 }",
    "h29 blur": "kernel(f64[8,8]) -> (f64[10,8]) { i<8 j<8: r0[i+1,j] += p0[i,j]/3.0 }",
    "h30 pixel shuffle": "kernel(f64[2,6,6]) -> (f64[8,3,3])"
    " { i<2 j<6 k<6: r0[i*4+j % 2*2+k % 2,j//2,k//2] += p0[i,j,k] }",
    "h31 im2col": "kernel(f64[9,4]) -> (f64[4,4]) { i<9 j<4: r0[i//3+j//2,i % 3+j % 2] += p0[i,j] }",
    "h32 roll": "kernel(f64[8]) -> (f64[8]) { i<8: r0[(i+3) % 8] += p0[i] }",
    "h33 circular conv": "kernel(f64[8], f64[3]) -> (f64[8]) { i<8 k<3: r0[(i+k) % 8] += p0[i]*p1[k] }",
    "h34 three radices": "kernel(f64[24]) -> (f64[2,3,4]) { i<24: r0[i//12,i//4 % 3,i % 4] += p0[i] }",
    "h35 ragged flatten": "kernel(f64[10]) -> (f64[3,4]) { i<10: r0[i//4,i % 4] += p0[i] }",
    "h36 overlapping pool": "kernel(f64[4], f64[3]) -> (f64[10]) { i<4 k<3: r0[i*2+k] += p0[i]*p1[k]/3.0 }",
    "h37 redundant slices": "kernel(f64[3,4]) -> (f64[3,4,7]) { i<3 j<4: r0[i,j,j*2] += p0[i,j] }",
    "h38 MTTKRP": "kernel(f64[4,5], f64[4,3,2], f64[2,5]) -> (f64[3,5])"
    " { i<4 j<5 k<3 m<2: r0[k,j] += p0[i,j]*p1[i,k,m]*p2[m,j] }",
    "h39 broadcast": "kernel(f64[3,2,4], f64[3,4]) -> (f64[3,4]) { i<3 j<2 k<4: r0[i,k] += p0[i,j,k]*p1[i,k] }",
    "h41 im2col of channels": "kernel(f64[6,8]) -> (f64[2,3,4])"
    " { i<6 j<8: r0[j//4,i//3+j % 4//2,i % 3+j % 2] += p0[i,j] }",
    "h40 affine modulo": "kernel(f64[6]) -> (f64[3]) { i<6: r0[(i*2+1) % 3] += p0[i] }",
}


def compare(text: str) -> tuple[Nest, ...]:
    """The nests of a scatter, after they gave what it gives."""
    kernel, nests = gathered(text)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=p.shape) for p in kernel.params]
    found = run_kernel(replace(kernel, nests=nests), args)[0]
    np.testing.assert_allclose(found, run_kernel(kernel, args)[0], rtol=1e-12, atol=1e-12)
    return nests


def is_pure(nest: Nest) -> bool:
    """Whether the left side is plain and no equation concerns an axis that is summed over."""
    equations = [g for g in conjuncts(nest.where) if isinstance(g, Apply) and g.fn == "eq"]
    plain = [i for i in nest.index if i != Const(0)]
    distinct = len(set(plain)) == len(plain) and all(isinstance(i, Axis) for i in plain)
    return distinct and not set(axes_in(*equations)) & set(nest.reduction_axes)


@pytest.mark.parametrize("text", HARD.values(), ids=HARD.keys())
def test_hard_subscripts_are_inverted(text: str) -> None:
    (nest,) = compare(text)
    assert is_pure(nest)
    # The body runs once for every point of the scatter, or once for every element where nothing is summed.
    kernel, before = scatter(text)
    assert iterations(nest) <= max(iterations(before), kernel.results[0].type.size * bool(not nest.reduction_axes))


def text_of(text: str) -> str:
    _, (nest,) = gathered(text)
    return show(nest)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("h01 stride", "u0<10: r0[u0] += p0[(u0+1)//2-1] if (u0+1) % 2 == 0 and u0 >= 1 and u0 <= 7"),
        ("h05 upsample", "u0<4, w0<3: r0[u0] += p0[u0*3+w0]"),
        ("h06 modulo", "u0<4, w0<3: r0[u0] += p0[w0*4+u0] if w0*4+u0 <= 9"),
        ("h09 unflatten", "u0<12: r0[u0] += p0[u0//4,u0 % 4]"),
        ("h10 unflatten with holes", "u0<12: r0[u0] += p0[u0//4,u0 % 4] if u0 % 4 <= 2"),
        ("h12 diagonal", "u0<5, u1<5: r0[u0,u1] += p0[u0] if u0-u1 == 0"),
        ("h14 Hankel", "u0<8, w0<4: r0[u0] += p0[w0,u0-w0] if u0-w0 >= 0 and w0-u0 >= (-4)"),
        ("h37 redundant slices", "u0<3, u1<4, u2<7: r0[u0,u1,u2] += p0[u0,u1] if u1*2-u2 == 0"),
        ("h32 roll", "u0<8: r0[u0] += p0[(u0+5) % 8]"),
        ("h33 circular conv", "u0<8, w0<3: r0[u0] += p0[(u0-w0) % 8]*p1[w0]"),
        ("h34 three radices", "u0<2, u1<3, u2<4: r0[u0,u1,u2] += p0[u0*12+u1*4+u2]"),
        (
            "h41 im2col of channels",
            "u0<2, u1<3, u2<4, w0<2, w1<2: r0[u0,u1,u2] += p0[u1*3-w0*3+u2-w1,u0*4+w0*2+w1]"
            " if u2-w1 >= 0 and w1-u2 >= (-2) and u1-w0 >= 0 and w0-u1 >= (-1)",
        ),
        (
            "h30 pixel shuffle",
            "u0<8, u1<3, u2<3: r0[u0,u1,u2] += p0[u0//4,u1*2+u0//2 % 2,u2*2+u0 % 2]",
        ),
    ],
)
def test_inverses_are_plain(kind: str, expected: str) -> None:
    assert text_of(HARD[kind]) == expected


CONV = (
    "kernel(f64[2,8,5,5], f64[8,16,3,3]) -> (f64[2,16,7,7])"
    " { i<2 j<8 k<5 m<5 n<16 u<3 v<3: r0[i,n,k+u,m+v] += p0[i,j,k,m]*p1[j,n,u,v] }"
)


def test_the_gradient_of_a_convolution_keeps_the_axes_of_the_window() -> None:
    (nest,) = compare(CONV)
    assert nest.points == 112_896
    assert iterations(nest) == 57_600
    assert [a.extent for a in nest.reduction_axes] == [8, 3, 3]


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("kernel(f64[6,5]) -> (f64[30]) { i<6 j<5 k<30: r0[k] += p0[i,j] if i+j*6 == k }", 30),
        ("kernel(f64[6,5]) -> (f64[1]) { i<6 j<5 k<30: r0[0] += p0[i,j] if i+j*6 == k }", 30),
        ("kernel(f64[3,7]) -> (f64[21]) { i<3 j<7 k<21: r0[k] += p0[i,j] if i+j*3 == k }", 21),
        ("kernel(f64[5,5,5]) -> (f64[1]) { i<5 j<5 k<5: r0[0] += p0[i,j,k] if i == j }", 25),
        ("kernel(f64[5,5,5]) -> (f64[1]) { i<5 j<5 k<5: r0[0] += p0[i,j,k] if i == j and i < k }", 16),
        ("kernel(f64[5,5,5]) -> (f64[1]) { i<5 j<5 k<5: r0[0] += p0[i,j,k] if i*2 == j }", 15),
        ("kernel(f64[6,5]) -> (f64[1]) { i<6 j<5 k<30: r0[0] += p0[i,j] if k//5 == i and k % 5 == j }", 30),
        ("kernel(f64[10,10]) -> (f64[1]) { i<10 j<10: r0[0] += p0[i,j] if (i+j) % 3 <= 1 and (i+j)//3 <= 2 }", 48),
    ],
)
def test_domains_of_other_solvers(text: str, volume: int) -> None:
    """Volumes of the boxes in TVM's test_simplify_domain; upstream leaves `k + 6l == n` and `k + 3m == x` unsolved."""
    (nest,) = compare(text)
    assert is_pure(nest) and nest.points == volume


def test_large_extents_are_never_enumerated() -> None:
    _, (nest,) = gathered("kernel(f64[1]) -> (f64[4000000000]) { i<1000000000 j<4: r0[i*4+j] += p0[0] }")
    assert show(nest) == "u0<4000000000: r0[u0] += p0[0]"


def test_a_range_far_smaller_than_its_axis_starts_where_it_must() -> None:
    (nest,) = compare("kernel(f64[500,4]) -> (f64[1002]) { i<500 j<4: r0[i*2+j] += p0[i,j] }")
    assert [a.extent for a in nest.reduction_axes] == [2]


def test_coupled_loops_have_the_bounds_that_inner_ones_imply() -> None:
    (nest,) = compare("kernel(f64[4,5,6]) -> (f64[13]) { i<4 j<5 k<6: r0[i+j+k] += p0[i,j,k] }")
    assert iterations(nest) == 4 * 5 * 6


def test_guards_on_data_stay() -> None:
    (nest,) = compare("kernel(f64[8], f64[8]) -> (f64[9]) { i<8: r0[i+1] += p0[i] if p1[i] > 0.0 }")
    assert show(nest) == "u0<9: r0[u0] += p0[u0-1] if u0 >= 1 and p1[u0-1] > 0.0"


def test_other_reductions_are_turned_around_too() -> None:
    for assign in ("max=", "min=", "*=", "="):
        compare(f"kernel(f64[3,4]) -> (f64[12]) {{ i<3 j<4: r0[i*4+j] {assign} p0[i,j] }}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kernel(f64[4], i64[4]) -> (f64[9]) { i<4: r0[p1[i]] += p0[i] }", "r0: subscript 0 reads data (p1)"),
        ("kernel(f64[4]) -> (f64[4,16]) { i<4 j<4: r0[i,i*j] += p0[i] }", "r0: subscript 1 multiplies axes"),
        ("kernel(f64[4]) -> (f64[4]) { i<4 j<4: r0[min(i+j, 3)] += p0[i] }", "r0: subscript 0 applies min"),
    ],
)
def test_what_has_no_inverse_says_why(text: str, reason: str) -> None:
    kernel, nest = scatter(text)
    assert gather(nest, kernel.results[0].shape) == NoInverse(reason)


@pytest.mark.parametrize(
    "text",
    [
        "kernel(f64[0]) -> (f64[4]) { i<0: r0[i+1] += p0[i] }",
        "kernel(f64[4]) -> (f64[0]) { i<4: r0[i] += p0[i] if i < 0 }",
        "kernel(f64[4]) -> (f64[9]) { i<4: r0[i*2] += p0[i] if i*2 == 3 }",
    ],
)
def test_a_scatter_without_points_has_no_nests(text: str) -> None:
    kernel, nest = scatter(text)
    assert gather(nest, kernel.results[0].shape) == ()


def test_axes_of_extent_one_and_dimensions_of_size_one() -> None:
    (nest,) = compare("kernel(f64[1,5]) -> (f64[1,5,1]) { i<1 j<5: r0[i,4-j,j//5] += p0[i,j] }")
    assert show(nest) == "u1<5: r0[0,u1,0] += p0[0,u1*(-1)+4]"
