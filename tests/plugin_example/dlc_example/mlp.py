"""`Mlp`: perceptrons in JSON.

    {"input": {"name": "x", "shape": [1, 2]},
     "layers": [{"name": "hidden", "weight": [[0.5, -1.0], [2.0, 0.25]], "bias": [0.0, 1.0], "activation": "swish"}],
     "output": "y"}

A layer computes activation(x · weightᵀ + bias); the weight has one row per unit.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from dlc import Diagnostic, DlcError, Frontend, Graph, Location, Op, Report, Source, Type, make_graph, option
from dlc.base.types import f32
from dlc.graph import Constant, Input, Tensor
from dlc.ops.elementwise import Relu, Sigmoid, Tanh
from dlc.ops.linear import Gemm
from dlc_example.swish import Swish

ACTIVATIONS: Mapping[str, Callable[[Op], Op]] = {
    "none": lambda x: x,
    "relu": Relu,
    "sigmoid": Sigmoid,
    "swish": Swish,
    "tanh": Tanh,
}


@dataclass(frozen=True)
class Mlp(Frontend):
    """Perceptrons in JSON."""

    name = "mlp"
    suffixes = (".mlp",)
    batch: int = option(0, "rows of the input; 0: as many as the file says", low=0)

    def sniff(self, source: Source) -> bool:
        """Whether it is a JSON object with layers."""
        head = bytes(source.view()[:4096])
        return head.lstrip().startswith(b"{") and b'"layers"' in head

    def supported(self) -> list[tuple[str, str]]:
        """The activations."""
        return [(name, "activation") for name in ACTIVATIONS]

    def parse(self, source: Source, report: Report) -> Graph:
        """The model as a graph. Raises DlcError with everything that is wrong."""
        reader = _Reader(source)
        graph = reader.graph(self.batch)
        if reader.problems:
            raise DlcError(*reader.problems)
        assert graph is not None
        report.count("layers", len(graph.origins))
        return graph


@dataclass
class _Reader:
    """One file; collects problems instead of stopping at the first."""

    source: Source
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def wrong(self, where: str, message: str, help: str = "") -> None:
        place = Location(self.source.name, node=where)
        self.problems.append(Diagnostic("bad-model", message, location=place, help=help))

    def graph(self, batch: int) -> Graph | None:
        try:
            model: Any = json.loads(bytes(self.source.view()))
            name, shape = str(model["input"]["name"]), tuple(int(n) for n in model["input"]["shape"])
            layers, output = list(model["layers"]), str(model.get("output", "y"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            self.wrong("", f"not a perceptron: {type(problem).__name__}: {problem}", "see the format's description")
            return None
        if len(shape) != 2 or min(shape) < 1:
            self.wrong("input", f"shape must be [rows, columns], not {list(shape)}")
            return None
        x = Input(name, Type(f32, (batch or shape[0], shape[1])))
        y: Op = x
        origins: dict[str, tuple[str, ...]] = {}
        for number, layer in enumerate(layers):
            where = f"layers[{number}]"
            y = self.layer(layer, y, where)
            if y is not x:
                origins[y.digest] = (str(layer.get("name", where)),)
        return make_graph([x], {output: y}, origins)

    def layer(self, layer: Any, x: Op, where: str) -> Op:
        """The layer on `x`; `x` itself when it is wrong, so that the others are looked at too."""
        if not isinstance(layer, dict):
            self.wrong(where, "a layer must be an object")
            return x
        given = cast("dict[str, Any]", layer)
        weight, bias = self.numbers(given, "weight", 2, where), self.numbers(given, "bias", 1, where)
        activation = ACTIVATIONS.get(str(given.get("activation", "none")))
        if activation is None:
            known = ", ".join(ACTIVATIONS)
            self.wrong(where, f"there is no activation {given['activation']}", f"one of {known}")
        if weight is None or bias is None or activation is None:
            return x
        if weight.shape[1] != x.shape[1] or bias.shape[0] != weight.shape[0]:
            self.wrong(where, f"weight {weight.type} and bias {bias.type} do not fit {x.type}")
            return x
        return activation(Gemm(x, weight, bias, trans_b=True))

    def numbers(self, layer: Mapping[str, Any], key: str, rank: int, where: str) -> Constant | None:
        try:
            array = np.asarray(layer[key], np.float32)
        except (KeyError, ValueError, TypeError) as problem:
            self.wrong(f"{where}.{key}", f"not an array of numbers: {problem}")
            return None
        if array.ndim != rank:
            self.wrong(f"{where}.{key}", f"{array.ndim} dimensions, not {rank}")
            return None
        # A name makes it a parameter: what training changes, unless it is told otherwise.
        return Constant(Tensor.of(array), f"{layer.get('name', where)}.{key}")
