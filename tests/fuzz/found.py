"""Results whose size a call finds, made into results of known size: what a model computes, when that is known.

    NonZero(x), Unique(x), NonMaxSuppression(…)  →  constants
    Compress(x, c)                               →  Gather(x, the places where c is true)

onnxruntime says what is found, one node at a time (numpy does for Unique of NaN, whose places and counts are those of
other elements there). What comes of it is a model in numbers, for references that need one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from dlc.graph import evaluate
from tests.frontend_onnx.building import model_of, parse, runtime
from tests.fuzz.model import Array, Model, Node
from tests.fuzz.sizes import Refused

FINDING: Final = ("NonZero", "Compress", "Unique", "NonMaxSuppression")
"""Operators whose results have sizes that depend on data."""
_FLAT: Final = "flat.shape"


def frozen(model: Model) -> Model:
    """The same for the values of its inputs, without operators of `FINDING`."""
    nodes: list[Node] = []
    constants = dict(model.constants)
    for node in model.nodes:
        if node.op not in FINDING:
            nodes.append(node)
            continue
        before = replace(model, nodes=tuple(nodes), constants=constants)
        operands = values_of(before, [n for n in node.inputs if n])
        for result, array in found(node, operands, model.opset).items():
            place = f"{result}.found"
            constants[place] = array
            if node.op == "Compress":
                nodes += _gathered(node, place)
                constants[_FLAT] = np.array([-1])
            else:
                nodes.append(Node("Identity", (place,), (result,)))
    return replace(model, nodes=tuple(nodes), constants=constants)


def _gathered(node: Node, places: str) -> list[Node]:
    (result,), axis = node.outputs, node.attributes.get("axis")
    if axis is not None:
        return [Node("Gather", (node.inputs[0], places), (result,), {"axis": axis})]
    flat = f"{result}.flat"
    return [
        Node("Reshape", (node.inputs[0], _FLAT), (flat,)),
        Node("Gather", (flat, places), (result,), {"axis": 0}),
    ]


def values_of(model: Model, names: list[str]) -> dict[str, Array]:
    """What a model in numbers gives for some of its values."""
    given = {**model.inputs, **model.constants}
    computed = [n for n in names if n not in given]
    values = {n: given[n] for n in names if n in given}
    if computed:
        graph = parse(replace(model, outputs=tuple(dict.fromkeys(computed))).live().onnx)
        values |= evaluate(graph, model.inputs)
    return values


def found(node: Node, operands: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """Results of one node by name; of Compress the places that it takes.

    Raises:
        Refused: onnxruntime does not have the operator for these element types, or ends the process.
    """
    if node.op == "Unique" and "axis" in node.attributes and not all(a.size for a in operands.values()):
        raise Refused("onnxruntime aborts in Unique of nothing along an axis")
    if node.op == "Unique" and any(a.dtype.kind == "f" and np.isnan(a).any() for a in operands.values()):
        return _unique(node, operands[node.inputs[0]])
    if node.op == "Compress":
        chosen = operands[node.inputs[1]]
        return {node.outputs[0]: np.flatnonzero(chosen)}
    wanted = [o for o in node.outputs if o]
    single = model_of([node.onnx], operands, wanted, opset=opset)
    try:
        return dict(zip(wanted, runtime(single, wanted, operands), strict=True))
    except Exception as problem:  # noqa: BLE001 - onnxruntime raises classes of its own, RuntimeError among them
        raise Refused(str(problem)) from None


def _unique(node: Node, x: Array) -> dict[str, Array]:
    """Unique of all elements by numpy."""
    if "axis" in node.attributes:
        raise Refused("NaN in slices, which numpy compares as bytes")
    values, first, inverse, counts = np.unique(
        x.reshape(-1), return_index=True, return_inverse=True, return_counts=True
    )
    order = np.arange(len(first)) if node.attributes.get("sorted", 1) else np.argsort(first)
    results = (values[order], first[order], np.argsort(order)[inverse], counts[order])
    return {name: result for name, result in zip(node.outputs, results, strict=False) if name}
