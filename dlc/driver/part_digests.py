"""What of a graph changed: digests of its weights and of its names, beside the one of everything that is computed.

They are lines of the keys of the steps that work on it. Names of nodes are in no other digest, yet they end in comments
of generated code; and `dlc cache why` can say that only the weights differ.
"""

from __future__ import annotations

from dlc.api.artifact import Artifact
from dlc.api.plan import Plan
from dlc.cache.step_record import PartDigests
from dlc.driver.left_out import digest_of
from dlc.graph.graph import Graph


def part_digests(state: Graph | Plan | Artifact) -> PartDigests:
    """(label, digest) of a state's weights and names, in the order of its ops; nothing for files."""
    if isinstance(state, Artifact):
        return ()
    graph = state.graph if isinstance(state, Plan) else state
    weights = (tensor.digest for tensor in graph.tensors)
    names = (name for each in graph.graphs for op in each.ops for name in ("", *graph.origin(op)))
    ports = (*(i.name for i in graph.inputs), "", *graph.names)
    return ("weights", digest_of(weights)), ("names", digest_of((*ports, *names)))
