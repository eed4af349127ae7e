"""What a gradient leads through: the ops on the path, and the composites among them opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.precise import is_narrow, precise, rounds_inside
from dlc.graph.structure import Input, Item
from dlc.graph.walk import toposort

_DEEPEST: Final = 64
"""Composites of composites: far more than any library nests, yet an end for an op that expands to itself."""

Names = Mapping[str, tuple[str, ...]]
"""Digest of an op → the source model's nodes it comes from."""


def opened(
    outputs: Sequence[Op], wrt: Sequence[Op], origins: Names, named: frozenset[str] = frozenset()
) -> tuple[tuple[Op, ...], tuple[Op, ...], dict[str, tuple[str, ...]]]:
    """Outputs and `wrt` with the composites between them opened, so that forward and backward share their parts.

    An op with a `vjp` of its own stays whole, and so does what depends on nothing of `wrt`.
    """
    graph = Graph((), (*outputs, *wrt), (), origins=origins)
    for _ in range(_DEEPEST):
        path = {w.digest for w in graph.outputs[len(outputs) :]}

        def rule(op: Op, path: set[str] = path) -> Op | None:
            _extend(path, op)
            if op.digest not in path or op.text_name in named:
                return None
            if (more := op.for_gradient()) is not op:
                single = Item(more, 0)
                _extend(path, more)
                _extend(path, single)
                return more if len(op.types) > 1 else single
            if type(op).vjp is not Op.vjp:
                if not _rounds_on_the_way(op):
                    return None
                whole = precise(op)
                for part in toposort((whole,), op.operands):
                    _extend(path, part)
                return whole
            if (whole := op.expansion) is None:
                return None
            for part in toposort((whole,), op.operands):
                _extend(path, part)
            return whole

        found = graph.rewrite(rule)
        if found.digest == graph.digest:
            count = len(outputs)
            return found.outputs[:count], found.outputs[count:], dict(found.origins)
        graph = found
    raise AssertionError(f"an op expands into itself after {_DEEPEST} steps")


def _rounds_on_the_way(op: Op) -> bool:
    """Whether cotangents of an op of narrow floats take several steps, which share what the op computes in f32."""
    if len(op.types) != 1 or not is_narrow(op):
        return False
    seed = Input("cotangent", op.type)
    found = op.vjp(seed)
    return found is not None and rounds_inside([x for x in found if x is not None], (*op.operands, seed))


def _extend(path: set[str], op: Op) -> None:
    """Add an op to the path if a float leads from the path into it, and a float out of it."""
    if any(t.dtype.is_float for t in op.types) and any(x.digest in path for x in op.operands):
        path.add(op.digest)


def path_of(order: Sequence[Op], wrt: Sequence[Op]) -> frozenset[str]:
    """Digests of the ops that depend on `wrt` through floats, those of `wrt` among them."""
    path = {w.digest for w in wrt}
    for op in order:
        _extend(path, op)
    return frozenset(path)
