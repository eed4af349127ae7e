"""What a step gave, as a handle and as payloads for the cache: graphs and plans without names and weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from hashlib import sha256
from operator import itemgetter
from typing import Any

from dlc.api.artifact import Artifact
from dlc.api.plan import Plan, parse_plan, plan_text
from dlc.base.table import Table
from dlc.base.uses import WEIGHT
from dlc.cache.step_record import Cover, Handle
from dlc.driver.codec import Payload, State, encode, encode_table, encode_tensors, kind_of
from dlc.driver.part_digests import part_digests
from dlc.driver.veils import Veil, digest_of, of_given
from dlc.files.hashing import content_sha256
from dlc.graph.graph import Graph
from dlc.graph.tensor import Tensor
from dlc.graph.veil import (
    changed,
    literals,
    made_inputs,
    made_outputs,
    name_pattern,
    stand_in,
    unveiled,
    veiled,
    with_names,
)


def stored(
    state: State, given: Handle[Any], *, bare: bool, reads: Collection[str]
) -> tuple[Handle[Any], dict[str, Payload]]:
    """The handle of what a step gave, and its payloads.

    Args:
        state: What it gave.
        given: What it was given.
        bare: Whether that was without names and weights.
        reads: What it read of them.
    """
    if isinstance(state, Artifact) or (given.veil is None and given.kind != "source"):
        payloads = encode(state)
        return Handle(kind_of(state), _digest(state, payloads), lambda: state, part_digests(state)), payloads
    if not bare:
        return _covered(state)
    added: tuple[Tensor, ...] = ()
    assert isinstance(given.veil, Veil)
    if any(read.startswith(WEIGHT) for read in reads):
        state, added = with_more(state, given.veil.table)  # what it made may come of what it read
    made = made_inputs(_graph(state)), made_outputs(_graph(state))
    cover = Cover(_pattern(state), *made, added=digest_of(t.digest for t in added) if added else "")
    parts, veil = of_given(cover, given, given.veil, lambda table: replace(table, tensors=(*table.tensors, *added)))
    payloads = {**encode(state), **(encode_tensors(added) if added else {})}
    return Handle(state.kind, state.digest, lambda: state, parts, cover, veil), payloads


def _covered(state: Graph | Plan) -> tuple[Handle[Any], dict[str, Payload]]:
    """Of a state with names and weights."""
    bare, table = covered(state)
    cover = Cover(_pattern(bare), own=True)
    weights = digest_of(t.digest for t in table.tensors)
    parts = ("weights", weights), ("names", digest_of(table.names))
    handle: Handle[Any] = Handle(bare.kind, bare.digest, lambda: bare, parts, cover, Veil(lambda: table))
    return handle.known(state), {**encode(bare), **encode_table(table)}


def _graph(state: Graph | Plan) -> Graph:
    return state.graph if isinstance(state, Plan) else state


def _pattern(state: Graph | Plan) -> str:
    return digest_of(name_pattern(_graph(state)))


def without(state: Any, table: Table) -> Any:
    """A state with the names and weights of a table."""
    if isinstance(state, Graph):
        return unveiled(state, table)
    if not isinstance(state, Plan):
        return state
    graph = unveiled(state.graph, table)
    if not _same_ops(graph, state.graph):
        # Weights that a pass made are equal to others: steps would be one. They stay apart by their numbers.
        graph = with_names(state.graph, table)
    return _replanned(state, graph, table.text)


def covered(state: Graph | Plan) -> tuple[Graph | Plan, Table]:
    """A state without its names and weights, and these."""
    if isinstance(state, Graph):
        return veiled(state)
    graph, table = veiled(state.graph)
    return _replanned(state, graph, str), table


def with_more(state: Graph | Plan, given: Table) -> tuple[Graph | Plan, tuple[Tensor, ...]]:
    """A state whose literal tensors have got numbers behind those of a table, and these tensors."""
    graph = state.graph if isinstance(state, Plan) else state
    found = literals(graph)
    if not found:
        return state, ()
    numbers = {digest: len(given.tensors) + k for k, digest in enumerate(found)}

    def tensor(of: Tensor) -> Tensor:
        return stand_in(of, numbers[of.digest]) if of.digest in numbers else of

    new = changed(graph, str, tensor)
    return (_replanned(state, new, str) if isinstance(state, Plan) else new), tuple(found.values())


def _same_ops(one: Graph, other: Graph) -> bool:
    pairs = zip(one.graphs, other.graphs, strict=False)
    return len(one.graphs) == len(other.graphs) and all(len(a.ops) == len(b.ops) for a, b in pairs)


def _replanned(plan: Plan, graph: Graph, text: Callable[[str], str]) -> Plan:
    """The plan on a graph that has the same ops in the same order."""
    if not _same_ops(graph, plan.graph):
        raise AssertionError("two ops of a plan are one without their names")
    found = parse_plan(graph, plan_text(plan))
    facts = {text(key): text(value) if isinstance(value, str) else value for key, value in found.facts.items()}
    return replace(found, facts=facts)


def _digest(state: State, outputs: Mapping[str, Payload]) -> str:
    if not isinstance(state, Artifact):
        return state.digest
    h = sha256()
    for name, content in sorted(outputs.items(), key=itemgetter(0)):
        # Digests of equal length keep what belongs to one file apart from the next one's name.
        h.update(f"{name}\0{content_sha256(content)}\0".encode())
    return h.hexdigest()[:32]
