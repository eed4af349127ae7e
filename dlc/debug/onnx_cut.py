"""Smaller ONNX models made of a larger one: some of its nodes, some of its outputs, other values, smaller dimensions.

nodes a, b, c; keep b   →   the tensors that b read from a are inputs, with the values that they had
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from dlc.api.program import Port
from dlc.base.diagnostics import ExitCode, Location, error, quote
from dlc.base.types import Array, Type, dtype_of_numpy
from dlc.runtime.feeds import random_feeds

_SMALL: Final = 16
"""Elements of an integer tensor that is a constant when what computes it is dropped: shapes and axes must be known."""

_LARGEST: Final = (1 << 31) - (1 << 24)
"""Bytes of constants: a file of protobuf's is smaller than 2 GiB."""

Node = Any
"""A NodeProto: onnx has no types."""


@dataclass(frozen=True)
class Case:
    """A model and what it is fed. No node, tensor or array of it is ever changed."""

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    """Initialisers by name."""
    feeds: Mapping[str, Array]
    """Inputs by name."""
    outputs: tuple[str, ...]
    frame: Any
    """A ModelProto with an empty graph: versions, operator sets, functions."""

    @classmethod
    def read(cls, path: Path, feeds: Mapping[str, Array]) -> Case:
        """A model's file with values for its inputs. Raises DlcError (USAGE): it is not a readable ONNX model."""
        onnx = _onnx()
        try:
            model = onnx.load(str(path))
        # onnx and protobuf raise classes of their own.
        except Exception as problem:  # noqa: BLE001
            raise error(
                "unreadable-file",
                f"{path} is not an ONNX model that can be cut: {problem}",
                location=Location(str(path)),
                help="give an .onnx file with its external data beside it",
                exit_code=ExitCode.USAGE,
            ) from None
        graph = model.graph
        constants: dict[str, Array] = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        if (size := sum(a.nbytes for a in constants.values())) > _LARGEST:
            raise error(
                "too-large",
                f"the weights of {path} take {size:,} bytes; models of up to {_LARGEST:,} can be cut",
                location=Location(str(path)),
                help="export a model with fewer layers",
                exit_code=ExitCode.USAGE,
            )
        frame = onnx.ModelProto()
        frame.CopyFrom(model)
        frame.ClearField("graph")
        frame.graph.name = graph.name
        names = tuple(o.name for o in graph.output)
        return cls(tuple(graph.node), constants, {n: v for n, v in feeds.items() if n not in constants}, names, frame)

    @property
    def elements(self) -> int:
        """Elements of all constants and inputs."""
        return sum(a.size for a in (*self.constants.values(), *self.feeds.values()))

    @property
    def size(self) -> tuple[int, int, int]:
        """What reducing makes smaller: nodes, outputs and inputs, elements."""
        return len(self.nodes), len(self.outputs) + len(self.feeds), self.elements

    def model(self) -> Any:
        """The ModelProto."""
        onnx = _onnx()
        found = onnx.ModelProto()
        found.CopyFrom(self.frame)
        graph = found.graph
        graph.node.extend(self.nodes)
        graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in self.constants.items())
        for name, array in self.feeds.items():
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        types = _types(found)
        for name in self.outputs:
            graph.output.append(types.get(name) or onnx.ValueInfoProto(name=name))
        return found

    def to_bytes(self) -> bytes:
        """The model's file."""
        return self.model().SerializeToString()

    def keeping(
        self, kept: Collection[int], values: Callable[[Sequence[str]], Mapping[str, Array] | None]
    ) -> Case | None:
        """Only some nodes, by number; None where `values` has none for a tensor that they read of others."""
        chosen = set(kept) | {k for k in range(len(self.nodes)) if self._is_constant_of(k, kept)}
        nodes = [node for k, node in enumerate(self.nodes) if k in chosen]
        made = {name for node in nodes for name in node.output if name}
        read = dict.fromkeys(name for node in nodes for name in reads(node))
        others = {name for k, node in enumerate(self.nodes) if k not in chosen for name in reads(node)}
        wanted = [n for n in read if n not in made and n not in self.constants and n not in self.feeds]
        nothing: Mapping[str, Array] = {}
        found = values(wanted) if wanted else nothing
        if found is None:
            return None
        fixed = {n: a for n, a in found.items() if a.dtype.kind in "iub" and a.ndim <= 1 and a.size <= _SMALL}
        outputs = [n for node in nodes for n in node.output if n and (n in others or n in self.outputs)]
        feeds = {n: a for n, a in {**self.feeds, **found}.items() if n in read and n not in fixed}
        constants = {n: a for n, a in {**self.constants, **fixed}.items() if n in read}
        inner = [n for node in nodes for n in node.output if n and n not in read]
        return Case(tuple(nodes), constants, feeds, tuple(outputs or inner), self.frame)

    def with_outputs(self, outputs: Sequence[str]) -> Case:
        """Only some outputs, and the nodes that they need."""
        needed, nodes = set(outputs), list[Node]()
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.append(node)
                needed |= set(reads(node))
        constants = {n: a for n, a in self.constants.items() if n in needed}
        feeds = {n: a for n, a in self.feeds.items() if n in needed}
        return Case(tuple(reversed(nodes)), constants, feeds, tuple(outputs), self.frame)

    def with_value(self, name: str, value: float) -> Case:
        """One value in all elements of a constant or an input."""

        def filled(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
            return {n: np.full_like(a, value) if n == name else a for n, a in arrays.items()}

        return Case(self.nodes, filled(self.constants), filled(self.feeds), self.outputs, self.frame)

    def with_dimension(self, old: int, new: int) -> Case:
        """All dimensions of one size smaller, and whole numbers of that size in small constants: they may be shapes."""

        def cut(array: Array) -> Array:
            if array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= _SMALL:
                array = np.where(array == old, np.asarray(new, array.dtype), array)
            return np.ascontiguousarray(array[tuple(slice(new if n == old else n) for n in array.shape)])

        constants = {n: cut(a) for n, a in self.constants.items()}
        feeds = {n: cut(a) for n, a in self.feeds.items()}
        return Case(self.nodes, constants, feeds, self.outputs, self.frame)

    def dimensions(self) -> list[int]:
        """The sizes above 1 of constants and inputs, the largest first."""
        return sorted({n for a in (*self.constants.values(), *self.feeds.values()) for n in a.shape if n > 1})[::-1]

    def _is_constant_of(self, k: int, kept: Collection[int]) -> bool:
        """Whether a node is a Constant that one of those kept reads."""
        node = self.nodes[k]
        return node.op_type == "Constant" and any(node.output[0] in reads(self.nodes[n]) for n in kept)


def reads(node: Node) -> Iterator[str]:
    """The tensors that a node reads, those that its branches and bodies take from around them included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        graphs = [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
        for graph in graphs:
            own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
            own |= {name for inner in graph.node for name in inner.output}
            found: Iterable[str] = (name for inner in graph.node for name in reads(inner))
            yield from (name for name in (*found, *(o.name for o in graph.output)) if name not in own)


def declared_inputs(path: Path, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> list[Port]:
    """The inputs of a model's file, with sizes given by dimension or by input.

    Raises DlcError (USAGE): the file cannot be read, or a size stays open.
    """
    onnx = _onnx()
    case = Case.read(path, {})
    ports: list[Port] = []
    for i in onnx.load(str(path), load_external_data=False).graph.input:
        if i.name in case.constants:
            continue
        tensor = i.type.tensor_type
        own = [d.dim_value or dims.get(d.dim_param, 0) for d in tensor.shape.dim]
        shape = tuple(shapes.get(i.name, own))
        dtype = dtype_of_numpy(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else None
        if dtype is None or any(n <= 0 for n in shape):
            raise error(
                "open-size",
                f"the sizes of input {quote(i.name)} are open, so nobody knows what to feed it",
                help="give single sizes: --dim NAME=N, or --input NAME:SHAPE",
                exit_code=ExitCode.USAGE,
            )
        ports.append(Port(i.name, Type(dtype, shape)))
    return ports


def tensor_values(case: Case, names: Sequence[str]) -> Mapping[str, Array] | None:
    """Tensors inside of a model as onnxruntime computes them; where it does not, random ones of the inferred type.

    None where a type is not known either.
    """
    from importlib.util import find_spec

    if find_spec("onnxruntime") is not None:
        from dlc.debug.onnx_tensors import values_of

        # Without what the tensors do not need: that may be what onnxruntime does not run.
        if (found := values_of(case.with_outputs(names).model(), case.feeds, names)) is not None:
            return found
    types = _types(case.model())
    ports = [port for name in names if (port := _port(types.get(name))) is not None]
    return random_feeds(ports, 0) if len(ports) == len(names) else None


def _port(info: Any) -> Port | None:
    """A tensor whose type is known whole."""
    if info is None or not info.type.tensor_type.elem_type or not info.type.tensor_type.HasField("shape"):
        return None
    tensor = info.type.tensor_type
    shape = tuple(int(d.dim_value) for d in tensor.shape.dim)
    dtype = dtype_of_numpy(_onnx().helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return None if dtype is None or any(n <= 0 for n in shape) else Port(info.name, Type(dtype, shape))


def _types(model: Any) -> dict[str, Any]:
    """What shape inference says of tensors, by name."""
    onnx = _onnx()
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    # What is wrong with a candidate is for the oracle to say.
    except Exception:  # noqa: BLE001
        return {}
    return {v.name: v for v in graph.value_info}


def _onnx() -> Any:
    try:
        for part in ("helper", "numpy_helper", "shape_inference"):
            import_module(f"onnx.{part}")
    except ImportError:
        raise error(
            "missing-package",
            "models are cut with the package onnx, which is not installed",
            help='pip install "dlc[onnx]"',
            exit_code=ExitCode.USAGE,
        ) from None
    return import_module("onnx")
