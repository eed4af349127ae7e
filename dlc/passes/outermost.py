"""Values whose size has no limit, stored with that dimension outermost: only so all strides are numbers.

    t[i,b,j] = x[b,i,j]; y[b,j] += t[i,b,j]    →    t'[b,i,j] = x[b,i,j]; y[b,j] += t'[b,i,j]        b: any batch

Only subscripts change: a value's dimensions are permuted in the kernel that writes it and in all kernels that read it.
What something else than a kernel reads stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlc.base.extents import symbols
from dlc.base.types import Type
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Call, Item
from dlc.kernel.permute import Permutation, permute


def outermost(graph: Graph) -> Graph:
    """The same kernels on values of which the dimension without a limit, if there is just one, comes first."""
    if all(_order(t) is None for op in graph.ops for t in op.types):
        return graph
    return _Walk(graph).graph()


@dataclass
class _Walk:
    """One walk over a graph.

    Attributes:
        new: Digest of an op → what it became.
        orders: Digest of a value → how its dimensions are stored.
    """

    source: Graph
    new: dict[str, Op] = field(default_factory=dict[str, Op])
    orders: dict[str, Permutation] = field(default_factory=dict[str, Permutation])

    def graph(self) -> Graph:
        fixed = {o.digest for o in self.source.outputs}
        fixed |= {x.digest for op in self.source.ops if not isinstance(op, Call | Item) for x in op.operands}
        origins = dict(self.source.origins)
        for op in self.source.ops:
            self.new[op.digest] = self._call(op, fixed) if isinstance(op, Call) else self._moved(op)
            if names := self.source.origin(op):
                origins[self.new[op.digest].digest] = names
        outputs = tuple(self.new[o.digest] for o in self.source.outputs)
        return with_live_origins(replace(self.source, outputs=outputs, origins=origins))

    def _moved(self, op: Op) -> Op:
        return op.with_operands([self.new[x.digest] for x in op.operands])

    def _call(self, op: Call, fixed: set[str]) -> Op:
        read = {p.name: o for p, x in zip(op.body.params, op.args, strict=True) if (o := self.orders.get(x.digest))}
        own = {p.name: o for p in op.body.locals if (o := _order(p.type))}
        written: dict[str, Permutation] = {}
        for k, r in enumerate(op.body.results):
            value = op if len(op.types) == 1 else Item(op, k)
            if value.digest not in fixed and (order := _order(r.type)):
                written[r.name] = self.orders[value.digest] = order
        changed: Mapping[str, Permutation] = {**read, **own, **written}
        if not changed:
            return self._moved(op)
        return Call(permute(op.body, changed), tuple(self.new[x.digest] for x in op.args))


def _order(of: Type) -> Permutation | None:
    """The dimension without a limit, then the others; None where it is outermost, or there are none or several."""
    dims = () if of.dense else of.shape
    free = [k for k, d in enumerate(dims) if any(not s.limited for s in symbols(d))]
    first = next((k for k, d in enumerate(dims) if d != 1), 0)
    if len(free) != 1 or free[0] == first:
        return None
    return (free[0], *(k for k in range(len(dims)) if k != free[0]))
