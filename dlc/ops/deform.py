"""Regions of interest and deformable convolutions: both sample images at places that are data."""

from __future__ import annotations

import math
from typing import Any, Literal

from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, axes, comp, grid, same
from dlc.kernel.expr import Const, apply
from dlc.ops.elementwise import Add, Mul
from dlc.ops.linear import Einsum
from dlc.ops.reduce import ReduceMax, ReduceMean
from dlc.ops.sample import SampleAt
from dlc.ops.shape import Reshape
from dlc.ops.window import defaulted, row_major, window_size


class RoiPlaces(Op):
    """at[r,p,i,q,j,:] of sample (i, j) of `samples`² in bin (p, q) of `bins` of region r; rois[r] = x1, y1, x2, y2.

    Regions are multiplied by `scale`; with `half` elements are half a unit in from the corners of their squares, else a
    region is at least 1 long and wide.
    """

    rois: Op
    bins: tuple[int, int] = (1, 1)
    samples: int = 1
    scale: float = 1.0
    half: bool = True

    def define(self, *params: Any) -> tuple[Comp, ...]:
        (rois,) = params
        if len(rois.shape) != 2 or rois.shape[1] != 4 or not rois.dtype.is_float or self.samples < 1:
            raise ShapeError(f"regions {rois.type} with {self.samples} samples along each side of a bin")
        shape = (rois.shape[0], self.bins[0], self.samples, self.bins[1], self.samples)
        r, p, i, q, j = axes("r p i q j", *shape)
        into = (*shape, 2)
        parts: list[Comp] = []
        for d, (part, sample) in enumerate(((p, i), (q, j))):
            start, end = (rois[r, k] * self.scale - (0.5 if self.half else 0.0) for k in (1 - d, 3 - d))
            length = end - start if self.half else apply("max", end - start, 1.0)
            unit = length / float(part.extent or 1)
            step = apply(rois.dtype.name, sample) + 0.5
            place = start + apply(rois.dtype.name, part) * unit + step * unit / float(self.samples)
            parts.append(comp((r, p, i, q, j, Const(d)), place, into=into, over=(r, p, i, q, j)))
        return tuple(parts)


class RoiAlign(Op):
    """y[r,c,p,q] = mean, or maximum, over the samples of bin (p, q) of region r of x[batch[r],c] (ONNX RoiAlign 22).

    The maximum is over the products of elements and their weights, not over interpolated values.
    """

    x: Op
    rois: Op
    batch: Op
    bins: tuple[int, int] = (1, 1)
    samples: int = 1
    scale: float = 1.0
    half: bool = True
    mode: Literal["avg", "max"] = "avg"

    def expand(self) -> Op:
        same(len(self.x.shape), 4, "dimensions of an image")
        at = RoiPlaces(self.rois, bins=self.bins, samples=self.samples, scale=self.scale, half=self.half)
        if self.mode == "max":
            values = SampleAt(self.x, at, self.batch, padding="near", reduce="max")
            return ReduceMax(values, axes=(3, 5))
        return ReduceMean(SampleAt(self.x, at, self.batch, padding="near"), axes=(3, 5))


class DeformPlaces(Op):
    """at[n,g,k…,o…,:] = o·stride + k·dilation - pad + offset[n,(g,k…,d),o…]: where tap k of window o of group g is."""

    offset: Op
    groups: int = 1
    window: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()

    def define(self, *params: Any) -> tuple[Comp, ...]:
        (offset,) = params
        rank = len(self.window)
        figures = self.groups * math.prod(self.window) * rank
        if rank < 1 or len(offset.shape) != rank + 2 or self.groups < 1 or offset.shape[1] != figures:
            raise ShapeError(f"offsets {offset.type} for {self.groups} groups of windows {list(self.window)}")
        n, g = axes("n g", offset.shape[0], self.groups)
        k, o = grid(self.window, "k"), grid(offset.shape[2:], "o")
        over = (n, g, *k, *o)
        into = (*(a.extent for a in over), rank)
        parts: list[Comp] = []
        for d in range(rank):
            number = row_major([g, *k, Const(d)], [self.groups, *self.window, rank])
            whole = o[d] * self.stride[d] + k[d] * self.dilation[d] - self.pads[d]
            place = offset[(n, number, *o)] + apply(offset.dtype.name, whole)
            parts.append(comp((*over, Const(d)), place, into=into, over=over))
        return tuple(parts)


class DeformConv(Op):
    """A convolution whose taps are moved by `offset` and multiplied by `mask` (ONNX DeformConv 22).

    x is [N, C, D…], w [F, C/group, K…], b [F]; offset [N, G·ΠK·rank, O…] and mask [N, G·ΠK, O…] are for G groups of
    input channels. Between elements x is interpolated linearly, outside it is 0.
    """

    x: Op
    w: Op
    offset: Op
    b: Op | None = None
    mask: Op | None = None
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    group: int = 1
    offset_group: int = 1

    def expand(self) -> Op:
        x, w = self.x.shape, self.w.shape
        rank, group, parts = len(x) - 2, self.group, self.offset_group
        if rank < 1 or len(w) != rank + 2:
            raise ShapeError(f"data {self.x.type} and weights {self.w.type} must have one rank of at least 3")
        if min(group, parts) < 1 or w[0] % group or x[1] % group or x[1] % parts:
            raise ShapeError(f"{x[1]} input and {w[0]} output channels, {group} groups, {parts} groups of offsets")
        same(x[1] // group, w[1], "channels per group")
        stride = defaulted(self.stride, rank, 1, "stride")
        pads = defaulted(self.pads, 2 * rank, 0, "pads")
        dilation = defaulted(self.dilation, rank, 1, "dilation")
        out = tuple(
            window_size(x[d + 2], w[d + 2], stride[d], pads[d], pads[rank + d], dilation[d]) for d in range(rank)
        )
        if self.offset.shape[2:] != out or self.offset.shape[:1] != x[:1]:
            raise ShapeError(f"offsets {self.offset.type} for {x[0]} results of {list(out)}")
        figures = {"stride": stride, "pads": pads, "dilation": dilation}
        at = DeformPlaces(self.offset, groups=parts, window=w[2:], **figures)
        per, taps, points = x[1] // parts, math.prod(w[2:]), math.prod(out)
        places = Reshape(at, to=(x[0] * parts, *w[2:], *out, rank))
        columns: Op = SampleAt(Reshape(self.x, to=(x[0] * parts, per, *x[2:])), places)
        if self.mask is not None:
            if self.mask.shape != (x[0], parts * taps, *out):
                raise ShapeError(f"a mask {self.mask.type} for {x[0]} results of {list(out)}")
            split = Reshape(columns, to=(x[0] * parts, per, taps, points))
            columns = Mul(split, Reshape(self.mask, to=(x[0] * parts, 1, taps, points)))
        weights = Reshape(self.w, to=(group, w[0] // group, w[1], taps))
        y = Einsum((Reshape(columns, to=(x[0], group, w[1], taps, points)), weights), equation="ngctp,gfct->ngfp")
        y = Reshape(y, to=(x[0], w[0], *out))
        if self.b is None:
            return y
        same(self.b.type.size, w[0], "bias and output channels")
        return Add(y, Reshape(self.b, to=(w[0], *(1,) * rank)))
