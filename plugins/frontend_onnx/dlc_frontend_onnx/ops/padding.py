"""Padding: with figures that are constant or follow from sizes, or that are known when the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal

from dlc.base.extents import is_open
from dlc.base.polynomials import LONGEST
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Or, Where
from dlc.ops.index import Pick
from dlc.ops.pointwise import literal
from dlc.ops.shape import Pad
from dlc.ops.sizes import Count
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.sized import Sized, along, axes_of, elements, sized
from dlc_frontend_onnx.terms import Number, Term, clip, lying, smallest
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("Pad")
def pad_attribute(node: Node) -> Op:
    """Padding with figures as attributes."""
    return _padded(node, node.ints("pads") or (), node.float("value", 0.0))


@onnx("Pad", since=11)
@onnx("Pad", domain=MICROSOFT)
def pad(node: Node) -> Op:
    """Padding with figures as operands."""
    rank = len(node.x().shape)
    given = elements(node, 1)
    axes = axes_of(node, 3, rank) or tuple(range(rank))
    if len(given) != 2 * len(axes):
        raise ShapeError(f"{len(given)} pads for {len(axes)} axes")
    pairs = [along(d, rank, (0, 0), axes, given[: len(axes)], given[len(axes) :]) for d in range(rank)]
    value = node.maybe_constant(2)
    if any(isinstance(v, Term) for pair in pairs for v in pair) or (value is None and node.optional(2) is not None):
        return _found(node, pairs)
    pads = (*(begin for begin, _ in pairs), *(end for _, end in pairs))
    return _padded(node, pads, 0 if value is None else value.reshape(-1)[0].item())


def _found(node: Node, pairs: Sequence[tuple[Number, ...]]) -> Op:
    """Padding with figures or a value that are known when the program runs: elements picked by computed subscripts."""
    x, mode = node.x(), _mode(node)
    y, outside, sizes = x, list[Op](), list[Sized]()
    for d, ((begin, end), extent) in enumerate(zip(pairs, x.shape, strict=True)):
        if not isinstance(begin, Term) and not isinstance(end, Term):
            place = Term(Count(extent + begin + end)) - begin
        else:
            begin, end = (clip(v, -LONGEST, LONGEST) for v in (begin, end))
            sizes.append(sized(node, d, len(x.shape), begin + end + extent, None))
            place = sizes[-1].numbers() - begin
        if mode == "constant":
            outside.append(lying((place < 0) | (place >= extent), d, len(x.shape)).op)
        y = Pick(y, _folded(place, extent, mode).op, axis=d)
    if outside:
        given = node.optional(2)
        value = number(0, x) if given is None else reshaped(cast(given, x.dtype), ())
        y = Where(reduce(Or, outside), value, y)
    for size in sizes:
        y = size.checked(y)
    return y


def _folded(place: Term, extent: int, mode: str) -> Term:
    """Subscripts outside of a dimension brought inside by the mode; those of a constant are replaced later."""
    if mode == "wrap":
        return place % extent
    if mode != "reflect" or extent == 1:
        return clip(place, 0, extent - 1)
    turned = place % (2 * (extent - 1))
    return smallest(turned, -turned + 2 * (extent - 1))


def _padded(node: Node, pads: tuple[int, ...], value: float) -> Op:
    x, kind = node.x(), _mode(node)
    return Pad(x, pads=pads, value=literal(value, x.dtype), mode=kind) if is_open(pads) or any(pads) else x


def _mode(node: Node) -> Literal["constant", "edge", "reflect", "wrap"]:
    mode = node.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise Unsupported(f"padding mode {mode}")
    return mode  # type: ignore[return-value]
