"""Writing ONNX graphs by hand: a name for every tensor, weights drawn so that activations keep their scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Ports = Mapping[str, tuple[Any, Sequence[int | str]]]
"""Name → (element type of numpy, shape with numbers or names of dimensions)."""


@dataclass
class Writer:
    """A graph that grows node by node; methods return the names of tensors."""

    seed: int
    data: Path | None = None
    """File for weights, beside which the model will lie; None: they are in the model."""
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    stored: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    _known: dict[bytes, str] = field(default_factory=dict[bytes, str])

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def op(self, kind: str, *operands: str, name: str = "", **attributes: Any) -> str:
        """A node with one result."""
        return self.ops(kind, *operands, count=1, name=name, **attributes)[0]

    def ops(self, kind: str, *operands: str, count: int, name: str = "", **attributes: Any) -> list[str]:
        """A node with several results."""
        title = name or f"{kind}_{len(self.nodes)}"
        results = [title] if count == 1 else [f"{title}:{k}" for k in range(count)]
        self.nodes.append(helper.make_node(kind, list(operands), results, title, **attributes))
        return results

    def constant(self, value: Any, dtype: Any = np.int64, name: str = "") -> str:
        """An initializer; equal values are stored once."""
        array = np.asarray(value, dtype)
        if name and self.data is not None:
            self.stored.append(_outside(array, name, self.data))
            return name
        key = f"{array.dtype}{array.shape}".encode() + array.tobytes()
        if name or key not in self._known:
            self._known[key] = name or f"constant_{len(self.stored)}"
            self.stored.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def normal(self, *shape: int, scale: float = 1.0, around: float = 0.0) -> str:
        """Random floats of a given spread."""
        values = self.random.standard_normal(shape, np.float32) * np.float32(scale) + np.float32(around)
        return self.constant(values, np.float32, f"weight_{len(self.stored)}")

    def weight(self, *shape: int, fan_in: int, gain: float = 1.0) -> str:
        """A weight whose products with unit activations have variance `gain`."""
        return self.normal(*shape, scale=float(np.sqrt(gain / fan_in)))

    def positive(self, *shape: int) -> str:
        """A variance: between a half and three halves."""
        values = self.random.random(shape, np.float32) + np.float32(0.5)
        return self.constant(values, np.float32, f"weight_{len(self.stored)}")

    def size(self, x: str, axis: int) -> str:
        """One dimension of a tensor as int64[1], computed from its shape as exporters do it."""
        found = self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)
        return self.op("Unsqueeze", found, self.constant([0]))

    def reshape(self, x: str, *dims: int | str) -> str:
        """Reshape to dimensions of which some are computed."""
        if all(isinstance(d, int) for d in dims):
            return self.op("Reshape", x, self.constant(list(dims)))
        parts = [d if isinstance(d, str) else self.constant([d]) for d in dims]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0))

    def model(self, title: str, inputs: Ports, outputs: Ports, opset: int = 17) -> onnx.ModelProto:
        """The finished model. Outputs are named like the tensors that they are."""
        graph = helper.make_graph(self.nodes, title, _infos(inputs), _infos(outputs), self.stored)
        domains = sorted({n.domain for n in self.nodes if n.domain})
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _outside(array: Array, name: str, data: Path) -> onnx.TensorProto:
    """A tensor whose elements are appended to a file."""
    proto = onnx.TensorProto(name=name, dims=array.shape, data_location=onnx.TensorProto.EXTERNAL)
    proto.data_type = int(helper.np_dtype_to_tensor_dtype(array.dtype))
    with data.open("ab") as file:
        file.write(bytes(-file.tell() % 64))
        for key, text in (("location", data.name), ("offset", file.tell()), ("length", array.nbytes)):
            proto.external_data.add(key=key, value=str(text))
        array.tofile(file)
    return proto


def _infos(ports: Ports) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, (dtype, shape) in ports.items()
    ]
