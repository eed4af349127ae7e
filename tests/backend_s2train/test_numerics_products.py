"""Convolutions and linear layers: against PyTorch in fp64 within the stated bound, and a loop in the stated order."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.codes import Flag, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry
from dlc_backend_s2train.simulator.operands import Array, Mode, OperandError, rounded
from dlc_backend_s2train.simulator.products import bound
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend_s2train.numerics_cases import GEOMETRIES, WHOLE, convolution, do, halves, same_bits

F: Any = torch.nn.functional
MODES: tuple[Mode, ...] = ("fast", "bit-true")
every_geometry = pytest.mark.parametrize("g", GEOMETRIES.values(), ids=list(GEOMETRIES))
every_mode = pytest.mark.parametrize("mode", MODES)
OUT = WHOLE | Splitting.ACCUMULATE_OUT


def place(g: Geometry, i: int, r: int, axis: int) -> int:
    """The row or column of x that output i takes with kernel row or column r."""
    return i * g.stride[axis] + r * g.dilation[axis] - g.pads[axis]


def naive_forward(x: Array, w: Array, g: Geometry) -> Array:
    y = np.zeros((g.n, g.co, g.ho, g.wo), np.float32)
    for n, co, i, j in np.ndindex(*y.shape):
        first = co // (g.co // g.groups) * (g.ci // g.groups)
        acc = np.float32(0)
        for r, c, k in product(range(g.kh), range(g.ci // g.groups), range(g.kw)):
            h, v = place(g, i, r, 0), place(g, j, k, 1)
            if 0 <= h < g.hi and 0 <= v < g.wi:
                acc = np.float32(acc + np.float32(x[n, first + c, h, v] * w[co, c, r, k]))
        y[n, co, i, j] = acc
    return y


def naive_backward(dy: Array, w: Array, g: Geometry) -> Array:
    dx = np.zeros((g.n, g.ci, g.hi, g.wi), np.float32)
    each = g.co // g.groups
    for n, ci, h, v in np.ndindex(*dx.shape):
        group, c = divmod(ci, g.ci // g.groups)
        acc = np.float32(0)
        for r, o, k in product(reversed(range(g.kh)), range(each), reversed(range(g.kw))):
            i, rest_i = divmod(h + g.pads[0] - r * g.dilation[0], g.stride[0])
            j, rest_j = divmod(v + g.pads[1] - k * g.dilation[1], g.stride[1])
            if not rest_i and not rest_j and 0 <= i < g.ho and 0 <= j < g.wo:
                co = group * each + o
                acc = np.float32(acc + np.float32(dy[n, co, i, j] * w[co, c, r, k]))
        dx[n, ci, h, v] = acc
    return dx


def naive_gradient(dy: Array, x: Array, g: Geometry) -> Array:
    dw = np.zeros((g.co, g.ci // g.groups, g.kh, g.kw), np.float32)
    for co, c, r, k in np.ndindex(*dw.shape):
        first = co // (g.co // g.groups) * (g.ci // g.groups)
        acc = np.float32(0)
        for n, i, j in np.ndindex(g.n, g.ho, g.wo):
            h, v = place(g, i, r, 0), place(g, j, k, 1)
            if 0 <= h < g.hi and 0 <= v < g.wi:
                acc = np.float32(acc + np.float32(dy[n, co, i, j] * x[n, first + c, h, v]))
        dw[co, c, r, k] = acc
    return dw


@every_geometry
def test_bit_true_is_the_loop_in_the_stated_order(g: Geometry) -> None:
    x, w, dy = convolution(g)
    assert same_bits(
        do(Opcode.CONV, Stage.FORWARD, geometry=g, splitting=OUT, src0=x, src1=w)["dst0"], naive_forward(x, w, g)
    )
    found = do(Opcode.CONV, Stage.BACKWARD, geometry=g, splitting=OUT, src0=dy, src1=w)["dst0"]
    assert same_bits(found, naive_backward(dy, w, g))
    found = do(Opcode.CONV, Stage.WEIGHT_GRADIENT, geometry=g, splitting=OUT, src0=dy, src1=x)["dst0"]
    assert same_bits(found, naive_gradient(dy, x, g))


def test_the_order_shows() -> None:
    """1 + 2⁻²⁴ + 2⁻²⁴ is 1 from the left and more than 1 from the right: sums are those of fp32, by feature."""
    g, one = Geometry(1, 3, 1), np.ones((1, 3), np.float32)
    for w, expected in (([1, 2**-24, 2**-24], 1.0), ([2**-24, 2**-24, 1], 1 + 2**-23)):
        weights = np.array([w], np.float32)
        y = do(Opcode.LINEAR, Stage.FORWARD, geometry=g, splitting=OUT, src0=one, src1=weights)["dst0"]
        assert y.item() == expected


def exact(x: Array, w: Array, dy: Array, g: Geometry) -> tuple[Array, Array, Array]:
    """y, dx and dw in fp64 by PyTorch."""
    a, b = (torch.tensor(v.astype(np.float64), requires_grad=True) for v in (x, w))
    padded = F.pad(a, (g.pads[1], g.pads[3], g.pads[0], g.pads[2]))
    y = F.conv2d(padded, b, stride=g.stride, dilation=g.dilation, groups=g.groups)[:, :, : g.ho, : g.wo]
    y.backward(torch.tensor(dy.astype(np.float64)))
    assert a.grad is not None and b.grad is not None
    return y.detach().numpy(), a.grad.numpy(), b.grad.numpy()


def counts(g: Geometry) -> tuple[int, int, int]:
    """Products in each sum of the three stages, zeros of padding among them."""
    return g.kh * g.kw * g.ci // g.groups, g.kh * g.kw * g.co // g.groups, g.n * g.ho * g.wo


def check(g: Geometry, mode: Mode, seed: int) -> None:
    x, w, dy = convolution(g, seed)
    found = (
        do(Opcode.CONV, Stage.FORWARD, geometry=g, mode=mode, src0=x, src1=w),
        do(Opcode.CONV, Stage.BACKWARD, geometry=g, mode=mode, src0=dy, src1=w),
        do(Opcode.CONV, Stage.WEIGHT_GRADIENT, geometry=g, mode=mode, src0=dy, src1=x),
    )
    magnitudes = exact(abs(x), abs(w), abs(dy), g)
    for result, y, magnitude, products in zip(found, exact(x, w, dy, g), magnitudes, counts(g), strict=True):
        error = np.abs(rounded(result["dst0"]).astype(np.float64) - y)
        assert (error <= bound(y, magnitude, products)).all()


@every_mode
@every_geometry
def test_all_stages_agree_with_torch(g: Geometry, mode: Mode) -> None:
    check(g, mode, seed=7)


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    groups, (sh, sw), (kh, kw), (dh, dw) = (
        draw(st.integers(1, 3)),
        draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        draw(st.tuples(st.integers(1, 4), st.integers(1, 4))),
        draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
    )
    ho, wo = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    pads = draw(st.tuples(*[st.integers(-2, 3)] * 4))
    need_h, need_w = (ho - 1) * sh + (kh - 1) * dh + 1, (wo - 1) * sw + (kw - 1) * dw + 1
    # What is cropped must leave something: a row or column of data at least.
    hi = max(need_h - pads[0] - pads[2], 1 + max(0, -pads[0]) + max(0, -pads[2])) + draw(st.integers(0, 2))
    wi = max(need_w - pads[1] - pads[3], 1 + max(0, -pads[1]) + max(0, -pads[3])) + draw(st.integers(0, 2))
    ci, co = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    return Geometry(draw(st.integers(1, 2)), ci, co, hi, wi, ho, wo, kh, kw, (sh, sw), pads, (dh, dw), groups)


@settings(max_examples=150)
@given(geometries(), st.sampled_from(MODES), st.integers(0, 1000))
def test_any_geometry_agrees_with_torch(g: Geometry, mode: Mode, seed: int) -> None:
    check(g, mode, seed)


def test_the_bound_would_see_a_product_that_is_missing() -> None:
    g = Geometry(1, 64, 8, 4, 4, 4, 4, 3, 3, pads=(1, 1, 1, 1))
    x, w, dy = convolution(g)
    y, _, _ = exact(x, w, dy, g)
    magnitude, _, _ = exact(abs(x), abs(w), abs(dy), g)
    w[:, 0, 1, 1] = 0
    found = rounded(do(Opcode.CONV, Stage.FORWARD, geometry=g, src0=x, src1=w)["dst0"])
    assert (np.abs(found - y) > bound(y, magnitude, 576)).mean() > 0.9


@every_mode
@pytest.mark.parametrize("stage", [Stage.FORWARD, Stage.BACKWARD])
def test_channel_splits_add_up(mode: Mode, stage: Stage) -> None:
    """The sum over channels 0 to 3 goes out as fp32 and comes in again for 3 to 5."""
    g = Geometry(2, 5, 5, 5, 4, 5, 4, 3, 3, pads=(1, 1, 1, 1))
    x, w, _ = convolution(g)
    partial: Array | None = None
    for low, high in ((0, 3), (3, 5)):
        part = w[:, low:high] if stage is Stage.FORWARD else w[low:high]
        split = Geometry(2, 5, 5, 5, 4, 5, 4, 3, 3, pads=g.pads, channels=(low, high))
        into: Any = {} if partial is None else {"aux": partial}
        splitting = OUT if partial is None else OUT | Splitting.ACCUMULATE_IN
        partial = do(Opcode.CONV, stage, geometry=split, splitting=splitting, mode=mode, src0=x, src1=part, **into)[
            "dst0"
        ]
    whole = do(Opcode.CONV, stage, geometry=g, splitting=OUT, mode=mode, src0=x, src1=w)["dst0"]
    assert partial is not None
    np.testing.assert_allclose(partial, whole, rtol=0, atol=1e-4)
    assert not same_bits(partial, np.zeros_like(partial))


def test_a_partial_sum_is_where_the_loop_begins() -> None:
    g = Geometry(1, 2, 1)
    x, w = np.array([[1, 1]], np.float32), np.array([[2**-24, 2**-24]], np.float32)
    begin = np.array([[1]], np.float32)
    splitting = OUT | Splitting.ACCUMULATE_IN
    y = do(Opcode.LINEAR, Stage.FORWARD, geometry=g, splitting=splitting, src0=x, src1=w, aux=begin)["dst0"]
    assert y.item() == 1.0


@every_mode
def test_the_weight_gradient_of_some_channels(mode: Mode) -> None:
    g = GEOMETRIES["stride-2"]
    x, _, dy = convolution(g)
    part = Geometry(2, 3, 4, 8, 6, 4, 3, 3, 3, (2, 2), (1, 1, 1, 1), channels=(1, 3))
    whole = do(Opcode.CONV, Stage.WEIGHT_GRADIENT, geometry=g, mode=mode, src0=dy, src1=x)["dst0"]
    found = do(Opcode.CONV, Stage.WEIGHT_GRADIENT, geometry=part, mode=mode, src0=dy, src1=x)["dst0"]
    np.testing.assert_allclose(found, whole[:, 1:3], rtol=1e-5, atol=1e-5)


@every_mode
@pytest.mark.parametrize("opcode", [Opcode.CONV, Opcode.LINEAR])
def test_the_gradient_of_a_bias_is_a_sum(mode: Mode, opcode: Opcode) -> None:
    g = Geometry(3, 2, 4) if opcode is Opcode.LINEAR else GEOMETRIES["3x3"]
    dy = halves(0, g.n, g.co, g.ho, g.wo)
    found = do(opcode, Stage.WEIGHT_GRADIENT, geometry=g, mode=mode, src0=dy)["dst0"]
    y = dy.astype(np.float64).sum(axis=(0, 2, 3))
    assert found.shape == (g.co,)
    assert (np.abs(found - y) <= bound(y, abs(dy).sum(axis=(0, 2, 3)), g.n * g.ho * g.wo)).all()
    again = do(
        opcode,
        Stage.WEIGHT_GRADIENT,
        geometry=g,
        mode=mode,
        splitting=OUT | Splitting.ACCUMULATE_IN,
        src0=dy,
        aux=found,
    )["dst0"]
    np.testing.assert_allclose(again, 2 * found, rtol=1e-5)


@every_mode
def test_infinities_and_nans_pass(mode: Mode) -> None:
    g = Geometry(1, 2, 3)
    x = np.array([[65504.0, np.inf]], np.float32)
    w = np.array([[1, 0], [1, 1], [65504.0, 0.0]], np.float32)
    y = do(Opcode.LINEAR, Stage.FORWARD, geometry=g, mode=mode, src0=x, src1=w)["dst0"].reshape(-1)
    assert np.isnan(y[0]) and y[1] == np.inf and np.isnan(y[2])


def test_two_runs_have_the_same_bits() -> None:
    g = Geometry(2, 70, 40, 6, 6, 6, 6, 3, 3, pads=(1, 1, 1, 1))
    x, w, dy = convolution(g)
    for stage, a, b in ((Stage.FORWARD, x, w), (Stage.BACKWARD, dy, w), (Stage.WEIGHT_GRADIENT, dy, x)):
        one, two = (do(Opcode.CONV, stage, geometry=g, splitting=OUT, src0=a, src1=b)["dst0"] for _ in range(2))
        assert same_bits(one, two)


@pytest.mark.parametrize(
    ("g", "what"),
    [
        (Geometry(1, 2, 2, 4, 4, 3, 2, 3, 3), "3 windows of 3 need 5 elements"),
        (Geometry(1, 2, 2, 4, 4, 2, 2, 3, 3, stride=(0, 1)), "strides and dilations are positive"),
        (Geometry(1, 3, 2, 4, 4, 2, 2, 3, 3, groups=2), "2 groups do not divide 3 and 2"),
        (Geometry(1, 2, 2, 4, 4, 2, 2, 3, 3, channels=(1, 3)), "channels 1 to 3 of 2"),
        (Geometry(1, 2, 2, 4, 4, 2, 2, 3, 2), r"src1 is \[2, 2, 3, 3\], but \[2, 2, 3, 2\]"),
        (Geometry(2, 2, 2, 4, 4, 2, 2, 3, 3), r"src0 is \[1, 2, 4, 4\]"),
        (Geometry(1, 2, 2, 4, 4, 2, 2, 3, 3, dilation=(2**30, 1), pads=(2**31, 0, 0, 0)), "elements, of which"),
    ],
)
def test_operands_that_do_not_fit_are_refused(g: Geometry, what: str) -> None:
    w = halves(1, 2, 3 if g.channels != (0, 0) else 2, 3, 3)
    x = halves(0, 1, 3 if g.groups == 2 else 2, 4, 4)
    with pytest.raises(OperandError, match=what):
        do(Opcode.CONV, Stage.FORWARD, Flag.RELU, geometry=g, src0=x, src1=w)


def test_a_linear_layer_has_no_map() -> None:
    g = GEOMETRIES["3x3"]
    x, w, _ = convolution(g)
    with pytest.raises(OperandError, match="1 x 1"):
        do(Opcode.LINEAR, Stage.FORWARD, geometry=g, src0=x, src1=w)
