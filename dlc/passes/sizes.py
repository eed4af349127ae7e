"""Values whose dimensions are known when the program runs, between callers and kernels.

Callers have the elements of such a value one behind the other; kernels see it laid out for the largest sizes. So every
such input and output is copied once, and the sizes of the symbols are inputs of the program.

    graph(x: f32[batch(1,8),seq(1,4)])  →  graph(x: f32[*,batch(1,8),seq(1,4)], batch: i64[=…], seq: i64[=…])
                                             t[i,j] = x[i*seq + j] if i < batch and j < seq
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from dlc.base.allowed import everywhere
from dlc.base.extents import Dim, symbols
from dlc.base.polynomials import Symbol
from dlc.base.types import Type, i64
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Splat
from dlc.kernel.define import size_param
from dlc.kernel.expr import Axis, Const, Expr, both, lift
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param

MOST_SIZES: Final = 256
"""Multiples of a unit that are listed one by one as what a size may be; of more, the smallest and largest are told."""


def size_input(symbol: Symbol) -> Input:
    """The input that holds the size of a symbol."""
    low, high, unit = symbol.low, symbol.high, symbol.unit
    if unit == 1 or high - low >= MOST_SIZES:
        intervals: tuple[tuple[int, int], ...] = ((low * unit, high * unit),)
    else:
        intervals = tuple((k * unit, k * unit) for k in range(low, high + 1))
    return Input(symbol.name, size_param(symbol).type, allowed=everywhere(intervals, "size").text)


def from_caller(value: Input) -> Call:
    """An input of symbolic dimensions, laid out for kernels."""
    return Call(_copy(value.type, True), (_given(value), *map(size_input, symbols(*value.shape))))


def to_caller(value: Op) -> Call:
    """A value of symbolic dimensions as callers have it."""
    sizes = map(size_input, symbols(*value.shape))
    if isinstance(value, Splat):
        return Call(_filled(value.type, value.value), tuple(sizes))
    return Call(_copy(value.type, False), (value, *sizes))


@lru_cache(maxsize=1024)
def _copy(type: Type, spread: bool) -> Kernel:
    """From or to the form that callers have."""
    dense = replace(type, dense=True)
    x, out = Param("x", dense if spread else type), Param("out", type if spread else dense)
    axes = tuple(Axis(f"i{k}", d) for k, d in enumerate(type.room))
    flat: Expr = Const(0)
    guard: Expr | None = None
    for axis, d in zip(axes, type.shape, strict=True):
        flat = axis if flat == Const(0) else flat * lift(d) + axis
        if isinstance(d, Dim):
            guard = both(guard, axis < lift(d))
    index, source = (axes, (flat,)) if spread else ((flat,), axes)
    nest = Nest("out", index, axes, x[source], None, guard)
    return Kernel.canonical((x, *map(size_param, symbols(*type.shape))), (out,), (nest,))


def _filled(type: Type, value: bool | int | float) -> Kernel:
    """One value in every element that a caller has."""
    out = Param("out", replace(type, dense=True))
    axis = Axis("i0", type.capacity)
    nest = Nest("out", (axis,), (axis,), Const(value), None, axis < lift(type.size))
    return Kernel.canonical(tuple(map(size_param, symbols(*type.shape))), (out,), (nest,))


def with_sizes(graph: Graph, computed: Mapping[Symbol, Op], required: Mapping[Symbol, Op]) -> Graph:
    """A graph of kernels with its symbolic outputs as callers have them, and its sizes behind its inputs.

    Args:
        graph: Kernels that read the sizes of all symbols from inputs.
        computed: The values that hold the sizes of symbols that no caller knows. Those that outputs depend on are
            outputs too, behind all others.
        required: Numbers that have to be in the bounds of a symbol: outputs too, the last ones.
    """
    packed = [to_caller(o) if o.type.is_open and not o.type.dense else o for o in graph.outputs]
    origins = {**graph.origins, **{p.digest: graph.origin(o) for p, o in zip(packed, graph.outputs, strict=True)}}
    changed = replace(graph, outputs=tuple(packed), origins=origins)
    told = {s: Call(_told(s), (op,)) for s, op in computed.items()}
    asked = {s: Call(_told(s), (op,)) for s, op in required.items()}
    if told or asked:
        extra = {s: told[s] for s in symbols(*(d for o in graph.outputs for d in o.type.shape)) if s in told} | asked
        outputs, names = (*changed.outputs, *extra.values()), (*graph.names, *(s.name for s in extra))
        known: dict[Op, Op] = {size_input(s): op for s, op in told.items()}
        changed = _settled(replace(changed, outputs=outputs, names=names), known)
    given = {op.name: op for op in changed.ops if isinstance(op, Input)}
    # Those of inputs that nothing reads say how large a caller's arrays are, too.
    given |= {op.name: op for op in map(size_input, symbols(*(d for i in graph.inputs for d in i.type.shape)))}
    sizes = sorted((i for i in given.values() if i.type.symbol is not None), key=lambda i: i.name)
    if not sizes and not told and not asked and all(a is b for a, b in zip(packed, graph.outputs, strict=True)):
        return graph
    own = tuple(map(_given, graph.inputs))
    return with_live_origins(replace(changed, inputs=(*own, *sizes)))


def _settled(graph: Graph, known: Mapping[Op, Op]) -> Graph:
    """The graph with sizes that are computed in the place of inputs; one may be computed from others."""
    for _ in known:
        changed = graph.substitute(known)
        if changed.digest == graph.digest:
            break
        graph = changed
    return graph


def _told(symbol: Symbol) -> Kernel:
    """A number as the size of a symbol."""
    x, out = Param("x", Type(i64, ())), Param("out", size_param(symbol).type)
    return Kernel.canonical((x,), (out,), (Nest("out", (), (), x[()]),))


def _given(value: Input) -> Input:
    """An input as callers give it."""
    if not value.type.is_open or value.of.dense:
        return value
    return Input(value.name, replace(value.of, dense=True), value.role, value.initial, value.allowed)
