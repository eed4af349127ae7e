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
    """Whether a call makes elements larger, and elementwise ones after it end in a reduction that may do so itself."""
    last, start = op, _operand(op, constant)
    if start is None:
        return False
    while last.dtype.itemsize > start.dtype.itemsize:
        users = source.users.get(last, ())
        if len(users) != 1 or last in source.outputs or not isinstance(users[0], Call):
            return False
        reader = users[0]
        if reader.body.reduces:
            return _inlined(last, reader)
        last = reader
        if _operand(last, constant) is None:
            return False
    return False


def _inlined(value: Call, reader: Call) -> bool:
    """Whether all nests that read an elementwise call's result are reductions that will compute it themselves."""
    names = {p.name for p, a in zip(reader.body.params, reader.args, strict=True) if a.digest == value.digest}
    found = [(n, name) for n in reader.body.nests for name in names & n.reads()]
    of = value.body.nests[0]
    return all(n.reduce is not None and not refusal(of, Param(name, value.type), n) for n, name in found)


def _operand(op: Call, constant: Callable[[Op], bool]) -> Op | None:
    """The only operand of an elementwise call that is no constant; None of any other call."""
    changing = [x for x in op.args if not constant(x)]
    if len(op.body.nests) != 1 or len(op.types) != 1 or len(changing) != 1:
        return None
    return changing[0] if is_pointwise_map(op.body.nests[0], op.body.results[0].shape) else None
