"""A quantised model cut at its quantised tensors: each one computed from exactly the bytes that others get too.

One step of a quantisation that rounds to the other side spreads through a network until most of its outputs differ,
and says nothing about the kernels. Here every QuantizeLinear is an output of the model and what reads it reads an input
instead, so that the results of several runtimes can be counted node by node, from the same bytes, and be held against
the formulas of the nodes in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from tests.models.writing import Array

GIVEN = "_given"
"""What the input is called that takes the place of a quantised tensor, after its name."""
REFERENCE = 21
"""Opset of the first operators that ONNX's evaluator has a version of; these differ from earlier ones by types only."""
_AS_STORED = "_as_stored"
_SINGLE, _DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE


def quantisations(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Where activations become bytes."""
    return [n for n in model.graph.node if n.op_type == "QuantizeLinear"]


def watched(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every quantised tensor as an output."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    del found.graph.output[:]
    found.graph.output.extend(_ports(model))
    return found


def cut(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every quantised tensor is an output, and is read from an input."""
    found = watched(model)
    for port in _ports(model):
        port.name += GIVEN
        found.graph.input.append(port)
    names = {port.name for port in found.graph.output}
    for node in found.graph.node:
        node.input[:] = [name + GIVEN if name in names else name for name in node.input]
    return _only_used(found)


def exact(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """What each QuantizeLinear of a model rounds, in steps and with the zero point.

    DequantizeLinear gives f32, as the standard fixes it; from there on all is computed in f64, with the division by the
    scale.
    """
    found = onnx.ModelProto()
    found.CopyFrom(model)
    for domain in found.opset_import:
        if not domain.domain:
            domain.version = max(domain.version, REFERENCE)
    for tensor in found.graph.initializer:
        if tensor.data_type == _SINGLE:
            tensor.name += _AS_STORED
    stored = {tensor.name for tensor in found.graph.initializer}
    nodes = [
        helper.make_node("Cast", [name], [name.removesuffix(_AS_STORED)], to=_DOUBLE)
        for name in sorted(stored)
        if name.endswith(_AS_STORED)
    ]
    for node in found.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _SINGLE:
                attribute.i = _DOUBLE
        nodes.append(node)
        if node.op_type == "QuantizeLinear":
            nodes[-1] = helper.make_node("Div", node.input[:2], node.output)
        elif node.op_type == "DequantizeLinear":
            node.input[1] += _AS_STORED
            nodes.append(helper.make_node("Cast", [node.output[0] + _AS_STORED], node.output, to=_DOUBLE))
            node.output[0] += _AS_STORED
    del found.graph.node[:]
    found.graph.node.extend(nodes)
    for port in found.graph.output:
        port.type.tensor_type.elem_type = _DOUBLE
    zeros = {n.output[0]: n.input[2] for n in quantisations(model)}
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    names = [port.name for port in found.graph.output]
    doubles = {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in feeds.items()}
    evaluator: Any = ReferenceEvaluator(found)
    values = evaluator.run(names, doubles)
    return {n: np.asarray(v) + tensors[zeros[n]] for n, v in zip(names, values, strict=True)}


@dataclass(frozen=True)
class Deviation:
    """How the bytes of a runtime differ from those that exact numbers are rounded to.

    Attributes:
        elements: How many there are.
        differing: How many are not the nearest byte.
        steps: By how much they differ at most.
        beyond: How far from the exact number the worst of them is, above the half step that rounding takes.
    """

    elements: int
    differing: int
    steps: int
    beyond: float

    @classmethod
    def of(cls, got: Array, numbers: Array) -> Deviation:
        """Of bytes from `exact` numbers."""
        kind = np.iinfo(got.dtype)
        clipped = np.clip(numbers, kind.min, kind.max)
        away = np.abs(got.astype(np.int64) - np.rint(clipped).astype(np.int64))
        beyond = np.abs(got - clipped).max(initial=0.0, where=away > 0) - 0.5
        return cls(got.size, int(np.count_nonzero(away)), int(away.max(initial=0)), max(float(beyond), 0.0))

    @classmethod
    def total(cls, parts: Sequence[Deviation]) -> Deviation:
        """Of several tensors together."""
        return cls(
            sum(p.elements for p in parts),
            sum(p.differing for p in parts),
            max((p.steps for p in parts), default=0),
            max((p.beyond for p in parts), default=0.0),
        )


def producers(model: onnx.ModelProto) -> dict[str, str]:
    """The operators between a quantised tensor and the quantised tensors that it is computed from, by its name."""
    made = {output: node for node in model.graph.node for output in node.output}
    found: dict[str, str] = {}
    for node in quantisations(model):
        kinds: list[str] = []
        front = [node.input[0]]
        while front:
            source = made.get(front.pop())
            if source is not None and source.op_type not in ("QuantizeLinear", "DequantizeLinear"):
                kinds.append(source.op_type)
                front.extend(source.input)
        found[node.output[0]] = " ".join(reversed(kinds))
    return found


def _ports(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Names, types and shapes of the quantised tensors."""
    inferred: Any = shape_inference.infer_shapes(model, data_prop=True)
    values = {value.name: value for value in inferred.graph.value_info}
    return [values[n.output[0]] for n in quantisations(model)]


def _only_used(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without nodes and inputs that no output needs: runtimes warn of some and refuse others."""
    needed = {port.name for port in model.graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    inputs = [i for i in model.graph.input if i.name in needed]
    del model.graph.node[:], model.graph.input[:]
    model.graph.node.extend(reversed(kept))
    model.graph.input.extend(inputs)
    return model
