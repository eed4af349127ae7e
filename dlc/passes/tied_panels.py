"""A weight that a product reads in panels is read there by all that read only a part of it, as a tied embedding is.

    r[t,c] = w[i[t],c]   beside   y[t,v] += x[t,c] * p[v//16,c,v%16]   →   r[t,c] = p[i[t]//16,c,i[t]%16]

The weight itself is then read by nobody and not stored: a table of words is not there twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.expr import Expr, Load, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Param
from dlc.kernel.simplify import simplify_nest
from dlc.passes.panels import packed_index

PART = 8
"""A reader whose loops have fewer points than a weight has elements by this factor reads a part of it: that a row's
elements are apart in panels costs little beside storing the weight twice."""


@dataclass(frozen=True)
class Panels:
    """The value that holds a weight in panels, and how."""

    value: Op
    order: tuple[int, ...]
    panel: int


def read_panels(graph: Graph, panels: Mapping[str, Panels]) -> Graph:
    """The graph with partial readers of weights reading their panels; `panels` by digest of the weight.

    A weight that somebody else reads whole is stored in any case, so its other readers stay as they are.
    """
    whole = {o.digest for o in graph.outputs}
    for op in graph.ops:
        for position, x in enumerate(op.operands):
            held = panels.get(x.digest)
            if held and op.digest not in _inside(held, x) and not (isinstance(op, Call) and _partial(op, position)):
                whole.add(x.digest)
    moved = {digest: held for digest, held in panels.items() if digest not in whole}

    def rule(op: Op) -> Op | None:
        if not isinstance(op, Call):
            return None
        for position, x in enumerate(op.args):
            if (held := moved.get(x.digest)) is not None:
                op = _reading(op, position, held)
        return op

    return graph.rewrite(rule) if moved else graph


def _inside(held: Panels, weight: Op) -> frozenset[str]:
    """The ops between a weight and its panels."""
    found, waiting = set[str](), [held.value]
    while waiting:
        op = waiting.pop()
        if op.digest != weight.digest:
            found.add(op.digest)
            waiting += op.operands
    return frozenset(found)


def _partial(op: Call, position: int) -> bool:
    """Whether a call reads a small part of an argument."""
    param = op.body.params[position]
    nests = [n for n in op.body.nests if any(x.param == param.name for e in n.exprs() for x in loads(e))]
    return PART * sum(n.points for n in nests) <= param.type.capacity


def _reading(op: Call, position: int, held: Panels) -> Call:
    """The call on the panels of its argument."""
    body = op.body
    param = body.params[position]

    def change(load: Load) -> Expr:
        return Load(load.param, packed_index(load, held.order, held.panel)) if load.param == param.name else load

    params = tuple(Param(p.name, held.value.type) if k == position else p for k, p in enumerate(body.params))
    nests = tuple(simplify_nest(n.map_loads(change)) for n in body.nests)
    args = tuple(held.value if k == position else x for k, x in enumerate(op.args))
    return Call(Kernel.canonical(params, body.results, nests, body.locals), args)
