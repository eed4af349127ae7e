"""The kernels of a program by themselves: each a graph of one call, with operands that it can be called with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlc.api.plan import results_of
from dlc.base.types import Array
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant, Input
from dlc.graph.text import print_graph
from dlc.kernel.expr import Expr, Load, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.work import bytes_read

_MOST_COLD: Final = 8 << 20
"""Bytes: more than second-level caches hold, so that a sweep over them leaves nothing there."""


@dataclass(frozen=True)
class ProgramKernel:
    """A kernel that a program calls."""

    digest: str
    nodes: tuple[str, ...]
    """Of the model, that it comes from."""
    calls: int
    """Steps of the program that call it."""
    kernel: Kernel
    graph: str
    """Text of a graph with one call of it: parameters are inputs, or constants where these are stored packed."""
    tensors: Mapping[str, bytes] = field(repr=False)
    """Data of the constants that the text does not hold, by digest."""
    fixed: Mapping[str, Array] = field(repr=False)
    """Values of inputs that are constants of the program and whole numbers: they may say what is read."""
    warm: tuple[str, ...]
    """Inputs that the step before has just written: they lie in a cache; constants do not."""
    cold: int
    """Bytes that other steps touch between two calls of it, as far as that counts."""


def kernels_of(graphs: Sequence[Graph]) -> tuple[list[ProgramKernel], list[tuple[str, str]]]:
    """(the kernels of graphs of kernels, in order of first use; digests of those that cannot be measured, and why)."""
    calls: dict[str, list[tuple[Graph, Call]]] = {}
    for graph in (inner for whole in graphs for inner in whole.graphs):
        for op in graph.ops:
            if isinstance(op, Call):
                calls.setdefault(op.body.digest, []).append((graph, op))
    cold = min(_MOST_COLD, _touched([op for found in calls.values() for _, op in found]))
    found: list[ProgramKernel] = []
    left: list[tuple[str, str]] = []
    for digest, uses in calls.items():
        if problem := _problem(uses[0][1].body):
            left.append((digest, problem))
        else:
            found.append(_alone(uses, cold))
    return found, left


def _touched(calls: Sequence[Call]) -> int:
    """Bytes of all constants, and of the other operands and results of the call that has most of them."""
    constants: dict[str, int] = {}
    most = 0
    for call in calls:
        if _problem(call.body):
            continue
        moved = sum(r.type.nbytes for r in results_of(call))
        for x, size in zip(call.args, bytes_read(call.body), strict=True):
            if isinstance(x, Constant):
                constants[x.digest] = max(size, constants.get(x.digest, 0))
            else:
                moved += size
        most = max(most, moved)
    return sum(constants.values()) + most


def _problem(kernel: Kernel) -> str:
    """Why a kernel cannot be called by itself; "" where it can."""
    if any(p.type.is_open or p.type.symbol is not None for p in kernel.tensors.values()):
        return "its sizes are known when the program runs: give them by --dim"
    return ""


def _alone(uses: Sequence[tuple[Graph, Call]], cold: int) -> ProgramKernel:
    call = uses[0][1]
    limits = _limits(call.body)
    args: list[Op] = []
    inputs: list[Input] = []
    fixed: dict[str, Array] = {}
    warm: list[str] = []
    tensors: dict[str, bytes] = {}
    for k, (p, x) in enumerate(zip(call.body.params, call.args, strict=True)):
        if isinstance(x, Constant) and p.dtype.per_byte > 1:
            args.append(Constant(x.tensor))
            tensors[x.tensor.digest] = np.ascontiguousarray(x.tensor.array()).reshape(-1).view(np.uint8).tobytes()
            continue
        name = f"p{k}"
        most = limits.get(p.name)
        allowed = f"index 0..{most - 1}" if most and p.dtype.is_integer else ""
        inputs.append(Input(name, p.type, allowed=allowed))
        args.append(inputs[-1])
        if not isinstance(x, Constant):
            warm.append(name)
        elif p.dtype.is_integer:
            fixed[name] = x.tensor.array()
    alone = Call(call.body, tuple(args))
    results = results_of(alone)
    whole = Graph(tuple(inputs), results, tuple(f"r{k}" for k in range(len(results))))
    nodes = dict.fromkeys(n for g, op in uses for n in g.origin(op))
    text = print_graph(whole, origins=True)
    return ProgramKernel(call.body.digest, tuple(nodes), len(uses), call.body, text, tensors, fixed, tuple(warm), cold)


def _limits(kernel: Kernel) -> dict[str, int]:
    """For each parameter that subscripts are read from, a number that all of these are below."""
    found: dict[str, int] = {}
    tensors = kernel.tensors
    for nest in kernel.nests:
        places = [(nest.index, tensors[nest.out].shape)]
        bodies = [nest.body, *([nest.where] if nest.where is not None else [])]
        places += [(x.index, tensors[x.param].shape) for body in bodies for x in _all_loads(body)]
        for index, shape in places:
            for e, extent in zip(index, shape, strict=True):
                for name in {x.param for x in loads(e)}:
                    found[name] = min(extent, found.get(name, extent))
    return found


def _all_loads(e: Expr) -> Iterator[Load]:
    """Every load, those in subscripts of others included."""
    for x in loads(e):
        yield x
        for inner in x.index:
            yield from _all_loads(inner)
