"""Conversion to 8-bit floats as the standard's Cast defines it: what is out of range, and how scales are rounded."""

from __future__ import annotations

from dlc.base.types import DType, f32
from dlc.graph import Op
from dlc.ops import elementwise as e
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported


def converted(node: Node, x: Op, to: DType) -> Op:
    """x in another element type, by the attributes `saturate` and `round_mode` of the node.

    Both are about floats of 8 bits: with `saturate` what is larger than their largest value becomes that, infinities
    included. Scales of `f8e8m0` alone are rounded as `round_mode` says, upward by default.
    """
    saturate, mode = node.flag("saturate", True), node.text("round_mode", "up")
    if to.format is None or to.bits != 8 or x.dtype is to:
        return cast(x, to)
    wide = cast(x, f32) if x.dtype.narrow or not x.dtype.is_float else x
    high = to.format.largest
    if saturate:
        wide = e.Clip(wide, low=-high if to.format.signed else to.format.smallest, high=high)
    return cast(wide, to) if to.format.signed else _scale(wide, to, mode)


def _scale(x: Op, to: DType, mode: str) -> Op:
    """x as a power of two. A conversion gives the nearest one, which is half or twice the one that is asked for."""
    near = cast(x, to)
    if mode == "nearest":
        return near
    if mode not in ("up", "down"):
        raise Unsupported(f"round_mode {mode}", MALFORMED)
    found = cast(near, x.dtype) if x.dtype.bits >= 32 else cast(near, f32)
    x = cast(x, found.dtype)
    if mode == "up":
        found = e.Where(e.Less(found, x), e.Mul(found, number(2, x)), found)
    else:
        found = e.Where(e.Greater(found, x), e.Mul(found, number(0.5, x)), found)
    return cast(found, to)
