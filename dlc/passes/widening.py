"""Elementwise calls that only make elements larger, for a reduction to read: means of quantised values sum bytes.

t = u8(…);  u = i32(t);  r = Σ u   →   r = Σ i32(t)      memory holds t, not u
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.fusion.inline import is_pointwise_map
from dlc.kernel.fusion.merge import refusal
from dlc.kernel.nest import Param


def widens(op: Call, source: Graph, constant: Callable[[Op], bool]) -> bool:
    """Whether this call and the elementwise ones after it end in a reduction that may read smaller elements itself."""
    last, start = op, _operand(op, constant)
    if start is None:
        return False
    while True:
        users = source.users.get(last, ())
        if len(users) != 1 or last in source.outputs or not isinstance(users[0], Call):
            return False
        reader = users[0]
        if reader.body.reduces:
            break
        last = reader
        if _operand(last, constant) is None:
            return False
    value = last.body.nests[0]
    names = {p.name for p, a in zip(reader.body.params, reader.args, strict=True) if a.digest == last.digest}
    found = [(n, name) for n in reader.body.nests for name in names & n.reads()]
    inlined = all(n.reduce is not None and not refusal(value, Param(name, last.type), n) for n, name in found)
    return last.dtype.itemsize > start.dtype.itemsize and inlined


def _operand(op: Call, constant: Callable[[Op], bool]) -> Op | None:
    """The only operand of an elementwise call that is no constant; None of any other call."""
    changing = [x for x in op.args if not constant(x)]
    if len(op.body.nests) != 1 or len(op.types) != 1 or len(changing) != 1:
        return None
    return changing[0] if is_pointwise_map(op.body.nests[0], op.body.results[0].shape) else None
