"""Constants of less than 8 bits per element stay as the model stores them: a run computes what is made of them.

    w = (f32(q) - f32(z))·s                        q: 4 bits per element; z and s: one for B elements
    y[m,n] += x[m,k]·w[k,n]          →             y[m,n] += x[m,k]·((f32(q[k,n]) - f32(z[k//B,n]))·s[k//B,n])

A constant expression is otherwise evaluated when the weights are written, where `w` would take eight times the bytes of
`q`. Schedules compute such a factor once for a panel of columns, or in registers.
"""

from __future__ import annotations

from collections.abc import Collection

from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant
from dlc.graph.walk import toposort
from dlc.kernel.expr import Apply, Load, axes_in, loads
from dlc.kernel.fusion.inline import is_pointwise_map
from dlc.kernel.fusion.merge import refusal
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.permute import Permutation, permute
from dlc.kernel.roles import product, spatial_axes
from dlc.ops.shape import Transpose

GROWTH = 2
"""A constant expression is left to a run if it takes so many times the bytes of what it is computed of."""


class PackedConstants:
    """What is computed of the packed constants of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._any = any(isinstance(op, Constant) and op.type.dtype.per_byte > 1 for op in graph.ops)
        self._known: dict[str, tuple[bool, int]] = {}
        self._opened: set[str] = set()
        self._parts: set[str] = set()
        memo: dict[str, bool] = {}
        for op in reversed(graph.ops) if self._any else ():
            if op.digest in self._parts or (is_constant(op, memo) and self.expands(op)):
                self._parts.update(x.digest for x in op.operands)

    def is_part(self, op: Op) -> bool:
        """Whether a constant op of the graph expands packed constants, or is a part of an expression that does."""
        return self._any and (op.digest in self._parts or (self._source(op)[0] and self._grows(op)))

    def lowered(self, op: Op) -> bool:
        """Whether a constant expression may have to be computed in a run."""
        return self._any and self._grows(op)

    def expands(self, op: Op) -> bool:
        """Whether a constant expression is computed of packed constants, and much larger than they are."""
        return self._any and self._source(op)[0] and self._grows(op)

    def inlined(self, op: Call, readers: list[Nest], name: str) -> bool:
        """Whether a constant expression is to be computed by the nests that read it as `name`."""
        if not self._any or len(op.types) != 1 or len(op.body.nests) != 1:
            return False
        (nest,) = op.body.nests
        if not nest.loads or not is_pointwise_map(nest, op.type.shape) or not self._grows(op):
            return False
        if op.digest in self._opened:
            return True
        value = Param(name, op.type)
        return self.expands(op) and all(_matrix(n) or not refusal(nest, value, n) for n in readers)

    def open(self, op: Call) -> None:
        """Note that an expression is computed by its readers, which then read its operands: scales, zero points."""
        self._opened.update(x.digest for x in op.args)

    @property
    def opened(self) -> Collection[str]:
        """Digests of constant ops that are read by what reads an expression of them."""
        return self._opened

    def _grows(self, op: Op) -> bool:
        return op.type.packed_bytes >= GROWTH * self._source(op)[1]

    def _source(self, op: Op) -> tuple[bool, int]:
        """Whether an expression reads packed constants, and the bytes of all that it reads."""
        if op.digest not in self._known:
            constants = [x for x in toposort((op,)) if isinstance(x, Constant)]
            packed = any(x.type.dtype.per_byte > 1 for x in constants)
            self._known[op.digest] = packed, sum(x.type.packed_bytes for x in constants)
        return self._known[op.digest]


def columns_last(kernel: Kernel, args: tuple[Op, ...], opened: Collection[str]) -> tuple[Kernel, tuple[Op, ...]]:
    """A product with the constants of its expanded factor transposed so that columns, which become lanes, lie together.

    r[i,j] += x[i,k]·f(q[j,k])   →   r[i,j] += x[i,k]·f(q'[k,j])
    """
    orders: dict[str, Permutation] = {}
    given = {p.name: a for p, a in zip(kernel.params, args, strict=True)}
    for nest in kernel.nests:
        match nest.body:
            case Apply("mul", (x, y)) if nest.reduce == "add":
                a, b = (x, y) if isinstance(x, Load) else (y, x)
            case _:
                continue
        columns = set(axes_in(*nest.index)) & set(axes_in(b)) - set(axes_in(a))
        if not isinstance(a, Load) or len(columns) != 1:
            continue
        for load in loads(b):
            found = [d for d, i in enumerate(load.index) if set(axes_in(i)) & columns]
            once = sum(e.param == load.param for n in kernel.nests for x in n.exprs() for e in loads(x)) == 1
            if once and given[load.param].digest in opened and len(found) == 1 and found[0] != len(load.index) - 1:
                orders[load.param] = (*(d for d in range(len(load.index)) if d != found[0]), found[0])
    if not orders:
        return kernel, args
    moved = tuple(
        Transpose(a, orders[p.name]) if p.name in orders else a for p, a in zip(kernel.params, args, strict=True)
    )
    return permute(kernel, orders), moved


def _matrix(nest: Nest) -> bool:
    """Whether a nest is a product of matrices, which reads every element of a panel in one place."""
    return product(nest) is not None and not spatial_axes(nest)
