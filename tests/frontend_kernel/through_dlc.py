"""Kernels through dlc: parsed, differentiated, evaluated by the reference interpreter, or compiled as C and called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from dlc_backend_c.target import CTarget

from dlc import Report, Source
from dlc.graph import Graph, Op, evaluate
from dlc.graph.evaluate import as_result
from dlc.graph.structure import Call, Input, Item
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.passes.lower import Lower
from dlc.plugins.discovery import load_registry
from dlc.spec import Spec
from tests.backend_c.harness import STRICT, Compiled
from tests.frontend_kernel.small_language import Case

Array = np.ndarray[Any, np.dtype[Any]]
Values = Mapping[str, Sequence[float]]


def parse(case: Case, *, grad: bool = False) -> Graph:
    """The graph of a case, or of its gradients."""
    source = Source(data=case.json(grad=grad), label=f"{case.name}.json")
    return frontend().parse(source, Report())


@cache
def frontend() -> Any:
    """The frontend of the kernel language with its default options."""
    return load_registry(kinds=("frontends",)).frontend(Spec("kernel"))


def feeds(graph: Graph, values: Values, seeds: Values) -> dict[str, Array]:
    """Arrays for the inputs of a graph: values by name, and seeds for what is called d and an output."""
    found: dict[str, Sequence[float]] = {**{f"d{name}": s for name, s in seeds.items()}, **values}
    return {i.name: np.asarray(found[i.name], i.dtype.numpy).reshape(i.shape) for i in graph.inputs}


def interpreted(graph: Graph, values: Values, seeds: Values) -> dict[str, Array]:
    """Outputs by name, computed by dlc's reference interpreter."""
    return evaluate(graph, feeds(graph, values, seeds))


def kernels_of(graph: Graph) -> list[Kernel]:
    """The kernels that a graph of calls runs, in order."""
    return [op.body for op in graph.ops if isinstance(op, Call)]


def nests_of(graph: Graph) -> list[Nest]:
    """All nests of the lowered graph."""
    return [nest for kernel in kernels_of(lowered(graph)) for nest in kernel.nests]


def lowered(graph: Graph) -> Graph:
    """The graph with nothing but calls of kernels."""
    return Lower().run(graph, Report())


class CompiledGraphs:
    """Graphs whose kernels are C functions of one shared library."""

    def __init__(
        self, graphs: Sequence[Graph], target: CTarget, folder: Path, cc: str = "gcc", flags: Sequence[str] = STRICT
    ) -> None:
        self.graphs = [lowered(g) for g in graphs]
        distinct = {k.digest: k for g in self.graphs for k in kernels_of(g)}
        self.numbers = {digest: n for n, digest in enumerate(distinct)}
        self.compiled = Compiled(list(distinct.values()), target, folder, cc, flags)

    def __call__(self, n: int, values: Values, seeds: Values) -> dict[str, Array]:
        """Outputs of graph `n` by name."""
        graph = self.graphs[n]
        given = feeds(graph, values, seeds)
        known: dict[Op, Any] = {}
        for op in graph.ops:
            known[op] = self._value(op, [known[x] for x in op.operands], given)
        return {name: as_result(known[op], op.type) for name, op in zip(graph.names, graph.outputs, strict=True)}

    def _value(self, op: Op, args: Sequence[Any], given: Mapping[str, Array]) -> Any:
        match op:
            case Input():
                return given[op.name]
            case Call():
                results = self.compiled(self.numbers[op.body.digest], args)
                return results if len(op.types) > 1 else next(iter(results))
            case Item():
                return args[0][op.index]
            case _:
                return op.evaluate(*args)


def as_double(case: Case) -> Case:
    """The same case on double precision."""
    return replace(case, dtype="double")
