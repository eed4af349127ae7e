"""Attention of BERT, GPT-2 and diffusion models: Attention, QAttention, MultiHeadAttention, RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.base.types import f32, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import linear
from dlc.ops.shape import Concat, Transpose
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.ops.microsoft.heads import (
    Scores,
    attended,
    by_head,
    columns,
    joined,
    merged,
    padding,
    part,
    rotated,
    rows,
    split_last,
)
from dlc_frontend_onnx.ops.quantize import centred, unshaped
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported

_SEPARATE = "export the model with a past and a present of their own"


def _scores(node: Node, q: Op, keys: int, mask: Op | None, bias: Op | None) -> Scores:
    """Scale, masks and bias of a node for queries [B, N, S, H] that come last among the keys."""
    length = q.shape[2]
    value = node.float("mask_filter_value", -10000.0)
    masks = () if mask is None else (padding(mask, keys, value, q),)
    causal = node.flag("unidirectional")
    visible = e.GreaterOrEqual(rows(length, keys - length), columns(keys)) if causal else None
    return Scores(node.float("scale"), added=(*masks, *(() if bias is None else (bias,))), visible=visible)


def _refuse_shared_buffers(node: Node) -> None:
    if node.flag("past_present_share_buffer"):
        raise Unsupported("one buffer for past and present", _SEPARATE)


def _self_attention(
    node: Node, projected: Op, sizes: Sequence[int], past: Op | None, mask: Op | None, bias: Op | None
) -> tuple[Op, ...]:
    """Attention among the positions of one input that is projected to queries, keys and values [B, S, 3·N·H]."""
    _refuse_shared_buffers(node)
    if node.flag("do_rotary"):
        raise Unsupported("rotary positions inside of Attention", "use RotaryEmbedding and MultiHeadAttention")
    heads = node.int("num_heads")
    q, k, v = (by_head(x, heads) for x in split_last(projected, sizes))
    if past is not None:
        if len(past.shape) != 5 or past.shape[0] != 2:
            raise ShapeError(f"a past of type {past.type}, not [2, items, heads, positions, elements]")
        before = [reshaped(part(past, 0, n, 1), past.shape[1:]) for n in (0, 1)]
        k, v = joined(before[0], k), joined(before[1], v)
    y, _, _ = attended(q, k, v, _scores(node, q, k.shape[2], mask, bias))
    if not node.wants(1):
        return (merged(y),)
    if k.shape != v.shape:
        raise ShapeError(f"keys {k.type} and values {v.type} for one present of both")
    return merged(y), Concat(tuple(reshaped(x, (1, *x.shape)) for x in (k, v)), axis=0)


def _thirds(width: int) -> tuple[int, ...]:
    if width % 3:
        raise ShapeError(f"{width} columns for queries, keys and values of one size")
    return (width // 3,) * 3


@onnx("Attention", domain=MICROSOFT)
def attention(node: Node) -> tuple[Op, ...]:
    """y = attention within x · W + b."""
    node.ignore("rotary_embedding_dim")  # of do_rotary
    if node.optional(6) is not None:
        raise Unsupported("one buffer for past and present", _SEPARATE)
    x, w, b = node.x(0), node.x(1), node.optional(2)
    projected: Op = linear.MatMul(x, w)
    projected = projected if b is None else e.Add(projected, b)
    sizes = node.ints("qkv_hidden_sizes") or _thirds(w.shape[-1])
    return _self_attention(node, projected, sizes, node.optional(4), node.optional(3), node.optional(5))


@onnx("QAttention", domain=MICROSOFT)
def qattention(node: Node) -> tuple[Op, ...]:
    """The same with x and W quantised: the products are of integers, and everything after them is in f32."""
    x, w, b = node.x(0), node.x(1), node.x(2)
    zero_x, zero_w = (None if z is None else unshaped(z) for z in (node.optional(6), node.optional(7)))
    factor = e.Mul(unshaped(node.x(3)), unshaped(node.x(4)))
    total = cast(linear.MatMul(centred(x, zero_x), centred(w, zero_w)), f32)
    projected = e.Add(e.Mul(total, factor), b)
    return _self_attention(node, projected, _thirds(w.shape[-1]), node.optional(8), node.optional(5), None)


@onnx("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: Node) -> tuple[Op | None, ...]:
    """y = attention of queries to keys and values, which may be packed with them, and to those of the past."""
    if node.optional(8) is not None or node.optional(9) is not None:
        raise Unsupported("one buffer for past and present", _SEPARATE)
    heads = node.int("num_heads")
    q, k, v = _projections(node, heads)
    k, v = joined(node.optional(6), k), joined(node.optional(7), v)
    y, _, weights = attended(q, k, v, _scores(node, q, k.shape[2], node.optional(4), node.optional(5)))
    return merged(y), k, v, weights


def _projections(node: Node, heads: int) -> tuple[Op, Op, Op]:
    """Queries, keys and values by head, with their biases."""
    q, k, v, bias = node.x(0), node.optional(1), node.optional(2), node.optional(3)
    parts: list[Op]
    if len(q.shape) == 5:  # [B, S, N, 3, H]
        parts = _unpacked(q, 3)
    elif k is not None and len(k.shape) == 5:  # [B, T, N, 2, H]
        parts = [by_head(q, heads), *_unpacked(k, 2)]
    elif k is not None and v is not None:
        parts = [x if len(x.shape) == 4 else by_head(x, heads) for x in (q, k, v)]
    else:
        raise ShapeError(f"queries {q.type} without keys and values are not packed with them")
    if bias is not None:
        sizes = [x.shape[1] * x.shape[3] for x in parts]
        shaped = [reshaped(b, (x.shape[1], 1, x.shape[3])) for b, x in zip(split_last(bias, sizes), parts, strict=True)]
        parts = [e.Add(x, b) for x, b in zip(parts, shaped, strict=True)]
    return parts[0], parts[1], parts[2]


def _unpacked(x: Op, count: int) -> list[Op]:
    """[B, S, N, count, H] → `count` tensors [B, N, S, H]."""
    batch, length, heads, packed, width = x.shape
    if packed != count:
        raise ShapeError(f"{x.type} does not hold {count} tensors in its dimension 3")
    whole = (batch, length, heads, width)
    return [Transpose(reshaped(part(x, 3, n, 1), whole), perm=(0, 2, 1, 3)) for n in range(count)]


@onnx("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: Node) -> Op:
    """y = x with pairs of elements of each head turned by the angle of their position."""
    x, positions, cos, sin = (node.x(k) for k in range(4))
    if node.flag("is_packed_batching"):
        raise Unsupported("items of different lengths in one", "export the model with is_packed_batching=0")
    heads, width = node.int("num_heads"), node.int("rotary_embedding_dim")
    if len(x.shape) == 3:
        size = x.shape[2] // heads if width and heads else 2 * cos.shape[1]
        parts = by_head(x, x.shape[2] // max(size, 1))
    elif len(x.shape) == 4:
        parts = x
    else:
        raise ShapeError(f"{x.type} is not [items, positions, elements] or [items, heads, positions, elements]")
    length = parts.shape[2]
    if positions.type.size == 1 and length != 1:
        positions = reshaped(e.Add(cast(reshaped(positions, ()), i64), columns(length)), (1, length))
    elif positions.type.size == 1:
        positions = reshaped(positions, (1, 1))
    y = rotated(parts, cos, sin, positions, node.flag("interleaved"))
    if (scale := node.float("scale", 1.0)) not in (0.0, 1.0):
        y = e.Mul(y, number(scale, y))
    return merged(y) if len(x.shape) == 3 else y
