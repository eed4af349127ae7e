"""Operators that move elements, and those that make shapes and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from dlc.base.extents import divided, is_open, shown
from dlc.graph import Op, Splat
from dlc.kernel.define import ShapeError
from dlc.ops import shape as s
from dlc.ops.pointwise import broadcast, literal, normalized
from dlc_frontend_onnx.implied import broadcast_shape, exactly, inserted_axes, new_shape, removed_axes, repeat_counts
from dlc_frontend_onnx.node import Node, cut_axis
from dlc_frontend_onnx.ops.slices import cut
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_rank
from dlc_frontend_onnx.unsupported import Unsupported


def reshaped(x: Op, to: Sequence[int]) -> Op:
    """x in another shape; x itself when it has that shape; a splat stays one."""
    to = tuple(to)
    if to == x.shape:
        return x
    if isinstance(x, Splat) and math.prod(to) == x.type.size:
        return Splat(x.value, x.type.with_shape(to))
    return s.Reshape(x, to=to)


@onnx("Reshape")
def reshape(node: Node) -> Op:
    """0 keeps a dimension (unless allowzero), -1 takes what is left."""
    x = node.x()
    zero = node.flag("allowzero")
    if node.optional(1) is None and node.has("shape"):
        node.quirk("shape is an attribute, which version 5 made an operand", "from the attribute")
    given = node.ints("shape") if node.optional(1) is None else None
    to = list(given or node.numbers(1, "the shape", lambda outs: new_shape(x.shape, outs[0], zero)))
    if not zero:
        for d, extent in enumerate(to):
            if extent == 0:
                if d >= len(x.shape):
                    raise ShapeError(f"dimension {d} of the new shape {to} copies one that {x.type} does not have")
                to[d] = x.shape[d]
    if to.count(-1) > 1 or any(d < -1 for d in to):
        raise ShapeError(f"{to} is not a shape")
    if -1 in to:
        rest = math.prod(d for d in to if d != -1)
        if is_open((x.type.size, rest)) and divided(x.type.size, rest) is None:
            raise _for_some_sizes(x, to)
        if rest == 0 or x.type.size % rest:
            raise ShapeError(f"{x.type} has {x.type.size} elements, which {to} cannot hold")
        to[to.index(-1)] = x.type.size // rest
    elif is_open((x.type.size, *to)) and x.type.size != math.prod(to):
        raise _for_some_sizes(x, to)
    return reshaped(x, to)


def _for_some_sizes(x: Op, to: Sequence[int]) -> Unsupported:
    return Unsupported(
        f"{x.type.text} as [{', '.join(map(shown, to))}]: not known to have as many elements for all sizes",
        "give a range of sizes for which it is, such as multiples of 2: --dim NAME=2..64/2",
    )


@onnx("Flatten")
def flatten(node: Node) -> Op:
    """To a matrix: dimensions before the axis, and the rest."""
    x = node.x()
    axis = cut_axis(node)
    return reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


AXES: Final = "axes is an attribute, which version 13 made an operand", "from the attribute"


@onnx("Squeeze")
def squeeze_attribute(node: Node) -> Op:
    """Dimensions of 1 removed; axes as an attribute."""
    return _squeezed(node, node.ints("axes"))


@onnx("Squeeze", since=13)
def squeeze(node: Node) -> Op:
    """Dimensions of 1 removed; axes as an operand."""
    if node.has("axes"):
        node.quirk(*AXES)
        return squeeze_attribute(node)
    x = node.x().shape
    count = 0 if node.optional(1) is None else node.x(1).type.size
    return _squeezed(node, node.numbers_or_none(1, "axes", lambda outs: removed_axes(x, outs[0], count)))


def _squeezed(node: Node, given: tuple[int, ...] | None) -> Op:
    x = node.x()
    axes = node.axes(given) if given is not None else [d for d, e in enumerate(x.shape) if e == 1]
    if any(x.shape[a] != 1 for a in axes):
        raise ShapeError(f"axes {list(axes)} of {x.type} are not all 1")
    return reshaped(x, [e for d, e in enumerate(x.shape) if d not in axes])


@onnx("Unsqueeze")
def unsqueeze_attribute(node: Node) -> Op:
    """Dimensions of 1 inserted; axes as an attribute."""
    return _unsqueezed(node, node.ints("axes") or ())


@onnx("Unsqueeze", since=13)
def unsqueeze(node: Node) -> Op:
    """Dimensions of 1 inserted; axes as an operand."""
    if node.has("axes"):
        node.quirk(*AXES)
        return unsqueeze_attribute(node)
    x, count = node.x().shape, node.x(1).type.size
    return _unsqueezed(node, node.numbers(1, "axes", lambda outs: inserted_axes(x, outs[0], count)))


def _unsqueezed(node: Node, given: tuple[int, ...]) -> Op:
    x = node.x()
    rank = len(x.shape) + len(given)
    check_rank(rank)
    axes = node.axes(given, rank)
    if len(axes) != len(given):
        raise ShapeError(f"axes {list(given)} name one dimension twice")
    rest = iter(x.shape)
    return reshaped(x, [1 if d in axes else next(rest) for d in range(rank)])


@onnx("Transpose")
def transpose(node: Node) -> Op:
    """Dimensions in another order, reversed by default."""
    x = node.x()
    perm = node.ints("perm") or tuple(reversed(range(len(x.shape))))
    return x if perm == tuple(range(len(x.shape))) else s.Transpose(x, perm=perm)


@onnx("Concat")
def concat(node: Node) -> Op:
    """Operands behind each other; empty ones of any shape count for nothing."""
    xs = node.all()
    axis = node.axis(default=1)
    return xs[0] if len(xs) == 1 else s.Concat(xs, axis=axis)


@onnx("Split")
def split_attribute(node: Node) -> tuple[Op, ...]:
    """Consecutive slices; sizes as an attribute."""
    return _split(node, node.ints("split"), node.outputs)


@onnx("Split", since=13)
def split(node: Node) -> tuple[Op, ...]:
    """Consecutive slices; sizes as an operand, or a number of equal parts."""
    parts, axis = node.int("num_outputs", node.outputs), node.axis()
    sizes = node.numbers_or_none(1, "the sizes", lambda outs: exactly(*(out[axis] for out in outs)))
    return _split(node, sizes, parts)


def _split(node: Node, sizes: tuple[int, ...] | None, parts: int) -> tuple[Op, ...]:
    x, axis = node.x(), node.axis()
    extent = x.shape[axis]
    if sizes is None:
        node.values.budget.check("operands", parts, "the parts come to")
        if parts < node.outputs:
            raise ShapeError(f"{parts} parts for {node.outputs} outputs")
        part = -(-extent // max(parts, 1))
        sizes = tuple(max(min(part, extent - k * part), 0) for k in range(parts))
    if sum(sizes) != extent or len(sizes) < node.outputs:
        raise ShapeError(f"{node.outputs} parts of sizes {list(sizes)} of dimension {axis} of {x.type}")
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return tuple(cut(x, {axis: (start, size, 1)}) for start, size in zip(starts, sizes, strict=True))


@onnx("CenterCropPad", since=18)
def center_crop_pad(node: Node) -> Op:
    """The middle of x, or x in the middle of zeros, along each axis; an odd element is cropped or added at the end."""
    x, given = node.x(), node.ints("axes")
    axes = tuple(range(len(x.shape))) if given is None else tuple(normalized(a, len(x.shape)) for a in given)
    sizes = node.numbers(1, "the shape", lambda outs: exactly(*(outs[0][a] for a in axes)))
    if len(sizes) != len(axes) or len(set(axes)) != len(axes) or any(n < 0 for n in sizes):
        raise ShapeError(f"sizes {list(sizes)} for axes {list(axes)} of {x.type}")
    rank, parts, pads = len(x.shape), dict[int, tuple[int, int, int]](), [0] * (2 * len(x.shape))
    for axis, size in zip(axes, sizes, strict=True):
        if size < x.shape[axis]:
            parts[axis] = ((x.shape[axis] - size) // 2, size, 1)
        else:
            pads[axis] = (size - x.shape[axis]) // 2
            pads[rank + axis] = size - x.shape[axis] - pads[axis]
    y = cut(x, parts)
    return s.Pad(y, pads=tuple(pads), value=literal(0, x.dtype)) if is_open(pads) or any(pads) else y


@onnx("Expand")
def expand(node: Node) -> Op:
    """x broadcast with a constant shape; one value stays a splat."""
    x = node.x()
    given = node.numbers(1, "the shape", lambda outs: broadcast_shape(x.shape, outs[0], node.x(1).type.size))
    if any(d < 0 for d in given):
        raise ShapeError(f"the shape {list(given)} has a negative dimension")
    check_rank(len(given))
    to = broadcast(x.shape, given)
    if to == x.shape:
        return x
    if isinstance(x, Splat):
        return Splat(x.value, x.type.with_shape(to))
    value = node.values.value(x) if x.type.size == 1 else None
    if value is not None:
        return Splat(value.reshape(-1)[0].item(), x.type.with_shape(to))
    return s.Expand(x, to=to)


@onnx("Tile")
def tile(node: Node) -> Op:
    """x repeated along its dimensions."""
    x = node.x()
    repeats = node.numbers(1, "the repeats", lambda outs: repeat_counts(x.shape, outs[0]))
    return node.x() if all(r == 1 for r in repeats) else s.Tile(node.x(), repeats=repeats)


@onnx("DepthToSpace")
def depth_to_space(node: Node) -> Op:
    """Channels to blocks of pixels."""
    return s.DepthToSpace(node.x(), block=node.int("blocksize", 1), mode=_order(node))


def _order(node: Node) -> Literal["DCR", "CRD"]:
    mode = node.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Unsupported(f"blocks in the order {mode!r}", "DCR and CRD are defined")
    return "CRD" if mode == "CRD" else "DCR"


@onnx("SpaceToDepth")
def space_to_depth(node: Node) -> Op:
    """Blocks of pixels to channels."""
    return s.SpaceToDepth(node.x(), block=node.int("blocksize", 1), mode=_order(node))
