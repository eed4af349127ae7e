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
    kernels = {op.body.digest: op.body for op in graph.ops if isinstance(op, Call)}
    sizes = backend.workspaces(tuple(kernels.values()))
    return replace(graph, workspaces={digest: n for digest, n in zip(kernels, sizes, strict=True) if n})
