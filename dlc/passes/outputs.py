"""Every output its own computed value, so that each is written straight into a buffer of the caller.

    return x, f(x), f(x)   →   y = f(x);  return copy(x), y, copy(y)

Graphs may return inputs, constants and one value several times, and passes may find that two outputs are one value.
When an order is chosen, each needs a step that writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dlc.base.extents import symbols
from dlc.base.polynomials import Symbol
from dlc.base.types import Type
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Call, Item, Splat
from dlc.kernel.define import comp, grid, kernel_of, size_param
from dlc.kernel.expr import Axis, Const, lift
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.simplify import simplify_nest


def copy_kernel(type: Type) -> Kernel:
    """r[i] = p[i]; of a dense value with open dimensions, as much as the call has, by its sizes."""
    p = Param("x", type)
    if type.dense:
        i = Axis("i0", type.capacity)
        nest = Nest("out", (i,), (i,), p[(i,)], None, i < lift(type.size))
        return Kernel.canonical((p, *map(size_param, symbols(*type.shape))), (Param("out", type),), (nest,))
    i = grid(type.shape)
    return kernel_of((p,), [comp(i, p[i])], type.dtype)


def separate_outputs(graph: Graph) -> Graph:
    """Every output its own computed value: copies of inputs, constants and values returned twice.

    A graph with instructions of a target stays as it is: that target knows how it gives back what it did not compute.
    """
    if any(op.runs and not isinstance(op, Call) and not op.body_names for op in graph.ops):
        return graph
    seen: set[str] = set()
    outputs: list[Op] = []
    origins = dict(graph.origins)
    sizes = {x.type.symbol: x for x in (*graph.inputs, *graph.outputs) if x.type.symbol is not None}
    for op in graph.outputs:
        base = op.of if isinstance(op, Item) else op
        new = op
        while not (isinstance(base, Call) or base.body_names) or new.digest in seen:
            new = _copy_of(new, sizes)
            base = new
        origins.setdefault(new.digest, graph.origin(op))
        seen.add(new.digest)
        outputs.append(new)
    return with_live_origins(replace(graph, outputs=tuple(outputs), origins=origins))


def _copy_of(op: Op, sizes: Mapping[Symbol, Op]) -> Call:
    if op.type.dense:
        return Call(copy_kernel(op.type), (op, *(sizes[s] for s in symbols(*op.shape))))
    if isinstance(op, Splat):
        out = Param("out", op.type)
        nest = Nest("out", grid(op.shape), grid(op.shape), Const(op.value))
        return Call(Kernel.canonical((), (out,), (simplify_nest(nest),)))
    return Call(copy_kernel(op.type), (op,))
