"""Graphs as functions on traced arrays: their ops on other operands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import quote
from dlc.driver.python.function import Function, Parameters
from dlc.driver.python.options import Options
from dlc.driver.python.place import refused
from dlc.driver.python.traced import Traced, as_traced
from dlc.graph.walk import toposort

if TYPE_CHECKING:
    from dlc.graph.graph import Graph
    from dlc.graph.op import Op


def replaced(ops: Sequence[Op], by: Mapping[str, Op]) -> list[Op]:
    """Ops with others in the place of those that they depend on, by digest."""
    new: dict[str, Op] = dict(by)
    for op in toposort(ops):
        if op.digest not in new:
            new[op.digest] = op.with_operands([new[x.digest] for x in op.operands])
    return [new[op.digest] for op in ops]


def function_of_graph(graph: Graph, name: str, options: Options | None = None) -> Function:
    """A graph as a function of its inputs: its only output, or all by name."""
    names = tuple(i.name for i in graph.inputs)
    types = {i.name: i.type for i in graph.inputs}

    def bind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) == 1 and isinstance(args[0], Mapping):
            args, kwargs = (), {**kwargs, **args[0]}
        if len(args) > len(names):
            raise TypeError(f"{len(args)} positional arguments for {len(names)} inputs")
        given = dict(zip(names, args, strict=False))
        if wrong := [key for key in kwargs if key not in names or key in given]:
            raise TypeError(f"there is no input {quote(wrong[0])}, or it is given twice")
        given |= kwargs
        if missing := [n for n in names if n not in given]:
            raise TypeError(f"missing: {_listed(missing)}")
        return {n: given[n] for n in names}

    def call(bound: dict[str, Any]) -> Any:
        by: dict[str, Op] = {}
        for i in graph.inputs:
            value = as_traced(bound[i.name], i.dtype.numpy)
            if value.type != i.type:
                raise refused("wrong-argument", f"{name}: {quote(i.name)} is {i.type.text}, not {value.type.text}")
            by[i.digest] = value.op
        found = dict(zip(graph.names, map(Traced, replaced(graph.outputs, by)), strict=True))
        return next(iter(found.values())) if len(found) == 1 else found

    return Function(name, call, Parameters(names, bind, types), options)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quote, names))
