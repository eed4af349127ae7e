"""The range of every index, the conditions that are left, and which left sides are accepted."""

from __future__ import annotations

import itertools
import math

import pytest
from dlc_frontend_kernel.injective import is_injective
from dlc_frontend_kernel.programs import read_programs
from dlc_frontend_kernel.ranges import NATURAL, Interval, occurrences, ranges
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.types import f32
from dlc.kernel.expr import Axis, Expr, apply
from dlc.kernel.text import print_kernel
from tests.frontend_kernel.texts import fault, kernel_of, parse


def found(text: str) -> dict[str, Interval]:
    (program,) = read_programs(text, "test", f32)
    shapes = {name: d.shape for name, d in program.tensors.items()}
    return ranges(list(occurrences(program.statements[0], shapes)))


RANGES = [
    # one index alone is solved
    ("A<10>[i] = 1;", "i", 0, 9),
    ("A<10>[i] = B<10>[i+1];", "i", 0, 8),
    ("A<10>[i] = B<10>[i-3];", "i", 3, 9),
    ("A<10>[i] = B<8>[9-i];", "i", 2, 9),
    ("A<10>[i] = B<10>[i*3];", "i", 0, 3),
    ("A<10>[i] = B<9>[i*3];", "i", 0, 2),
    ("A<10>[i] = B<10>[i*3+1];", "i", 0, 2),
    ("A<10>[i] = B<10>[2*(i-1)];", "i", 1, 5),
    ("A<99>[i] = B<4>[i//3];", "i", 0, 11),
    ("A<99>[i] = B<4>[(i+1)//3];", "i", 0, 10),
    ("A<9>[i] = B<4>[i%4];", "i", 0, 8),
    ("A<9>[i] = B<5>[4 - i//2];", "i", 0, 8),
    ("A<9>[i] = B<5>[-i + 3];", "i", 0, 3),
    # the smallest interval over all occurrences, also those in other terms
    ("A<10>[i] = B<10>[i] + C<7>[i+2] + D<5>[i];", "i", 0, 4),
    # others in the same subscript are at least 0, and nothing else is known of them
    ("A<9>[p] = B<7>[p+r] * C<3>[r];", "p", 0, 6),
    ("A<9>[p] = B<7>[p+r] * C<9>[r];", "r", 0, 6),
    ("A<9>[p] = B<7>[2*p+r] * C<9>[r];", "p", 0, 3),
    ("A<9>[p] = B<7>[p+r-2] * C<9>[r];", "p", 0, 8),
    ("A<9>[c] = B<8>[c*4 + h%2*2 + w%2] * C<6,6>[h,w];", "c", 0, 1),
    ("A<9>[i] = B<9>[(i+j)//2] * C<99>[j];", "j", 0, 17),
    ("A<9>[i] = B<5>[max(i, j)] * C<99>[j];", "j", 0, 4),
    # a bound through others, when nothing else gives one
    ("A<5>[j] = B<9>[i-j+4];", "i", 0, 8),
    ("A<5>[j] = B<9>[i-k] * C<7>[k-j];", "i", 0, 18),
    # branches of select restrict nothing, unless nothing else does
    ("A<9>[i] = select(i > 0, B<9>[i-1], 0);", "i", 0, 8),
    ("A<9>[i] = select(B<5>[i] > 0, 1, 0);", "i", 0, 4),
    ("s<1> = select(k > 2, B<9>[k], 0);", "k", 0, 8),
    # what data decides tells nothing of the index inside, but the inner subscript does
    ("A<9>[i] = B<3>[I<7>[i]];", "i", 0, 6),
]


@pytest.mark.parametrize(("text", "index", "low", "high"), RANGES)
def test_the_range_of_an_index(text: str, index: str, low: int, high: int) -> None:
    assert found(text)[index] == (low, high)


def test_ranges_belong_to_one_statement() -> None:
    kernel = kernel_of(parse("A<3>[i] = B<3>[i]; C<9>[i] = D<9>[i];"))
    assert [n.points for n in kernel.nests] == [3, 9]


def test_indices_of_reductions_are_their_own() -> None:
    kernel = kernel_of(parse("A<3>[i] = B<5>[k] * max[k](C<3,9>[i,k]);"))
    assert [n.points for n in kernel.nests] == [27, 15]


@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=3),
    st.integers(-4, 9),
    st.integers(1, 12),
    st.sampled_from(["", "//2", "//3"]),
)
def test_no_point_is_lost_that_the_subscript_allows(factors: list[int], constant: int, size: int, tail: str) -> None:
    """Soundness: what keeps the subscript in its tensor lies in the ranges."""
    names = "ijk"[: len(factors)]
    form = " + ".join(f"{n}*({f})" for n, f in zip(names, factors, strict=True))
    got = found(f"s<1> = B<{size}>[({form} + {constant}){tail}];")
    divisor = int(tail[2:] or 1)
    for point in itertools.product(range(13), repeat=len(factors)):
        value = (sum(f * x for f, x in zip(factors, point, strict=True)) + constant) // divisor
        if 0 <= value < size:
            for name, x in zip(names, point, strict=True):
                low, high = got.get(name, NATURAL)
                assert low <= x <= high


@given(st.integers(-3, 3).filter(bool), st.integers(-9, 9), st.integers(1, 12))
def test_an_index_alone_has_exactly_the_values_that_fit(factor: int, constant: int, size: int) -> None:
    low, high = found(f"s<1> = B<{size}>[i*({factor}) + {constant}];")["i"]
    fit = [x for x in range(30) if 0 <= factor * x + constant < size]
    # An index runs from 0 up: a negative factor bounds it by what it is taken from.
    assert fit == [x for x in range(30) if low <= x <= high]
    assert high < math.inf


GUARDS = [
    ("A<5>[p] = B<7>[p+r] * C<3>[r];", "  j<3: r0[i] += p0[i+j]*p1[j]"),
    ("A<6>[p] = B<7>[p+r] * C<3>[r];", "  j<3: r0[i] += p0[i+j]*p1[j] if i+j < 7"),
    ("A<6>[p] = B<7>[p+r] * C<3>[r] + D<3>[r];", "  j<3: r0[i] += p0[i+j]*p1[j] if i+j < 7\n  j<3: r0[i] += p2[j]"),
    ("A<4,4>[i,j] = B<5>[i+j] + C<9>[k];", "  r0[i,j] = p0[i+j] if i+j < 5\n  k<9: r0[i,j] += p1[k] if i+j < 5"),
    ("A<9>[i] = B<9>[i-2];", "  r0[i] = p0[i-2] if i >= 2"),
    ("A<9>[i] = select(i >= 2, B<9>[i-2], 1);", "  r0[i] = select(i >= 2, p0[i-2], 1.0)"),
    ("A<9>[i] = select(i >= 2 and i < 8, B<9>[i-2] + B[i+1], 1);",
     "  r0[i] = select(i >= 2 and i < 8, p0[i-2]+p0[i+1], 1.0)"),
    ("A<9>[i] = select(i < 2, 1, B<9>[i-2]);", "  r0[i] = select(i < 2, 1.0, p0[i-2])"),
    ("A<9>[i] = select(C<9>[i] > 0, B<9>[i-2], 1);",
     "  r0[i] = select(p0[i] > 0.0, select(i >= 2, p1[i-2], 0.0), 1.0)"),
    ("A<4>[i] = max[k](B<6>[i+k+1] * C<3>[k]);", "  j<3: r0[i] max= p0[i+j+1]*p1[j] if i+j < 5"),
    ("A<4>[i] = 1 + max[k](B<6>[i+j] * C<3,5>[k,j]);",
     "  k<3: t0[i,j] max= p0[i+j]*p1[k,j] if i+j < 6\n  r0[i] = 1.0\n  j<5: r0[i] += t0[i,j] if i+j < 6"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "nests"), GUARDS)
def test_points_outside_are_skipped_where_the_range_does_not_exclude_them(text: str, nests: str) -> None:
    shown = print_kernel(kernel_of(parse(text)))
    assert "\n".join(shown.splitlines()[1:-1]) == nests


ACCEPTED = [
    "A<9>[i+1] = B<8>[i];",
    "A<9,9>[i,8-j] = B<9,9>[i,j];",
    "A<20>[i*5+j] = B<4,5>[i,j];",
    "A<9>[i%3 + i//3*3] = B<9>[i];",
    "A<8,8>[i+j,i-j+4] = B<4,4>[i,j];",
    "A<4,5>[i//5,i%5] = B<20>[i];",
    "A<9>[(i+4)%9] = B<9>[i];",
    "A<4000,4000>[j, 3999-i] = B<4000,4000>[i,j];",
    "A<16000000>[i*4000+j] = B<4000,4000>[i,j];",
    "A<9>[3] = 1;",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_left_sides_that_write_every_element_once(text: str) -> None:
    assert parse(text).names == ("A",)


REFUSED = [
    ("A<9,9>[i,i] = B<9>[i];", "the index i stands twice on the left side"),
    ("A<9>[i+j] = B<4,4>[i,j];", "different index values write the same element of A, or may do so"),
    ("A<9>[i//2] = B<9>[i];", "different index values write the same element"),
    ("A<3>[i%3] = B<9>[i];", "different index values write the same element"),
    ("A<20>[i*4+j] = B<4,5>[i,j];", "different index values write the same element"),
    ("A<9>[I<9>[i]] = B<9>[i];", "the left side's subscript reads I"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_left_sides_that_could_write_an_element_twice(text: str, message: str) -> None:
    assert message in fault(text)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=2),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from([None, 2, 3]),
)
def test_injectivity_is_decided(
    rows: list[tuple[int, int, int]], extents: tuple[int, int], modulus: int | None
) -> None:
    axes = (Axis("i", extents[0]), Axis("j", extents[1]))
    index: list[Expr] = [axes[0] * a + axes[1] * b + c for a, b, c in rows]
    if modulus is not None:
        index[0] = apply("mod", index[0], modulus)
    shape = [8] * len(rows)
    hits: list[tuple[int, ...]] = []
    for i, j in itertools.product(range(extents[0]), range(extents[1])):
        place = [a * i + b * j + c for a, b, c in rows]
        place[0] = place[0] % modulus if modulus is not None else place[0]
        if all(0 <= p < 8 for p in place):
            hits.append(tuple(place))
    expected = len(set(hits)) == len(hits)
    assert is_injective(index, shape, axes) == expected
