"""Weights in blocks of few bits: MatMulNBits and GatherBlockQuantized.

    w[n, k] = (q[n, k] - zero[n, k / block]) · scale[n, k / block]

Several elements share a byte, the first in its lowest bits. Constants become tensors of an element type of that many
bits; bytes that are computed are taken apart by shifts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dlc.base.types import DTYPES, DType, f32, i32, u8
from dlc.graph import Constant, Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.index import Gather
from dlc.ops.linear import MatMul
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Expand, Transpose
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node, cast, constant, number
from dlc_frontend_onnx.ops.microsoft.heads import part
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported

_BITS: Final[Mapping[int, DType]] = {bits: DTYPES[f"u{bits}"] for bits in (2, 4, 8)}
"""Bits of an element that are supported, and its type."""


def _bits(node: Node) -> int:
    bits = node.int("bits", 4)
    if bits not in _BITS:
        raise Unsupported(f"weights of {bits} bits", f"supported: {', '.join(map(str, _BITS))}")
    return bits


def _block(node: Node, default: int = 0) -> int:
    block = node.int("block_size", default)
    if block < 1 or block & (block - 1):
        raise ShapeError(f"blocks of {block} elements; a power of two is needed")
    return block


def unpacked(x: Op, bits: int, to: Sequence[int] | None = None) -> Op:
    """[…, bytes] → […, elements] of `bits` each, or these in the shape `to`.

    The elements of a constant have the type of that size, others u8.
    """
    count = 8 // bits
    to = tuple(to or (*x.shape[:-1], x.shape[-1] * count))
    if bits == 8:
        return reshaped(x, to)
    if isinstance(x, Constant):
        found = x.tensor.array()[..., None] >> (np.arange(count, dtype=np.uint8) * bits) & ((1 << bits) - 1)
        return constant(found.reshape(to), _BITS[bits])
    shifts = constant(np.arange(count) * bits, u8)
    each = e.BitAnd(e.ShiftRight(reshaped(x, (*x.shape, 1)), shifts), number((1 << bits) - 1, x))
    return reshaped(each, to)


def by_block(v: Op, axis: int, block: int, extent: int) -> Op:
    """A value for each block along a dimension, as one for each of its `extent` elements; the last may be shorter."""
    before, count, after = v.shape[:axis], v.shape[axis], v.shape[axis + 1 :]
    if count != -(-extent // block):
        raise ShapeError(f"{v.type} for {extent} elements in blocks of {block} along dimension {axis}")
    repeated = Expand(reshaped(v, (*before, count, 1, *after)), to=(*before, count, block, *after))
    return part(reshaped(repeated, (*before, count * block, *after)), axis, 0, extent)


@onnx("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(node: Node) -> Op:
    """y = A · Wᵀ + bias for A [..., K] and W [N, K] in blocks along K."""
    node.ignore("accuracy_level")  # which allows onnxruntime to round A
    if node.int("weight_prepacked"):
        raise Unsupported("weights in the order of a GPU", "export the model with weight_prepacked=0")
    if node.optional(4) is not None:
        raise Unsupported("columns in the order of an index (g_idx)", "quantise the model without an order of columns")
    a, packed, scales, bias = node.x(0), node.x(1), node.x(2), node.optional(5)
    n, k, bits, block = node.int("N"), node.int("K"), _bits(node), _block(node)
    blocks = -(-k // block)
    if packed.dtype is not u8 or packed.shape != (n, blocks, block * bits // 8):
        raise ShapeError(f"{packed.type} does not hold {n}×{k} weights of {bits} bits in blocks of {block}")
    weights = part(unpacked(packed, bits, (n, blocks * block)), 1, 0, k)
    scale = by_block(reshaped(scales, (n, blocks)), 1, block, k)
    wide = cast(weights, f32)
    zero = _zero_point(node.optional(3), n, blocks, bits)
    centred = e.Sub(wide, number(1 << bits - 1, wide) if zero is None else by_block(zero, 1, block, k))
    dense = cast(e.Mul(centred, cast(scale, f32)), a.dtype)
    y: Op = MatMul(a, Transpose(dense, perm=(1, 0)))
    return y if bias is None else e.Add(y, bias)


def _zero_point(given: Op | None, n: int, blocks: int, bits: int) -> Op | None:
    """Zero points [N, blocks] in f32, which may be packed like the weights; None: half of the range."""
    if given is None:
        return None
    if given.dtype is u8:
        width = -(-blocks * bits // 8) * (8 // bits)
        return cast(part(unpacked(given, bits, (n, width)), 1, 0, blocks), f32)
    return cast(reshaped(given, (n, blocks)), f32)


@onnx("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(node: Node) -> Op:
    """y = slices of quantised data by index, in floating point; an index out of range gives zeros."""
    data, indices, scales, zero = node.x(0), node.x(1), node.x(2), node.optional(3)
    rank = len(data.shape)
    axis, along = normalized(node.int("gather_axis", 0), rank), normalized(node.int("quantize_axis", 1), rank)
    bits, block = node.int("bits", 4), _block(node, 128)
    if axis == along:
        raise Unsupported("slices along the dimension of the blocks", "quantise the data along another dimension")
    in_bytes = data.dtype is u8
    if in_bytes:
        if along != rank - 1:
            raise Unsupported(
                "blocks of bytes along another dimension than the last", "store the data as 4-bit integers"
            )
        data = unpacked(data, _bits(node))
        zero = None if zero is None else part(unpacked(zero, bits), rank - 1, 0, scales.shape[rank - 1])
    rows, extent = data.shape[axis], data.shape[along]
    count = number(rows, indices)
    wrapped = e.Where(e.Less(indices, number(0, indices)), e.Add(indices, count), indices)
    inside = e.And(e.GreaterOrEqual(wrapped, number(0, indices)), e.Less(wrapped, count))
    index = e.Clip(wrapped, low=0, high=max(rows - 1, 0))
    # The dimension of the blocks is behind those of the indices where it was behind the one they replace.
    place = along + len(indices.shape) - 1 if along > axis else along
    values = cast(Gather(data, index, axis=axis), i32)
    scale = by_block(Gather(scales, index, axis=axis), place, block, extent)
    if zero is not None:
        values = e.Sub(values, by_block(cast(Gather(zero, index, axis=axis), i32), place, block, extent))
    elif in_bytes:
        values = e.Sub(values, number(1 << bits - 1, values))
    y = e.Mul(cast(values, f32), cast(scale, f32))
    shaped = reshaped(inside, (*inside.shape, *(1,) * (rank - 1 - axis)))
    return cast(e.Where(shaped, y, number(0, y)), scales.dtype)
