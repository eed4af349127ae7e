"""An ONNX model with the values that it is run on, as data: what is drawn, shrunk, written to a file and replayed."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, TensorProto, helper, numpy_helper

from tests.frontend_onnx.building import model_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Node:
    """One operator."""

    op: str
    inputs: tuple[str, ...]
    """"" where an optional operand is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    domain: str = ""
    reads: tuple[str, ...] = ()
    """What graphs inside it name."""

    @property
    def operands(self) -> tuple[str, ...]:
        """Everything it depends on."""
        return (*self.inputs, *self.reads)

    @property
    def onnx(self) -> onnx.NodeProto:
        """As the model has it; named after its first result."""
        attributes = {k: v for k, v in self.attributes.items() if v is not None}
        return helper.make_node(
            self.op, self.inputs, self.outputs, name=self.outputs[0], domain=self.domain or None, **attributes
        )


@dataclass(frozen=True)
class Model:
    """A graph, its constants, and a value for each input."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, Array]
    """Of the largest sizes; a call has as much of each as its sizes say."""
    constants: Mapping[str, Array]
    outputs: tuple[str, ...]
    opset: int
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    """Input → names of its dimensions, "" for one that is a number; of inputs that have named ones."""
    ranges: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a dimension → the sizes that the program is built for, as `--dim` takes them; "" for any size."""
    calls: tuple[Mapping[str, int], ...] = ()
    """Sizes of the dimensions in every call; () where all types are known when the program is built."""

    @cached_property
    def onnx(self) -> onnx.ModelProto:
        """The model itself."""
        domains = sorted({n.domain for n in self.nodes} - {""})
        nodes = [n.onnx for n in self.nodes]
        found = model_of(nodes, self.inputs, self.outputs, self.constants, self.opset, domains)
        for proto in found.graph.input:
            for dim, name in zip(proto.type.tensor_type.shape.dim, self.dims.get(proto.name, ()), strict=False):
                if name:
                    dim.dim_param = name
        return found

    def at(self, call: Mapping[str, int]) -> Model:
        """The model for one call: with numbers in place of the names of dimensions."""

        def cut(name: str, array: Array) -> Array:
            names = self.dims.get(name)
            return array if names is None else array[tuple(slice(call.get(n)) for n in names)].copy()

        given = {k: cut(k, v) for k, v in self.inputs.items()}
        return replace(self, inputs=given, dims={}, ranges={}, calls=())

    @cached_property
    def bytes(self) -> bytes:
        """The model as a file's content."""
        return self.onnx.SerializeToString()

    @property
    def whole(self) -> Model:
        """With everything that is computed as an output."""
        return replace(self, outputs=tuple(dict.fromkeys((*self.values, *self.outputs))))

    def live(self) -> Model:
        """Without what no output depends on."""
        needed, kept = set(self.outputs), list[Node]()
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                needed |= set(node.operands)
                kept.append(node)
        inputs, constants = ({k: v for k, v in d.items() if k in needed} for d in (self.inputs, self.constants))
        dims = {k: v for k, v in self.dims.items() if k in inputs}
        used = {name for names in dims.values() for name in names}
        ranges = {k: v for k, v in self.ranges.items() if k in used}
        calls = tuple({k: v for k, v in call.items() if k in used} for call in self.calls)
        calls = tuple(call for k, call in enumerate(calls) if call not in calls[:k])
        new = replace(self, nodes=tuple(reversed(kept)), inputs=inputs, constants=constants)
        return replace(new, dims=dims, ranges=ranges, calls=calls)

    def renamed(self, names: Mapping[str, str]) -> Model:
        """With other names in the operands and outputs: what reads one value reads another."""

        def new(found: Sequence[str]) -> tuple[str, ...]:
            return tuple(names.get(n, n) for n in found)

        kept = {name for n in self.nodes for name in n.reads}  # graphs inside nodes keep their names
        names = {old: now for old, now in names.items() if old not in kept}
        nodes = tuple(replace(n, inputs=new(n.inputs)) for n in self.nodes)
        return replace(self, nodes=nodes, outputs=new(self.outputs))

    @property
    def values(self) -> tuple[str, ...]:
        """Names of everything that is computed."""
        return tuple(name for n in self.nodes for name in n.outputs if name)


def to_json(model: Model) -> dict[str, Any]:
    """For a file."""
    return {
        "opset": model.opset,
        "inputs": {k: _array_to_json(v) for k, v in model.inputs.items()},
        "constants": {k: _array_to_json(v) for k, v in model.constants.items()},
        "nodes": [_node_to_json(n) for n in model.nodes],
        "outputs": list(model.outputs),
        **({"dims": {k: list(v) for k, v in model.dims.items()}} if model.dims else {}),
        **({"ranges": dict(model.ranges)} if model.ranges else {}),
        **({"calls": [dict(call) for call in model.calls]} if model.calls else {}),
    }


def from_json(data: Mapping[str, Any]) -> Model:
    """The inverse of `to_json`."""
    return Model(
        tuple(_node_from_json(n) for n in data["nodes"]),
        {k: _array_from_json(v) for k, v in data["inputs"].items()},
        {k: _array_from_json(v) for k, v in data["constants"].items()},
        tuple(data["outputs"]),
        int(data["opset"]),
        {k: tuple(v) for k, v in data.get("dims", {}).items()},
        dict(data.get("ranges", {})),
        tuple(dict(call) for call in data.get("calls", ())),
    )


def _array_to_json(array: Array) -> dict[str, Any]:
    """NaN and infinities are words, because JSON has no numbers for them; all other numbers are exact."""
    flat = [v if not isinstance(v, float) or np.isfinite(v) else str(v) for v in array.reshape(-1).tolist()]
    return {"type": str(array.dtype), "shape": list(array.shape), "values": flat}


def _array_from_json(data: Mapping[str, Any]) -> Array:
    values = [float(v) if isinstance(v, str) else v for v in data["values"]]
    return np.array(values, data["type"]).reshape(data["shape"])


def _node_to_json(node: Node) -> dict[str, Any]:
    attributes = {k: _attribute_to_json(v) for k, v in node.attributes.items() if v is not None}
    data = {"op": node.op, "inputs": list(node.inputs), "outputs": list(node.outputs), "attributes": attributes}
    rare = {"domain": node.domain, "reads": list(node.reads)}
    return {**data, **{k: v for k, v in rare.items() if v}}


def _attribute_to_json(value: Any) -> Any:
    match value:
        case TensorProto():
            return {"tensor": _array_to_json(numpy_helper.to_array(value))}
        case GraphProto():
            return {"graph": b64encode(value.SerializeToString()).decode()}
        case _:
            return value


def _node_from_json(data: Mapping[str, Any]) -> Node:
    def attribute(value: Any) -> Any:
        match _keys(value):
            case ["tensor"]:
                return numpy_helper.from_array(_array_from_json(value["tensor"]))
            case ["graph"]:
                return GraphProto.FromString(b64decode(value["graph"]))
            case _:
                return value

    reads = tuple(data.get("reads", ()))
    attributes = {k: attribute(v) for k, v in data["attributes"].items()}
    return Node(data["op"], tuple(data["inputs"]), tuple(data["outputs"]), attributes, data.get("domain", ""), reads)


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def dumps(data: Mapping[str, Any]) -> str:
    """JSON with one line for each node and array, so that a file can be read."""
    lines: list[str] = []
    for key, value in data.items():
        match value:
            case dict() if key in ("inputs", "constants") and value:
                inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(value[k])}" for k in _keys(value))
                lines.append(f"{json.dumps(key)}: {{\n{inner}\n}}")
            case list() if key == "nodes" and value:
                inner = ",\n".join(f"  {json.dumps(node)}" for node in data["nodes"])
                lines.append(f"{json.dumps(key)}: [\n{inner}\n]")
            case _:
                lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
