"""Mosaics of images: the same convolution, in steps no more."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.build_lines import CostModel
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.cost.batch_packing import pack
from dlc_backend_s2train.cost.cycles import work_of
from dlc_backend_s2train.frames.parts import collected, mosaic_of, pitch, spread
from dlc_backend_s2train.frames.sizes import sizes
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from tests.backend_s2train.resnet18 import TABLE

STAGES = (Stage.FORWARD, Stage.BACKWARD, Stage.WEIGHT_GRADIENT)


@st.composite
def geometries(draw: Any) -> Geometry:
    """Any convolution, pads and dilation included."""
    ci, co, n = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 7))
    kernel, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    hi, wi = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    reach = (kernel - 1) * dilation + 1
    top, left, bottom, right = (draw(st.integers(0, reach - 1)) for _ in range(4))
    bottom, right = max(bottom, reach - hi - top), max(right, reach - wi - left)
    ho, wo = (hi + top + bottom - reach) // stride + 1, (wi + left + right - reach) // stride + 1
    pads, strides, dilations = (top, left, bottom, right), (stride, stride), (dilation, dilation)
    return Geometry(n, ci, co, hi, wi, ho, wo, kernel, kernel, strides, pads, dilations)


def convolve(g: Geometry, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    top, left, bottom, right = g.pads
    padded = torch.nn.functional.pad(x, (left, right, top, bottom))
    return torch.nn.functional.conv2d(padded, w, stride=g.stride, dilation=g.dilation)


def bits(values: torch.Tensor) -> Any:
    """Small integers as fp16 bits."""
    return values.detach().numpy().astype(np.float16).view(np.uint16)


def values(found: Any) -> torch.Tensor:
    return torch.tensor(found.view(np.float16).astype(np.float64))


@settings(max_examples=25)
@given(geometries(), st.integers(1, 3), st.integers(1, 3))
def test_a_mosaic_computes_what_its_images_do(g: Geometry, across: int, down: int) -> None:
    """Forward, dx and dw of the mosaics, against torch on the images one by one; exact, as all values are small."""
    g = replace(g, n=max(g.n, across * down))
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randint(-3, 4, shape, generator=generator).double()

    x = draw(g.n, g.ci, g.hi, g.wi).requires_grad_()
    w = draw(g.co, g.ci, g.kh, g.kw).requires_grad_()
    dy = draw(g.n, g.co, g.ho, g.wo)
    y = convolve(g, x, w)
    whole = torch.autograd.grad(y, (x, w), dy)
    packed = replace(g, mosaic=(across, down))
    images = mosaic_of(packed)
    assert (images.n, images.mosaic) == (-(-g.n // (across * down)), (1, 1))
    xs, dys = (values(spread(bits(v), packed, v is x)) for v in (x, dy))
    assert xs.shape == (images.n, g.ci, images.hi, images.wi)
    assert torch.equal(values(collected(bits(xs), packed, True)), x)
    assert torch.equal(values(collected(bits(dys), packed, False)), dy)
    xs.requires_grad_()
    weights = w.detach().clone().requires_grad_()
    ys = convolve(images, xs, weights)
    assert ys.shape == dys.shape
    dxs, dws = torch.autograd.grad(ys, (xs, weights), dys)
    assert torch.equal(values(collected(bits(ys), packed, False)), y)
    assert torch.equal(values(collected(bits(dxs), packed, True)), whole[0])
    assert torch.equal(dws, whole[1])


@given(geometries(), st.sampled_from(STAGES))
def test_packing_never_costs(g: Geometry, stage: Stage) -> None:
    """Under the cost model by which it goes; and never bytes."""
    plain = work_of(Opcode.CONV, stage, g)
    for cost_model in CostModel:
        gain = pack(g, stage, cost_model=cost_model)
        packed = replace(g, mosaic=gain.mosaic)
        work = work_of(Opcode.CONV, stage, packed)
        assert (gain.before, gain.passes_before) == (plain.steps, plain.tile_passes)
        assert (gain.after, gain.passes_after) == (work.steps, work.tile_passes)
        # Products are those of the images.
        assert work.macs == plain.macs
        counted = [w.steps if cost_model is CostModel.PARALLEL else w.serial_steps for w in (work, plain)]
        assert 0 < counted[0] <= counted[1]
        assert gain.images <= g.n
        assert sizes(Opcode.CONV, stage, packed).total.bytes <= sizes(Opcode.CONV, stage, g).total.bytes


def test_three_maps_of_4_x_4_lie_in_a_tile() -> None:
    """3·4 outputs and 2 columns between them in 14 lanes; 16 elements are broadcast in place of 3·6."""
    row = next(row for row in TABLE if row.layer == "l4 3x3")
    g = row.geometry(3)
    assert pitch(g) == (5, 5)
    gain = pack(g, Stage.FORWARD)
    assert gain.mosaic == (3, 1)
    images = mosaic_of(replace(g, mosaic=gain.mosaic))
    assert (images.n, images.wi, images.wo) == (1, 14, 14)
    assert gain.before == 3 * 73_728
    assert gain.after == 8 * 512 * 3 * 16
    assert (gain.passes_before, gain.passes_after) == (24, 8)


def test_two_maps_of_8_x_8_do_not() -> None:
    """8 + 1 + 8 columns are one more than a tile has."""
    row = next(row for row in TABLE if row.layer == "l3 3x3")
    assert pack(row.geometry(16), Stage.FORWARD).images == 1


def test_a_kernel_of_one_needs_no_room() -> None:
    g = Geometry(8, 16, 16, 4, 4, 4, 4)
    gain = pack(g, Stage.FORWARD)
    assert (pitch(g), gain.mosaic, gain.after) == ((4, 4), (4, 1), gain.before)
    assert (gain.passes_before, gain.passes_after) == (8, 2)


def test_maps_of_one_row_are_stacked() -> None:
    """1 x 1 maps under a 3 x 3 kernel: two rows of four work where one did."""
    g = Geometry(8, 4, 4, 1, 1, 1, 1, 3, 3, pads=(1, 1, 1, 1))
    gain = pack(g, Stage.FORWARD)
    assert pitch(g) == (2, 2)
    assert gain.mosaic[1] > 1
    assert gain.after * 2 < gain.before


def test_four_images_lie_in_pairs() -> None:
    """A fourth one would need a fifth of its kind beside it; 11 elements are broadcast in place of 2·6."""
    g = next(row for row in TABLE if row.layer == "l4 3x3").geometry(4)
    gain = pack(g, Stage.FORWARD)
    assert (gain.mosaic, gain.after * 12, gain.passes_after * 2) == ((2, 1), gain.before * 11, gain.passes_before)


def test_a_mosaic_fits_the_feature_memory() -> None:
    """3 x 4 maps of 5 x 5 have 20 rows of 15 columns, so of 1024 channels 150 KiB in each of four memories of 64."""
    narrow, wide = (pack(Geometry(60, ci, 4, 5, 5, 5, 5), Stage.FORWARD) for ci in (64, 1024))
    assert narrow.mosaic == (3, 4)
    assert wide.images < narrow.images


@pytest.mark.parametrize("stage", STAGES)
def test_a_huge_batch_takes_no_time(stage: Stage) -> None:
    gain = pack(Geometry(2**32, 3, 3, 4, 4, 4, 4, 3, 3, pads=(1, 1, 1, 1)), stage)
    assert gain.after < gain.before


wild = st.one_of(st.integers(-2, 20), st.sampled_from([-(2**31), 255, 4096, 65535, 2**31, 2**32 - 1]))
pairs = st.tuples(wild, wild)
shapes = st.builds(
    Geometry, *[wild] * 9, pairs, st.tuples(*[wild] * 4), pairs, wild, channels=pairs, samples=pairs, mosaic=pairs
)


@settings(max_examples=100)
@given(shapes, st.sampled_from(STAGES))
def test_wild_shapes_are_packed_or_refused(g: Geometry, stage: Stage) -> None:
    try:
        gain = pack(g, stage)
        work_of(Opcode.CONV, stage, g)
    except DlcError as refused:
        assert refused.diagnostics[0].code in ("bad-geometry", "too-large")
        return
    assert 0 <= gain.after <= gain.before


@settings(max_examples=100)
@given(geometries(), st.lists(st.tuples(st.integers(0, 12), wild), min_size=1, max_size=2), st.sampled_from(STAGES))
def test_shapes_with_a_wild_figure_are_packed_or_refused(
    g: Geometry, changes: list[tuple[int, int]], stage: Stage
) -> None:
    figures: list[Any] = [*astuple(g)[:9], *g.stride, *g.pads, *g.dilation]
    for at, value in changes:
        figures[at] = value
    tables: list[Any] = [tuple(figures[9:11]), tuple(figures[11:15]), tuple(figures[15:17])]
    changed = Geometry(*figures[:9], *tables)
    try:
        gain = pack(changed, stage)
    except DlcError as refused:
        assert refused.diagnostics[0].code in ("bad-geometry", "too-large")
        return
    assert 0 <= gain.after <= gain.before
