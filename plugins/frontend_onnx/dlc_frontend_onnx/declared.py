"""Shapes that a model declares for values: of its outputs, of what it says between, and of what these follow from.

y = Log(t), y declared as [3,1]   →   t is [3,1]
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from dlc.base.types import Type
from dlc_frontend_onnx.ops.math import UNARY
from dlc_frontend_onnx.tensors import DTYPES, MAX_RANK


def float_types(graph: onnx.GraphProto) -> dict[str, Type]:
    """Types of values in floating point that the model declares completely.

    What a refused node would give is taken to be of its declared type, so that what is unsupported behind it is found
    too. Integers may be shapes, whose values decide what comes after them: those are not guessed.
    """
    found: dict[str, Type] = {}
    for proto in (*graph.value_info, *graph.output):
        tensor = proto.type.tensor_type
        dtype = DTYPES.get(tensor.elem_type)
        sizes = [d.dim_value for d in tensor.shape.dim]
        if dtype is not None and dtype.is_float and tensor.HasField("shape") and len(sizes) <= MAX_RANK and all(sizes):
            found[proto.name] = Type(dtype, tuple(sizes))
    return found


def declared(graph: onnx.GraphProto, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shapes of values that are no inputs, where all their dimensions are known.

    Args:
        graph: The model's graph.
        dims: Sizes of symbolic dimensions.
    """
    found: dict[str, tuple[int, ...]] = {}
    for proto in (*graph.value_info, *graph.output):
        tensor = proto.type.tensor_type
        if proto.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
            continue
        sizes = [d.dim_value if d.HasField("dim_value") else dims.get(d.dim_param) for d in tensor.shape.dim]
        if len(sizes) <= MAX_RANK and all(s is not None and s >= 0 for s in sizes):
            found[proto.name] = tuple(s for s in sizes if s is not None)
    for node in reversed(graph.node):
        keeps = node.domain in ("", "ai.onnx") and (node.op_type in UNARY or node.op_type in ("Cast", "CastLike"))
        if keeps and node.input and node.output and node.output[0] in found:
            found.setdefault(node.input[0], found[node.output[0]])
    return found
