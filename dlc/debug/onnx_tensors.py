"""Tensors inside of an ONNX model, as onnxruntime computes them, for the ops that the model was read to.

node "a" → "y"; op of node "a"   →   the op's right value is that of tensor y
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dlc.base.diagnostics import ExitCode, Location, error
from dlc.base.types import Array
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.verify.reference import exact_session


@dataclass(frozen=True)
class OnnxTensors:
    """A model whose tensors can be asked for."""

    model: Any
    """A ModelProto."""
    path: Path
    feeds: Mapping[str, Array]
    names: Mapping[Op, str]
    """Op → the tensor that it should be equal to."""

    @classmethod
    def of(cls, path: Path, graph: Graph, feeds: Mapping[str, Array]) -> OnnxTensors:
        """The tensors of a model's file that ops of its graph, as it was read, are matched with.

        An op is that of a node if no other op with the node's name reads it, and the node has one result.
        """
        library: Any = import_module("onnx")
        model = library.load(str(path))
        names: dict[Op, str] = {}
        for k, node in enumerate(model.graph.node):
            name = node.name or f"{node.op_type}_{k}"
            if len([o for o in node.output if o]) != 1:
                continue
            own = [op for op in graph.ops if graph.origin(op) == (name,)]
            last = [op for op in own if not any(op in x.operands for x in own)]
            if len(last) == 1 and len(last[0].types) == 1:
                names[last[0]] = node.output[0]
        outputs = dict(zip(graph.outputs, graph.names, strict=True))
        return cls(model, path, feeds, {**names, **outputs})

    def run(self, known: Mapping[Op, Array], wanted: Sequence[Op]) -> Sequence[Array]:
        """Right values of ops; of those known already what they are."""
        asked = {self.names[op] for op in wanted if op not in known}
        found: Mapping[str, Array] = self._values(sorted(asked)) if asked else {}
        return [known[op] if op in known else found[self.names[op]] for op in wanted]

    def _values(self, names: Sequence[str]) -> Mapping[str, Array]:
        found = values_of(self.model, self.feeds, names)
        if found is None:
            raise error(
                "reference-failed",
                f"onnxruntime does not give the tensors inside of {self.path}",
                location=Location(str(self.path)),
                help="use --against reference",
                exit_code=ExitCode.TOOL,
            )
        return found


def values_of(model: Any, feeds: Mapping[str, Array], names: Sequence[str]) -> Mapping[str, Array] | None:
    """Tensors of a ModelProto by name, computed without optimisation; None where onnxruntime does not run the model."""
    library: Any = import_module("onnx")
    runtime: Any = import_module("onnxruntime")
    asked = library.ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    asked.graph.output.extend(library.ValueInfoProto(name=name) for name in names)
    try:
        session = exact_session(runtime, asked.SerializeToString())
        given = {i.name for i in session.get_inputs()}
        values: list[Any] = session.run(list(names), {n: v for n, v in feeds.items() if n in given})
    # onnxruntime and protobuf raise classes of their own.
    except Exception:  # noqa: BLE001
        return None
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}
