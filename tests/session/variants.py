"""Models that differ from a given one in names alone, or in the elements of their weights alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

ALPHABET = "abcXYZ019_./:-é漢'\"\\ "


def renamed(model: onnx.ModelProto, seed: int = 0, alphabet: str = "") -> onnx.ModelProto:
    """The model with other names for all nodes and values, in the graphs that nodes hold too."""
    draw = random.Random(seed)
    names: dict[str, str] = {}
    taken: set[str] = set()

    def name(old: str) -> str:
        while old and old not in names:
            new = "".join(draw.choices(alphabet, k=draw.randint(1, 12))) if alphabet else f"renamed_{len(names)}"
            if new.strip() and new not in taken:
                names[old] = new
                taken.add(new)
        return names.get(old, "")

    found = onnx.ModelProto()
    found.CopyFrom(model)
    for graph in _graphs(found.graph):
        for node in graph.node:
            node.name = name(node.name)
            node.input[:] = [name(n) for n in node.input]
            node.output[:] = [name(n) for n in node.output]
        for port in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            port.name = name(port.name)
    return found


def other_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with other elements in every float initializer that has several, of the same shapes."""
    draw = np.random.default_rng(seed)
    found = onnx.ModelProto()
    found.CopyFrom(model)
    for k, tensor in enumerate(found.graph.initializer):
        old = numpy_helper.to_array(tensor)
        if old.dtype.kind == "f" and old.size > 1:
            factor = draw.uniform(0.9, 1.1, old.shape).astype(old.dtype)
            found.graph.initializer[k].CopyFrom(numpy_helper.from_array(old * factor, tensor.name))
    return found


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
