"""Blocks of kernels: every tap in one of them, names that tell which, whole weights out of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dlc_backend_s2train.decompose.blocks import (
    Block,
    Taps,
    assembled,
    block_name,
    blocks,
    blocks_of,
    illegal,
    misfit,
    part_of,
    single_taps,
)
from dlc_backend_s2train.program import Geometry
from hypothesis import given
from hypothesis import strategies as st

from dlc import DlcError
from dlc.base.types import Array
from tests.backend_s2train.products_by_hand import rectangular, square


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    kernel, stride, dilation = (draw(st.tuples(*[st.integers(1, top)] * 2)) for top in (13, 6, 6))
    return rectangular(kernel, stride, dilation, size=80, pad=0)


def weight(g: Geometry) -> Array:
    return np.arange(g.co * g.ci * g.kh * g.kw, dtype=np.float32).reshape(g.co, g.ci, g.kh, g.kw)


def cut(g: Geometry) -> dict[str, Array]:
    w = weight(g)
    return {block_name("w", b): w[:, :, b.rows.slice, b.columns.slice] for b in blocks(g)}


@given(geometries())
def test_blocks_hold_every_tap_once_and_see_what_it_saw(g: Geometry) -> None:
    seen = np.zeros((g.kh, g.kw), int)
    for block in blocks(g):
        seen[block.rows.slice, block.columns.slice] += 1
        part = part_of(g, block)
        assert illegal(part) is None
        assert misfit(part) is None
        assert (part.ho, part.wo, part.kh, part.kw) == (g.ho, g.wo, *block.shape)
        for taps, of, pads, s, old in (
            (block.rows, part.dilation[0], part.pads[0], part.stride[0], (g.stride[0], g.dilation[0], g.pads[0])),
            (block.columns, part.dilation[1], part.pads[1], part.stride[1], (g.stride[1], g.dilation[1], g.pads[1])),
        ):
            for t, m in enumerate(range(taps.begin, taps.end, taps.step)):
                assert [j * s + t * of - pads for j in (0, 1)] == [j * old[0] + m * old[1] - old[2] for j in (0, 1)]
    assert (seen == 1).all()


@given(geometries())
def test_weights_come_back_whole(g: Geometry) -> None:
    parts = cut(g)
    assert assembled(parts).keys() == {"w"}
    np.testing.assert_array_equal(assembled(parts)["w"], weight(g))
    singles = {block_name("w", b): weight(g)[:, :, b.rows.slice, b.columns.slice] for b in single_taps((g.kh, g.kw))}
    np.testing.assert_array_equal(assembled(singles)["w"], weight(g))


@given(st.text(), geometries())
def test_names_tell_the_block(name: str, g: Geometry) -> None:
    for block in blocks(g):
        message = block_name(name, block)
        assert (blocks_of(message) == (name, block)) if name else not message


WHOLE = ("w", "", "w[0]", "w[0:3:1]", "w[0:3:1,0:3]", "w[3:3:1,0:3:1]", "w[0:3:0,0:3:1]", "w[00:3:1,0:3:1]")
STRANGE = ("w[0:3:1,0:3:1].b", "w[-1:3:1,0:3:1]", "w[0:3:1,0:9999999999:1]", "w[\u0660:3:1,0:3:1]")


@pytest.mark.parametrize("name", [*WHOLE, *STRANGE])
def test_other_names_are_whole(name: str) -> None:
    assert blocks_of(name) is None
    assert assembled({name: np.zeros(3)}).keys() == {name}


def test_whole_tensors_stay_as_they_are_and_in_order() -> None:
    g = square(5)
    parts = {"a": np.zeros(2), **cut(g), "b": np.ones(())}
    found = assembled(parts)
    assert list(found) == ["a", "w", "b"]
    assert found["a"] is parts["a"]
    assert found["w"].dtype == np.float32


def _without(parts: dict[str, Array]) -> None:
    del parts["w[0:3:1,3:5:1]"]


def _twice(parts: dict[str, Array]) -> None:
    parts["w[0:3:1,2:4:1]"] = parts.pop("w[0:3:1,3:5:1]")


def _narrow(parts: dict[str, Array]) -> None:
    parts["w[0:3:1,3:5:1]"] = parts["w[0:3:1,3:5:1]"][..., :1]


def _other(parts: dict[str, Array]) -> None:
    parts["w[0:3:1,3:5:1]"] = parts["w[0:3:1,3:5:1]"][:, :1]


def _typed(parts: dict[str, Array]) -> None:
    parts["w[0:3:1,3:5:1]"] = parts["w[0:3:1,3:5:1]"].astype(np.float16)


def _whole(parts: dict[str, Array]) -> None:
    parts["w"] = weight(square(5))


def _huge(parts: dict[str, Array]) -> None:
    parts["w[0:999999999:999999998,5:6:1]"] = np.zeros((4, 3, 2, 1), np.float32)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without, '"w": its blocks have 19 taps, a kernel of 5 x 5 25'),
        (_twice, '"w": its blocks overlap at row 0, column 2'),
        (_narrow, '"w": a block of 3 x 2 has the shape [4, 3, 3, 1]'),
        (_other, '"w": blocks of float32[4, 3, 3, 3] and float32[4, 1, 3, 2]'),
        (_typed, '"w": blocks of float32[4, 3, 3, 3] and float16[4, 3, 3, 2]'),
        (_whole, '"w": it is there as a whole and in blocks'),
        (_huge, '"w": its blocks have 27 taps, a kernel of 999999999 x 6 5999999994'),
    ],
)
def test_blocks_that_do_not_fit_are_refused(damage: Callable[[dict[str, Array]], None], message: str) -> None:
    parts = cut(square(5))
    damage(parts)
    with pytest.raises(DlcError) as refused:
        assembled(parts)
    (only,) = refused.value.diagnostics
    assert only.code == "bad-blocks"
    assert only.message == message


def test_large_strides_use_samples_of_equal_phase() -> None:
    """11 x 11, stride 4: 3 or 2 taps 4 apart, so that the stride over the dilation is 1."""
    found = blocks(square(11, 4, size=23, pad=2))
    assert len(found) == 16
    assert found[0] == Block(Taps(0, 9, 4), Taps(0, 9, 4))
    assert found[-1] == Block(Taps(3, 8, 4), Taps(3, 8, 4))
    assert part_of(square(11, 4, size=23, pad=2), found[-1]).dilation == (4, 4)


@pytest.mark.parametrize(
    ("g", "message"),
    [
        (square(5), "its kernel is 5 x 5, the array's 3 x 3"),
        (square(3, dilation=2), "stride 1 x 1 over dilation 2 x 2 is no stride of 1 or 2, equal for both"),
        (rectangular((3, 3), (2, 1)), "stride 2 x 1 over dilation 1 x 1 is no stride of 1 or 2, equal for both"),
        (square(3, 3), "stride 3 x 3 over dilation 1 x 1 is no stride of 1 or 2, equal for both"),
    ],
)
def test_why_the_array_has_no_such_product(g: Geometry, message: str) -> None:
    reason = illegal(g)
    assert reason is not None
    assert reason.text == message
    assert reason.help
