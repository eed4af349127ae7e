"""Operators that put elements of images at computed places, or take them from there."""

from __future__ import annotations

import math

from dlc.base.types import Type
from dlc.graph import Op, Splat
from dlc.kernel.define import ShapeError
from dlc.ops import linear
from dlc.ops.index import ScatterElements
from dlc.ops.pointwise import literal
from dlc.ops.shape import Pad
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx


@onnx("MaxUnpool", since=9)
def max_unpool(node: Node) -> Op:
    """Zeros, but for the elements of x at indices into the result, as MaxPool gives them."""
    x, kernel = node.x(0), node.ints("kernel_shape") or ()
    rank = len(x.shape) - 2
    stride, pads = node.ints("strides") or (1,) * rank, node.ints("pads") or (0,) * (2 * rank)
    if rank < 1 or len(kernel) != rank or len(stride) != rank or len(pads) != 2 * rank:
        raise ShapeError(f"windows {list(kernel)} of stride {list(stride)} with pads {list(pads)} for {x.type}")
    reach = [(e - 1) * stride[d] - pads[d] - pads[rank + d] + kernel[d] for d, e in enumerate(x.shape[2:])]
    to = (*x.shape[:2], *reach)
    if any(e < 0 for e in to):
        raise ShapeError(f"{x.type} unpools to {list(to)}")
    zeros, count = Splat(literal(0, x.dtype), Type(x.dtype, (math.prod(to),))), (x.type.size,)
    y = reshaped(ScatterElements(zeros, reshaped(node.x(1), count), reshaped(x, count)), to)
    wanted = node.numbers_or_none(2, "the output shape")
    if wanted is None or wanted == to:
        return y
    if len(wanted) != len(to) or any(w < e for w, e in zip(wanted, to, strict=True)):
        raise ShapeError(f"the output shape {list(wanted)} is smaller than {list(to)}")
    ends = (w - e for w, e in zip(wanted, to, strict=True))
    return Pad(y, pads=(*(0,) * len(to), *ends), value=literal(0, x.dtype))


@onnx("Col2Im", since=18)
def col2im(node: Node) -> Op:
    """The sum of windows at their places in an image."""
    image, block = node.numbers(1, "the shape of the image"), node.numbers(2, "the shape of the windows")
    stride, pads, dilation = node.ints("strides") or (), node.ints("pads") or (), node.ints("dilations") or ()
    return linear.Col2Im(node.x(0), image=image, block=block, stride=stride, pads=pads, dilation=dilation)
