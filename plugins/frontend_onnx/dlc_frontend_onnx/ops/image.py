"""Operators that put elements of images at computed places, or take them from there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from dlc.base.types import Type, i64
from dlc.graph import Op, Splat
from dlc.kernel.define import ShapeError
from dlc.ops import linear
from dlc.ops.deform import DeformConv, RoiAlign
from dlc.ops.index import ScatterElements
from dlc.ops.pointwise import literal
from dlc.ops.roi_pool import MaxRoiPool
from dlc.ops.sample import GridSample, Mode
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.implied import Choices, block_sizes, exactly
from dlc_frontend_onnx.node import Node, cast
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.unsupported import Unsupported

MOST_TRIED: Final = 256
"""Extents of a block up to which it is looked for."""


@onnx("MaxUnpool", since=9)
def max_unpool(node: Node) -> Op:
    """Zeros, but for the elements of x at indices into the result, as MaxPool gives them.

    They are indices into the shape that is asked for, of what MaxPool has read, as onnxruntime and PyTorch have it. The
    node test of ONNX up to 1.23 with an output shape takes them for indices into the smaller shape that the windows
    cover, and pads that: wrong for a MaxPool of an odd size (https://github.com/onnx/onnx/issues/2398).
    """
    x, kernel = node.x(0), node.ints("kernel_shape") or ()
    rank = len(x.shape) - 2
    stride, pads = node.ints("strides") or (1,) * rank, node.ints("pads") or (0,) * (2 * rank)
    if rank < 1 or len(kernel) != rank or len(stride) != rank or len(pads) != 2 * rank:
        raise ShapeError(f"windows {list(kernel)} of stride {list(stride)} with pads {list(pads)} for {x.type}")
    reach = [(e - 1) * stride[d] - pads[d] - pads[rank + d] + kernel[d] for d, e in enumerate(x.shape[2:])]
    wanted = node.numbers_or_none(2, "the output shape", lambda outs: exactly(*outs[0]))
    to = (*x.shape[:2], *reach) if wanted is None else tuple(wanted)
    if any(e < 0 for e in to):
        raise ShapeError(f"{x.type} unpools to {list(to)}")
    if len(to) != len(x.shape) or to[:2] != x.shape[:2]:
        raise ShapeError(f"the output shape {list(to)} has other samples or channels than {x.type}")
    zeros, count = Splat(literal(0, x.dtype), Type(x.dtype, (math.prod(to),))), (x.type.size,)
    return reshaped(ScatterElements(zeros, reshaped(node.x(1), count), reshaped(x, count)), to)


@onnx("Col2Im", since=18)
def col2im(node: Node) -> Op:
    """The sum of windows at their places in an image."""
    x, stride, pads = node.x(0), node.ints("strides") or (), node.ints("pads") or ()
    dilation = node.ints("dilations") or ()
    image = node.numbers(1, "the shape of the image", lambda outs: exactly(*outs[0][2:]))

    def windows(block: Sequence[int]) -> int:
        rank, count = len(image), 1
        if not len(stride or block) == len(dilation or block) == len(block) == rank:
            return -1
        for d, size in enumerate(block):
            padded = image[d] + (pads[d] + pads[rank + d] if len(pads) == 2 * rank else 0)
            reach = (dilation[d] if dilation else 1) * (size - 1) + 1
            count *= max((padded - reach) // ((stride[d] if stride else 1) or 1) + 1, 0)
        return count

    def blocks(out: Sequence[int]) -> Choices:
        if len(x.shape) != 3 or len(out) < 2 or not out[1] or x.shape[1] % out[1]:
            return None
        extents = [range(1, min(n, MOST_TRIED) + 1) for n in image]
        return block_sizes(x.shape[1] // out[1], extents, windows, x.shape[2]) if len(image) <= 3 else None

    block = node.numbers(2, "the shape of the windows", lambda outs: blocks(outs[0]))
    return linear.Col2Im(x, image=image, block=block, stride=stride, pads=pads, dilation=dilation)


_MODES: Final[Mapping[str, Mode]] = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}


@onnx("GridSample", since=16)
@onnx("GridSample", domain=MICROSOFT)
def grid_sample(node: Node) -> Op:
    """x at the places that a grid of numbers from -1 to 1 means."""
    mode, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    if mode not in _MODES:
        raise Unsupported(f"sampling mode {mode!r}", f"supported: {', '.join(_MODES)}")
    if padding not in ("zeros", "border", "reflection"):
        raise Unsupported(f"padding mode {padding!r}", "zeros, border and reflection are defined")
    beyond: Literal["zeros", "border", "reflection"] = padding
    return GridSample(node.x(0), node.x(1), _MODES[mode], beyond, aligned=node.flag("align_corners"))


@onnx("RoiAlign", since=10)
def roi_align_of_corners(node: Node) -> Op:
    """Bins of regions; corners of elements are at whole numbers."""
    return _roi_align(node, half=False)


@onnx("RoiAlign", since=16)
def roi_align(node: Node) -> Op:
    """Bins of regions."""
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    if mode not in ("half_pixel", "output_half_pixel"):
        raise Unsupported(f"coordinates {mode!r}", "half_pixel and output_half_pixel are defined")
    return _roi_align(node, half=mode == "half_pixel")


def _roi_align(node: Node, half: bool) -> Op:
    mode, samples = node.text("mode", "avg"), node.int("sampling_ratio")
    bins = node.int("output_height", 1), node.int("output_width", 1)
    if mode not in ("avg", "max"):
        raise Unsupported(f"mode {mode!r}", "avg and max are defined")
    if samples < 1:
        raise Unsupported("as many samples as a region is large", "export the model with a sampling_ratio above 0")
    if min(bins) < 1:
        raise ShapeError(f"bins of {bins[0]} by {bins[1]}")
    x, rois = node.x(0), node.x(1)
    check_count(math.prod((*x.shape[1:2], *rois.shape[:1], *bins, samples, samples)), "the samples of all regions")
    kind: Literal["avg", "max"] = "max" if mode == "max" else "avg"
    scale = node.float("spatial_scale", 1.0)
    return RoiAlign(x, rois, cast(node.x(2), i64), bins=bins, samples=samples, scale=scale, half=half, mode=kind)


@onnx("DeformConv", since=19)
def deform_conv(node: Node) -> Op:
    """A convolution with taps at computed places."""
    node.ints("kernel_shape")
    return DeformConv(
        node.x(0),
        node.x(1),
        node.x(2),
        node.optional(3),
        node.optional(4),
        stride=node.ints("strides") or (),
        pads=node.ints("pads") or (),
        dilation=node.ints("dilations") or (),
        group=node.int("group", 1),
        offset_group=node.int("offset_group", 1),
    )


@onnx("MaxRoiPool")
def max_roi_pool(node: Node) -> Op:
    """The maximum over each bin of regions."""
    x, rois, bins = node.x(0), node.x(1), node.ints("pooled_shape") or ()
    if len(bins) != 2 or min(bins) < 1:
        raise ShapeError(f"bins {list(bins)} must be two positive numbers")
    check_count(math.prod((*rois.shape[:1], *x.shape[1:3], *bins)), "the bins of all regions")
    return MaxRoiPool(x, rois, bins=(bins[0], bins[1]), scale=node.float("spatial_scale", 1.0))
