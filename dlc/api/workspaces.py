"""What kernels work in on a target, stated by its backend before their order and their memory are planned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlc.api.backend import Backend
from dlc.graph.structure import Call

if TYPE_CHECKING:
    from dlc.graph.graph import Graph


def states_workspaces(backend: Backend) -> bool:
    """Whether the backend has something to say about what kernels work in."""
    return type(backend).workspaces is not Backend.workspaces


def with_workspaces(graph: Graph, backend: Backend) -> Graph:
    """The graph of kernels with the bytes that each of them works in on the backend's target."""
    kernels = {op.body.digest: op.body for each in graph.graphs for op in each.ops if isinstance(op, Call)}
    sizes = dict(zip(kernels, backend.workspaces(tuple(kernels.values())), strict=True))

    def stated(graph: Graph) -> Graph:
        graph = graph.with_bodies(stated)
        own = dict.fromkeys(op.body.digest for op in graph.ops if isinstance(op, Call))
        return replace(graph, workspaces={digest: sizes[digest] for digest in own if sizes[digest]})

    return stated(graph)
