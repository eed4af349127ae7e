"""Operators on data whose channels are the last dimension: N, D…, C instead of N, C, D…"""

from __future__ import annotations

from dataclasses import replace

from dlc.graph import Op
from dlc.ops.shape import Transpose
from dlc_frontend_onnx.node import Node


def channels_first(x: Op) -> Op:
    """[N, D…, C] → [N, C, D…]."""
    rank = len(x.shape)
    return Transpose(x, perm=(0, rank - 1, *range(1, rank - 1)))


def channels_last(x: Op) -> Op:
    """[N, C, D…] → [N, D…, C]."""
    return Transpose(x, perm=(0, *range(2, len(x.shape)), 1))


def with_channels_first(node: Node, *operands: int) -> Node:
    """The node with these operands as they are for the operator of the standard."""
    inputs = tuple(channels_first(x) if x is not None and k in operands else x for k, x in enumerate(node.inputs))
    return replace(node, inputs=inputs)
