"""DynamicQuantizeLSTM: an LSTM with quantised weights, whose inputs and states are quantised by their own range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.shape import Transpose
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.ops.microsoft.heads import part
from dlc_frontend_onnx.ops.microsoft.quantized import dynamic_product
from dlc_frontend_onnx.ops.quantize import unshaped
from dlc_frontend_onnx.ops.recurrent import lstm_layer
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx


@onnx("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(node: Node) -> tuple[Op | None, ...]:
    """The LSTM of the standard with products of integers: weights are [directions, inputs, gates], with scales."""
    if any(len(node.x(k).shape) != 3 for k in (0, 1, 2)):
        raise ShapeError(f"{node.x(0).type}, {node.x(1).type} and {node.x(2).type} should have three dimensions")
    directions = range(node.x(1).shape[0])
    products = [(_product(node, 1, 8, d), _product(node, 2, 10, d)) for d in directions]
    turned = tuple(Transpose(node.x(k), perm=(0, 2, 1)) for k in (1, 2))
    plain = replace(node, inputs=(node.x(0), *turned, *node.inputs[3:8]))
    return lstm_layer(plain, products)


def _product(node: Node, weight: int, scale: int, direction: int) -> Callable[[Op], Op]:
    """x ↦ x · W of one direction, by operands `weight`, and `scale` and the one after it (a zero point)."""
    matrix = _of(node.x(weight), direction)
    figures = [unshaped(_of(node.x(k), direction)) for k in (scale, scale + 1)]
    return lambda x: dynamic_product(x, matrix, figures[0], figures[1])


def _of(x: Op, direction: int) -> Op:
    """The part of one direction."""
    if direction >= x.shape[0]:
        raise ShapeError(f"{x.type} has no direction {direction}")
    return reshaped(part(x, 0, direction, 1), x.shape[1:])
