"""What a step gave, as a handle and as payloads for the cache: graphs and plans without names and weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from hashlib import sha256
from operator import itemgetter
from typing import Any

from dlc.api.artifact import Artifact
from dlc.api.plan import Plan
from dlc.base.uses import WEIGHT
from dlc.cache.step_record import Handle, Placeholders
from dlc.driver.codec import Payload, State, encode, encode_table, encode_tensors, kind_of
from dlc.driver.left_out import LeftOut, digest_of, of_given
from dlc.driver.names_and_weights import separated, with_more
from dlc.driver.part_digests import part_digests
from dlc.files.hashing import content_sha256
from dlc.graph.graph import Graph
from dlc.graph.placeholders import made_inputs, made_outputs, name_pattern
from dlc.graph.tensor import Tensor


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
    if isinstance(state, Artifact) or (given.left_out is None and given.kind != "source"):
        payloads = encode(state)
        return Handle(kind_of(state), _digest(state, payloads), lambda: state, part_digests(state)), payloads
    if not bare:
        return _separated(state)
    added: tuple[Tensor, ...] = ()
    assert isinstance(given.left_out, LeftOut)
    if any(read.startswith(WEIGHT) for read in reads):
        state, added = with_more(state, given.left_out.table)  # what it made may come of what it read
    made = made_inputs(_graph(state)), made_outputs(_graph(state))
    placeholders = Placeholders(_pattern(state), *made, added=digest_of(t.digest for t in added) if added else "")
    parts, left_out = of_given(
        placeholders, given, given.left_out, lambda table: replace(table, tensors=(*table.tensors, *added))
    )
    payloads = {**encode(state), **(encode_tensors(added) if added else {})}
    return Handle(state.kind, state.digest, lambda: state, parts, placeholders, left_out), payloads


def _separated(state: Graph | Plan) -> tuple[Handle[Any], dict[str, Payload]]:
    """Of a state with names and weights."""
    bare, table = separated(state)
    placeholders = Placeholders(_pattern(bare), own=True)
    weights = digest_of(t.digest for t in table.tensors)
    parts = ("weights", weights), ("names", digest_of(table.names))
    handle: Handle[Any] = Handle(bare.kind, bare.digest, lambda: bare, parts, placeholders, LeftOut(lambda: table))
    return handle.known(state), {**encode(bare), **encode_table(table)}


def _graph(state: Graph | Plan) -> Graph:
    return state.graph if isinstance(state, Plan) else state


def _pattern(state: Graph | Plan) -> str:
    return digest_of(name_pattern(_graph(state)))


def _digest(state: State, outputs: Mapping[str, Payload]) -> str:
    if not isinstance(state, Artifact):
        return state.digest
    h = sha256()
    for name, content in sorted(outputs.items(), key=itemgetter(0)):
        # Digests of equal length keep what belongs to one file apart from the next one's name.
        h.update(f"{name}\0{content_sha256(content)}\0".encode())
    return h.hexdigest()[:32]
