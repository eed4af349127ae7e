"""Graphs with the sizes of a call in the places of symbols: the reference evaluates numbers.

A frontend that takes sizes reads its file anew for them. Graphs of others, as those in dlc's own text, have their
dimensions replaced in types and attributes; the types of all results are derived again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from dlc.base.diagnostics import ExitCode, error, quote
from dlc.base.extents import Dim, line_of, settled, symbols
from dlc.base.polynomials import Symbol
from dlc.base.types import Array, Type
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Input

Sizes = Mapping[Symbol, int]


def at_sizes_of(graph: Graph, feeds: Mapping[str, Array]) -> Graph:
    """The graph for the sizes of inputs; itself where its inputs have no symbols, or take sizes as inputs.

    Args:
        graph: The model.
        feeds: Arrays by the names of its inputs.

    Raises:
        DlcError: (USAGE, `wrong-argument`) a dimension is no size that its symbol may have; (`symbolic-dimension`) the
            inputs do not tell a size.
    """
    if any(i.type.symbol is not None for i in graph.inputs):
        return graph
    every = symbols(*(d for i in graph.inputs for d in i.type.shape))
    return at_sizes(graph, {s: _told(s, graph, feeds) for s in every}) if every else graph


def at_sizes(graph: Graph, sizes: Sizes) -> Graph:
    """The graph with these sizes in the places of symbols, in the graphs that its ops hold too."""
    new: dict[str, Op] = {}
    for op in (*graph.inputs, *graph.ops):
        if op.digest not in new:
            new[op.digest] = _at(op, new, sizes)
    inputs = tuple(cast("Input", new[i.digest]) for i in graph.inputs)
    return Graph(inputs, tuple(new[o.digest] for o in graph.outputs), graph.names)


def _at(op: Op, new: Mapping[str, Op], sizes: Sizes) -> Op:
    attributes = {name: _value(v, sizes) for name, v in op.attrs.items()}
    return op.remade([new[x.digest] for x in op.operands], attributes)


def _value(value: Any, sizes: Sizes) -> Any:
    """An attribute at these sizes."""
    match value:
        case Dim():
            return settled(value, sizes)
        case tuple():
            return tuple(_value(v, sizes) for v in cast("tuple[Any, ...]", value))
        case Type():
            shape = tuple(settled(d, sizes) for d in value.shape)
            return Type(value.dtype, shape, symbol=value.symbol) if shape != value.shape else value
        case Graph():
            return at_sizes(value, sizes)
        case _:
            return value


def _told(of: Symbol, graph: Graph, feeds: Mapping[str, Array]) -> int:
    for port in graph.inputs:
        lengths: tuple[int, ...] = np.shape(feeds[port.name]) if port.name in feeds else ()
        for k, (d, length) in enumerate(zip(port.type.shape, lengths, strict=False)):
            if not isinstance(d, Dim) or (line := line_of(d, of)) is None:
                continue
            units, rest = divmod(length - line[1], line[0])
            if rest or not of.low <= units <= of.high:
                raise error(
                    "wrong-argument",
                    f"dimension {k} of input {quote(port.name)} is {length}: {of.name} is {of.sizes}",
                    exit_code=ExitCode.USAGE,
                )
            return units * of.unit
    raise error(
        "symbolic-dimension",
        f"no dimension of an input is {of.name}, so that the reference does not know its size",
        help=f"compare with files: --expected FILE, or give the model one size of {of.name}",
        exit_code=ExitCode.USAGE,
    )
