"""Padding: with figures that are constant or follow from sizes, or that are known when the program runs."""

from __future__ import annotations

from typing import Literal

from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import shape as s
from dlc.ops.pointwise import literal, normalized
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("Pad")
def pad_attribute(node: Node) -> Op:
    """Padding with figures as attributes."""
    return _padded(node, node.ints("pads") or (), node.float("value", 0.0))


@onnx("Pad", since=11)
@onnx("Pad", domain=MICROSOFT)
def pad(node: Node) -> Op:
    """Padding with figures as operands."""
    x, rank = node.x(), len(node.x().shape)
    given = node.numbers(1, "the pads")
    value = node.constant(2, "the padding value").reshape(-1)[0].item() if node.optional(2) is not None else 0
    axes = node.numbers_or_none(3, "the axes")
    if axes is not None:
        pads = [0] * (2 * rank)
        if len(given) != 2 * len(axes):
            raise ShapeError(f"{len(given)} pads for {len(axes)} axes")
        for k, axis in enumerate(axes):
            d = normalized(axis, len(x.shape))
            pads[d], pads[rank + d] = given[k], given[len(axes) + k]
        given = tuple(pads)
    return _padded(node, given, value)


def _padded(node: Node, pads: tuple[int, ...], value: float) -> Op:
    x = node.x()
    mode = node.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise Unsupported(f"padding mode {mode}")
    kind: Literal["constant", "edge", "reflect", "wrap"] = mode  # type: ignore[assignment]
    return s.Pad(x, pads=pads, value=literal(value, x.dtype), mode=kind) if any(pads) else x
