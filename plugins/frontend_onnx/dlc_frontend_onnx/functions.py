"""Operators without a rule whose schema says what they compute: the schema's function body is imported instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import onnx
from onnx import defs, helper

from dlc.base.extents import Dim, shown
from dlc.graph import Op
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.sequences import Absent, SequenceValue, kind_of
from dlc_frontend_onnx.tensors import DTYPES
from dlc_frontend_onnx.unsupported import Unsupported

_CODES: Final = {dtype: code for code, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Body:
    """A function, the operator sets its nodes are written in, and its attributes' defaults."""

    function: onnx.FunctionProto
    versions: Mapping[str, int]
    defaults: Mapping[str, onnx.AttributeProto]


def has_body(domain: str, operator: str, version: int) -> bool:
    """Whether the standard gives an operator as a function, for some operands at least."""
    try:
        schema: Any = defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def body_of(node: Node) -> Body | None:
    """The function that the standard gives for an operator in its version, or None."""
    domain = "" if node.proto.domain == "ai.onnx" else node.proto.domain
    try:
        schema: Any = defs.get_schema(node.proto.op_type, node.version, domain)
    except defs.SchemaError:
        return None
    if schema.has_function:
        version = max(v for v in schema.function_opset_versions if v <= max(node.version, schema.since_version))
        return _body(schema, schema.get_function_with_opset_version(version), version)
    if not schema.has_context_dependent_function:
        return None
    types = [b"" if x is None else _type_of(x).SerializeToString() for x in node.inputs]
    found = [v for v in schema.context_dependent_function_opset_versions if v <= node.version]
    version = max(found, default=schema.since_version)
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.attribute[:]
    proto.attribute.extend(node.attributes.values())
    data: Any = schema.get_context_dependent_function_with_opset_version(version, proto.SerializeToString(), types)
    return _body(schema, data, version) if data else None


def _type_of(x: Op) -> onnx.TypeProto:
    """The type of an operand, as the standard's functions ask for it."""
    if isinstance(x, Absent) or (isinstance(x, SequenceValue) and not x.xs):
        raise Unsupported(f"it is a function of {kind_of(x)}, of whose type nothing is known")
    if isinstance(x, SequenceValue):
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(_CODES[x.xs[0].dtype], None))
    shape = [shown(d) if isinstance(d, Dim) else d for d in x.shape]
    return helper.make_tensor_type_proto(_CODES[x.dtype], shape)


def _body(schema: Any, data: bytes, version: int) -> Body:
    function = onnx.FunctionProto()
    function.ParseFromString(data)
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in function.opset_import}
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    return Body(function, {schema.domain: version, **versions}, defaults)


def without_inputs(proto: onnx.NodeProto, absent: set[str]) -> onnx.NodeProto:
    """The node with formal names that the call leaves out left out as well."""
    if not any(i in absent for i in proto.input):
        return proto
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    copy.input[:] = ["" if i in absent else i for i in proto.input]
    return copy
