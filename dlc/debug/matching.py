"""Which values of a graph are those of the graph that it was made from, as far as that can be told without computing.

conv "a", relu "b"   →   call "a" "b"      the call's result is that of relu
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op


def matching(after: Graph, before: Graph) -> dict[Op, Op]:
    """Op of `after` → the op of `before` with the same value: the same op, an output, or the last op of its nodes.

    An op that came from some nodes of the model gives what the last of their ops gave, if its type is the same and one
    op only is the last of them. What a step moves around may have the type and not the values.
    """
    same = {op.digest: op for op in before.ops}
    outputs = dict(zip(after.outputs, before.outputs, strict=True))
    by_node: dict[str, list[Op]] = {}
    for op in before.ops:
        for name in before.origin(op):
            by_node.setdefault(name, []).append(op)
    constant: dict[str, bool] = {}
    found: dict[Op, Op] = {}
    for op in after.ops:
        if is_constant(op, constant) or len(op.types) > 1:
            continue
        other = same.get(op.digest) or outputs.get(op) or _last(op, after, before, by_node)
        if other is not None and other.types == op.types and not is_constant(other, constant):
            found[op] = other
    return found


def _last(op: Op, after: Graph, before: Graph, by_node: Mapping[str, list[Op]]) -> Op | None:
    names = set(after.origin(op))
    inside = {x: None for name in names for x in by_node.get(name, ()) if names.issuperset(before.origin(x))}
    returned = set(before.outputs)
    last = [x for x in inside if x in returned or not all(user in inside for user in before.users.get(x, ()))]
    return last[0] if len(last) == 1 else None
