"""GroupQueryAttention: the attention of Llama and its relatives, with the cache of keys and values inside.

total[b] = seqlens[b] + 1                    keys of item b after this step
start[b] = max(total[b] - S, 0)              where its S new keys are written
query s of item b sees key t if t <= start[b] + s, and, with a window, t > start[b] + s - window
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.base.types import i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import normalize
from dlc.ops.index import Overwrite
from dlc.ops.shape import Concat, Pad
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node, cast, constant, number
from dlc_frontend_onnx.ops.microsoft.heads import (
    Scores,
    attended,
    by_head,
    columns,
    merged,
    part,
    rotated,
    rows,
    split_last,
)
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(node: Node) -> tuple[Op | None, ...]:
    """y = attention of groups of heads to one head of keys and values each; the keys and values with the new ones."""
    _refuse(node)
    heads, shared = node.int("num_heads"), node.int("kv_num_heads")
    q, k, v = _operands(node, heads, shared)
    length, past = q.shape[2], node.optional(3)
    buffer = 0 if past is None else past.shape[2]
    total = _total(node, buffer)
    extent = max(buffer, total)
    start = _start(node, length, total)
    q, k = _rotated(node, q, k, start)
    present = [_written(before, new, start, extent) for before, new in ((past, k), (node.optional(4), v))]
    keys, values = (part(x, 2, 0, total) for x in present)
    y, scores, weights = attended(q, keys, values, _scores(node, length, total, start))
    shown = {0: None, 1: scores, 2: weights}.get(node.int("qk_output"))
    return merged(y), *present, shown


def _refuse(node: Node) -> None:
    quantised = node.optional(12) is not None or node.optional(13) is not None
    kinds = {node.text("k_quant_type", "NONE"), node.text("v_quant_type", "NONE")}
    node.ignore("kv_cache_bit_width")
    if quantised or kinds != {"NONE"}:
        raise Unsupported("a quantised cache of keys and values", "export the model with a cache in floating point")
    if node.optional(16) is not None:
        raise Unsupported("queries of different lengths (query_seqlens)", "export the model without query_seqlens")
    if node.flag("sliding_window_cache"):
        raise Unsupported("a cache of the size of a window", "export the model with sliding_window_cache=0")


def _operands(node: Node, heads: int, shared: int) -> tuple[Op, Op, Op]:
    """Queries, keys and values by head, normalised if they have weights for that."""
    q, k, v = node.x(0), node.optional(1), node.optional(2)
    if heads < 1 or shared < 1 or heads % shared:
        raise ShapeError(f"{heads} heads of queries are not divided among {shared} heads of keys")
    if k is None or v is None:
        width = q.shape[-1] // (heads + 2 * shared)
        q, k, v = split_last(q, (heads * width, shared * width, shared * width))
    q, k, v = by_head(q, heads), by_head(k, shared), by_head(v, shared)
    both = node.float("qk_norm_epsilon", 1e-6)
    for_q, for_k = node.float("q_norm_epsilon", both), node.float("k_norm_epsilon", both)
    if (weight := node.optional(14)) is not None:
        q = normalize.RmsNorm(q, weight, axis=3, epsilon=for_q)
    if (weight := node.optional(15)) is not None:
        k = normalize.RmsNorm(k, weight, axis=3, epsilon=for_k)
    return q, k, v


def _total(node: Node, buffer: int) -> int:
    """Keys at most after this step: an operand, which decides the shape of the result."""

    def implied(shapes: Sequence[tuple[int, ...]]) -> list[list[int]] | None:
        presents = [shape[2] for shape in shapes if len(shape) == 4]
        return [[presents[0]]] if presents and presents[0] > buffer else None

    (total,) = node.numbers(6, "the total length of the sequences", implied)
    if total < 1:
        raise ShapeError(f"{total} keys in all")
    return total


def _start(node: Node, length: int, total: int) -> int | Op:
    """Where the new keys of each item [B] are written: a number if it is the same for all and known."""
    seqlens = node.x(5)
    known = node.maybe_constant(5)
    if total == length:
        return 0
    if known is not None and known.size and np.unique(known).size == 1:
        return max(int(known.reshape(-1)[0]) + 1 - length, 0)
    first = e.Sub(cast(reshaped(seqlens, (seqlens.type.size,)), i64), constant(length - 1, i64))
    return e.Maximum(first, constant(0, i64))


def _written(past: Op | None, new: Op, start: int | Op, extent: int) -> Op:
    """The cache [B, N, extent, H] with new keys or values from `start` on; what lies behind them is left over."""
    batch, heads, length, width = new.shape
    if past is not None and past.shape[:2] + past.shape[3:] != (batch, heads, width):
        raise ShapeError(f"a past of type {past.type} for keys or values {new.type}")
    size = 0 if past is None else past.shape[2]
    if isinstance(start, int):
        if start + length > extent or start > size:
            raise ShapeError(f"keys {start} to {start + length} of {extent}, after {size} of the past")
        parts = [] if past is None or start == 0 else [part(past, 2, 0, start)]
        parts.append(new)
        if past is not None and start + length < size:
            parts.append(part(past, 2, start + length, size - start - length))
        whole = parts[0] if len(parts) == 1 else Concat(tuple(parts), axis=2)
        return _longer(whole, extent)
    if past is None:
        raise ShapeError("keys are written behind others, but there is no past")
    return Overwrite(_longer(past, extent), new, start, axis=2)


def _longer(x: Op, extent: int) -> Op:
    """[B, N, S, H] with zeros up to `extent` positions."""
    more = extent - x.shape[2]
    return x if more == 0 else Pad(x, pads=(0, 0, 0, 0, 0, 0, more, 0))


def _positions(start: int | Op, length: int) -> Op:
    """Positions of the queries, [B or 1, S]."""
    if isinstance(start, int):
        return reshaped(rows(length, start), (1, length))
    return e.Add(reshaped(start, (start.type.size, 1)), columns(length))


def _rotated(node: Node, q: Op, k: Op, start: int | Op) -> tuple[Op, Op]:
    interleaved = node.flag("rotary_interleaved")
    if not node.flag("do_rotary"):
        return q, k
    cos, sin, given = node.x(7), node.x(8), node.optional(9)
    positions = _positions(start, q.shape[2]) if given is None else given
    return rotated(q, cos, sin, positions, interleaved), rotated(k, cos, sin, positions, interleaved)


def _scores(node: Node, length: int, total: int, start: int | Op) -> Scores:
    q = node.x(0)
    at = _positions(start, length)
    at = reshaped(at, (at.shape[0], 1, length, 1))
    keys = columns(total)
    if node.flag("causal", True):
        visible: Op = e.GreaterOrEqual(at, keys)
        if (window := node.int("local_window_size", -1)) > 0:
            visible = e.And(visible, e.Greater(keys, e.Sub(at, constant(window, i64))))
    else:
        node.ignore("local_window_size")
        ends = cast(reshaped(node.x(5), (q.shape[0], 1, 1, 1)), i64)
        visible = e.LessOrEqual(keys, ends)
    bias, sink = node.optional(10), node.optional(11)
    if sink is None and node.flag("smooth_softmax"):
        sink = number(0, q)
    added = () if bias is None else (bias,)
    return Scores(node.float("scale"), node.float("softcap"), added, visible, sink)
