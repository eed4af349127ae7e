"""What frames mean: an array that has nothing but frames computes what torch computes, for every shape and stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.frames.convert import Conversion, Piece, conversion, pieces, receive, send
from dlc_backend_s2train.frames.frame import Memory, decode_frames
from dlc_backend_s2train.frames.layout import Form, layout
from dlc_backend_s2train.frames.planes_and_kernels import decode_kernels, decode_plane, shape_of
from dlc_backend_s2train.frames.sizes import sizes, sizes_of
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Target
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float64]
STAGES = (Stage.FORWARD, Stage.BACKWARD, Stage.WEIGHT_GRADIENT)
FORMS = st.builds(Form, st.booleans(), st.booleans(), st.just(0) | st.integers(4, 16))
Sums = dict[tuple[int, int, int, int, int], Array]
"""Group, unit, first kernel, first row and column of the result."""
SMALL = Target(cores=2, columns=4, weight_bytes=256)
"""Eight columns of 128 elements: small operators need several passes and splits."""


@dataclass
class Machine:
    """Sums up, tile by tile, what frames carry; it keeps the weights or the features that came last."""

    con: Conversion

    def run(self, stream: bytes) -> Array:
        """[groups, units, kernels, h, w] of sums; the results of the operator are among them.

        Each frame of the inner loop meets what the other memory holds.
        """
        lay = self.con.layout
        sums: Sums = {}
        inner = Memory.FM if sizes_of(lay).policy == "weight-stationary" else Memory.WM
        held: dict[Memory, tuple[Piece, Array]] = {}
        for piece, frame in zip(pieces(lay), decode_frames(stream), strict=True):
            low, high = piece.channels
            if piece.memory is Memory.FM:
                shape = high - low, piece.row.plane.count, piece.column.plane.count
                new = decode_plane(frame.rows, lay, shape)
            else:
                begin, end = piece.units
                taps = piece.row.kernel.count, piece.column.kernel.count
                new = decode_kernels(frame.rows, lay, (end - begin, high - low, *taps), self.con.addresses)
            value = real(new)
            held[piece.memory] = piece, value
            if piece.memory is not inner:
                continue
            assert split_of(held[Memory.FM][0]) == split_of(held[Memory.WM][0])
            (feature, plane), (kernel, kernels) = held[Memory.FM], held[Memory.WM]
            key = piece.group, feature.units[0], kernel.units[0], piece.row.result, piece.column.result
            sums[key] = sums.get(key, 0) + self.convolve(plane, kernels)
        return self.assemble(sums)

    def convolve(self, plane: Array, kernels: Array) -> Array:
        """One unit's plane under one pass's kernels: [k, h, w], a tile column after the other."""
        lay, stride = self.con.layout, 1 + self.con.layout.paired
        found: list[Array] = []
        for begin, end in lay.tiles(plane.shape[2]):
            windows = sliding_window_view(plane[:, :, begin:end], kernels.shape[2:], axis=(1, 2))
            found.append(np.tensordot(kernels, windows[:, ::stride, ::stride], ([1, 2, 3], [0, 3, 4])))
        return np.concatenate(found, 2)

    def assemble(self, sums: Sums) -> Array:
        """Sums in the order of groups, units, kernels, blocks of results."""
        lay = self.con.layout
        rows = sorted({row.result for row in lay.rows})
        columns = sorted({column.result for column in lay.columns})

        def block(group: int, unit: int, first: int) -> Array:
            return np.block([[sums[group, unit, first, row, column] for column in columns] for row in rows])

        return np.stack(
            [
                [np.concatenate([block(group, unit, first) for first, _ in lay.passes]) for unit in range(lay.units)]
                for group in range(lay.groups)
            ]
        )


def split_of(piece: Piece) -> object:
    """Frames of one split go together."""
    return piece.group, piece.row, piece.column, piece.channels


def results(con: Conversion, sums: Array, form: Form) -> Array:
    """The operator's results, cut out as the store does."""
    g, stage = con.geometry, con.stage
    found = sums.swapaxes(0, 1) if stage is not Stage.WEIGHT_GRADIENT else sums
    if stage is Stage.FORWARD:
        return found.reshape(g.n, g.co, *found.shape[3:])[..., : g.ho, : g.wo]
    if stage is Stage.WEIGHT_GRADIENT:
        # [groups, ci, co, kh, kw]
        return found.swapaxes(1, 2).reshape(g.co, g.ci // g.groups, g.kh, g.kw)
    found = found.reshape(g.n, g.ci, *found.shape[3:])
    if (g.kh, g.kw) == (1, 1):
        whole = np.zeros((g.n, g.ci, g.hi, g.wi))
        rows = [i * g.stride[0] - g.pads[0] for i in range(g.ho)]
        columns = [i * g.stride[1] - g.pads[1] for i in range(g.wo)]
        rows, columns = [r for r in rows if 0 <= r < g.hi], [c for c in columns if 0 <= c < g.wi]
        if rows and columns:
            whole[:, :, rows[0] :: g.stride[0], columns[0] :: g.stride[1]][:, :, : len(rows), : len(columns)] = found
        return whole
    top = 0 if form.exact or g.kh > 3 or g.dilation != (1, 1) else g.pads[0]
    left = 0 if form.exact or g.kw > 3 or g.dilation != (1, 1) else g.pads[1]
    # Of what negative pads cut off, no results come: their gradient is zero.
    found = np.pad(found, ((0, 0), (0, 0), (max(-top, 0), 0), (max(-left, 0), 0)))
    top, left = max(top, 0), max(left, 0)
    return found[:, :, top : top + g.hi, left : left + g.wi]


def reference(g: Geometry, x: Array, w: Array, dy: Array) -> dict[Stage, Array]:
    """y, dx and dw of torch in float64."""
    # Calls of torch are barely typed.
    t: Any = torch
    tx, tw = t.from_numpy(x).requires_grad_(), t.from_numpy(w).requires_grad_()
    top, left, bottom, right = g.pads
    padded = t.nn.functional.pad(tx, (left, right, top, bottom))
    y = t.conv2d(padded, tw, stride=g.stride, dilation=g.dilation, groups=g.groups)[:, :, : g.ho, : g.wo]
    y.backward(t.from_numpy(dy))
    return {
        Stage.FORWARD: y.detach().numpy(),
        Stage.BACKWARD: tx.grad.numpy(),
        Stage.WEIGHT_GRADIENT: tw.grad.numpy(),
    }


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    """Shapes of all kinds: strides, dilations, groups, rectangular and large kernels, negative pads, unread rows."""
    number = st.integers(1, 3)
    groups = draw(st.sampled_from([1, 1, 1, 2]))
    ci, co = draw(st.integers(1, 9)) * groups, draw(st.integers(1, 9)) * groups
    plain = draw(st.booleans())
    kh = draw(st.sampled_from([1, 3, 3, 3]) if plain else st.integers(1, 7))
    kw = kh if plain else draw(st.integers(1, 7))
    s = draw(st.integers(1, 2)) if plain else 0
    stride = (s, s) if plain else (draw(number), draw(number))
    dilation = (1, 1) if plain else (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    hi, wi = draw(st.integers(1, 12)), draw(st.integers(1, 36))
    pads = tuple(draw(st.integers(-1, 3)) for _ in range(4))
    spans = hi + pads[0] + pads[2] - (kh - 1) * dilation[0], wi + pads[1] + pads[3] - (kw - 1) * dilation[1]
    hi, wi = hi + max(1 - spans[0], 0), wi + max(1 - spans[1], 0)
    ho = (max(spans[0], 1) - 1) // stride[0] + 1
    wo = (max(spans[1], 1) - 1) // stride[1] + 1
    n = draw(number)
    return Geometry(n, ci, co, hi, wi, ho, wo, kh, kw, stride, (pads[0], pads[1], pads[2], pads[3]), dilation, groups)


def integers(shape: tuple[int, ...], seed: int) -> Array:
    """Small integers, which fp16 holds and float64 sums exactly."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


def bits(values: Array) -> NDArray[np.uint16]:
    return values.astype(np.float16).view(np.uint16)


@settings(max_examples=40, deadline=None)
@given(geometries(), st.sampled_from(STAGES), FORMS, st.sampled_from([Target(), SMALL]))
def test_frames_carry_convolutions(g: Geometry, stage: Stage, form: Form, target: Target) -> None:
    check_meaning(g, stage, form, target)


def check_meaning(g: Geometry, stage: Stage, form: Form, target: Target) -> None:
    """The machine that gets the frames computes what torch does, and as many bytes are counted."""
    x, w, dy = (integers(shape_of(what, g), i) for i, what in enumerate("xwy"))
    tensors = {"x": bits(x), "w": bits(w), "y": bits(dy)}
    con = conversion(Opcode.CONV, stage, g, form, target)
    features, kernels = (tensors[con.view(memory).what] for memory in Memory)
    stream = b"".join(send(con, features, kernels))
    found = results(con, Machine(con).run(stream), form)
    np.testing.assert_array_equal(found, reference(g, x, w, dy)[stage])
    counted = sizes(Opcode.CONV, stage, g, form, target)
    assert counted.total.bytes == len(stream)
    assert counted.total.frames == len(list(decode_frames(stream)))


GRIDS = {
    "blocks of 11x11": Geometry(2, 3, 5, 24, 24, 5, 5, 3, 3, (4, 4), (2, 1, -1, 0), (4, 4)),
    "ratio 2": Geometry(2, 3, 5, 23, 40, 5, 9, 3, 3, (4, 4), (1, 2, 1, 2), (2, 2)),
    "one row": Geometry(2, 3, 5, 9, 40, 5, 13, 1, 3, (2, 3), (0, 2, 0, 1), (1, 3)),
    "large": Geometry(1, 2, 3, 20, 20, 6, 6, 5, 4, (2, 2), (0, 0, 0, 0), (2, 2)),
}


@pytest.mark.parametrize("form", [Form(), Form(exact=False, merged=True)], ids=["exact", "published"])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("g", GRIDS.values(), ids=list(GRIDS))
def test_frames_carry_samples_that_lie_apart(g: Geometry, stage: Stage, form: Form) -> None:
    """A dilation that divides the stride: the plane has the samples of one phase, on which the stride is 1 or 2."""
    check_meaning(g, stage, form, Target())
    if stage is Stage.FORWARD:
        lay = layout(Opcode.CONV, stage, g, form)
        assert {part.kernel.count for part in (*lay.rows, *lay.columns)} == {3}


@settings(max_examples=60, deadline=None)
@given(geometries(), st.sampled_from(STAGES), FORMS, st.sampled_from([Target(), SMALL]))
def test_what_was_sent_is_received(g: Geometry, stage: Stage, form: Form, target: Target) -> None:
    con = conversion(Opcode.CONV, stage, g, form, target)
    # Any bits but zero: NaN with payloads and subnormals pass unchanged.
    sent = {memory: anything(shape_of(con.view(memory).what, g)) for memory in Memory}
    stream = b"".join(send(con, sent[Memory.FM], sent[Memory.WM], first=7))
    received = receive(con, decode_frames(stream))
    for memory in Memory:
        came = received[memory] != 0
        np.testing.assert_array_equal(received[memory][came], sent[memory][came])
    if stage is not Stage.WEIGHT_GRADIENT:
        assert (received[Memory.WM] != 0).all()
    if stage is Stage.FORWARD and g.stride == (1, 1) and not form.exact and max(g.kh, g.kw) <= 3 and min(g.pads) >= 0:
        assert g.dilation != (1, 1) or (received[Memory.FM] != 0).all()


def anything(shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """All bits of fp16 but those of zero."""
    return np.random.default_rng(5).integers(1, 1 << 16, shape, dtype=np.uint16)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 300), st.integers(1, 300), st.sampled_from(STAGES), st.booleans(), st.booleans()
)
def test_frames_carry_linear_layers(n: int, ci: int, co: int, stage: Stage, merged: bool, small: bool) -> None:
    g, form, target = Geometry(n, ci, co), Form(merged=merged), SMALL if small else Target()
    x, w, dy = integers((n, ci), 1), integers((co, ci), 2), integers((n, co), 3)
    rows, outputs, want = {
        Stage.FORWARD: (n, co, x @ w.T),
        Stage.BACKWARD: (n, ci, dy @ w),
        Stage.WEIGHT_GRADIENT: (ci, co, x.T @ dy),
    }[stage]
    con = conversion(Opcode.LINEAR, stage, g, form, target)
    tensors = {"x": bits(x), "w": bits(w), "y": bits(dy)}
    features, kernels = (tensors[con.view(memory).what] for memory in Memory)
    stream = b"".join(send(con, features, kernels))
    # A column's kernel [c, 1, 16] is 16 outputs side by side, each with the weights of all inputs.
    found = np.zeros((rows, con.layout.kernels * 16))
    planes: dict[tuple[int, int], Array] = {}
    blocks: dict[tuple[int, int], list[tuple[int, Array]]] = {}
    for piece, frame in zip(pieces(con.layout), decode_frames(stream), strict=True):
        low, high = piece.channels
        if piece.memory is Memory.FM:
            values = decode_plane(frame.rows, con.layout, (high - low, rows, 1))
            planes[piece.channels] = real(values)[:, :, 0].T
        else:
            begin, end = piece.units
            values = real(decode_kernels(frame.rows, con.layout, (end - begin, high - low, 1, 16), con.addresses))
            matrix = values[:, :, 0].transpose(0, 2, 1).reshape(-1, high - low)
            blocks.setdefault(piece.channels, []).append((begin * 16, matrix))
    for channels, plane in planes.items():
        for begin, matrix in blocks[channels]:
            found[:, begin : begin + len(matrix)] += plane @ matrix.T
    np.testing.assert_array_equal(found[:, :outputs], want)
    assert not found[:, outputs:].any()
    assert sizes(Opcode.LINEAR, stage, g, form, target).total.bytes == len(stream)
    received = receive(con, decode_frames(stream))
    np.testing.assert_array_equal(received[Memory.FM].ravel(), features.ravel())
    np.testing.assert_array_equal(received[Memory.WM].ravel(), kernels.ravel())


def real(values: NDArray[np.uint16]) -> Array:
    return np.ascontiguousarray(values).view(np.float16).astype(np.float64)
