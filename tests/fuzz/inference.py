"""What ONNX says that a node gives, and values that shapes are computed from, of which it has to be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from tests.frontend_onnx.building import IR_VERSIONS
from tests.fuzz.model import Array, Node
from tests.fuzz.narrow import code
from tests.fuzz.sizes import Refused, Shape
from tests.fuzz.values import Value

FOLLOWED: Final[dict[str, Callable[[Node, list[Array]], Any]]] = {
    "Gather": lambda _, d: d[0][d[1]],
    "Concat": lambda _, d: np.concatenate(d),
    "Add": lambda _, d: d[0] + d[1],
    "Sub": lambda _, d: d[0] - d[1],
    "Mul": lambda _, d: d[0] * d[1],
    "Div": lambda _, d: d[0] // d[1],
    "Identity": lambda _, d: d[0],
    "Unsqueeze": lambda _, d: d[0].reshape(1),
    "Squeeze": lambda _, d: d[0].reshape(()),
    "Slice": lambda _, d: d[0][int(d[1][0]) : int(d[2][0])],
}
"""Operators of shapes that are computed."""


def inferred(node: Node, opset: int, types: Mapping[str, tuple[str, Shape]], data: Mapping[str, Array]) -> list[Value]:
    """The results of a node.

    Args:
        node: The node.
        opset: The version of the operators.
        types: Element type and shape of each operand.
        data: Values of operands that are known.

    Raises:
        Refused: ONNX does not take it, or its shapes depend on data.
    """
    protos = {name: helper.make_tensor_type_proto(code(dtype), shape) for name, (dtype, shape) in types.items()}
    try:
        found = shape_inference.infer_node_outputs(
            _schema(node.op, opset),
            node.onnx,
            protos,
            {name: numpy_helper.from_array(array) for name, array in data.items()},
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=IR_VERSIONS.get(opset, 10),
        )
    except Exception as problem:  # noqa: BLE001 - inference raises classes of its own, RuntimeError among them
        raise Refused(str(problem)) from None
    return [_value(name, found.get(name)) for name in node.outputs]


@cache
def _schema(op: str, opset: int) -> Any:
    try:
        return onnx.defs.get_schema(op, opset, "")
    except Exception:  # noqa: BLE001 - a class that onnx does not export
        raise Refused(f"{op} is not in version {opset}") from None


@cache
def has_attribute(op: str, opset: int, name: str) -> bool:
    """Whether an operator has an attribute in a version."""
    return name in _schema(op, opset).attributes


def _value(name: str, proto: Any) -> Value:
    tensor = proto.tensor_type if proto is not None else None
    if tensor is None or not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        raise Refused("a shape that depends on data")
    shape = tuple(int(d.dim_value) for d in tensor.shape.dim)
    if any(d < 0 for d in shape):
        raise Refused(f"{shape} is no shape")
    return Value(name, str(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), shape)
