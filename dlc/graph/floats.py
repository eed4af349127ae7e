"""A graph with other floating point types: in double precision, or without narrow types.

    y = f16(layer_norm(f32(x)))   x, y: f16      →      y = layer_norm(x)   x, y: f32

Numerical checks of derivatives are made in double precision. A target that stores all floats alike has no use for the
types of a model, nor for the conversions between them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import numpy as np

from dlc.base.types import DTYPES, DType, Type, f64
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.pointwise import Cast
from dlc.graph.structure import Input
from dlc.graph.tensor import Tensor
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Param

_OTHERS: Final = tuple(dtype for dtype in DTYPES.values() if dtype.is_float and dtype is not f64)


def in_double(graph: Graph) -> Graph:
    """The same computation with f64 in place of every other floating point type, data and conversions included.

    Values that went through a narrower type are rounded no more; integers and booleans stay what they are.
    """
    return with_floats(graph, _OTHERS, f64)


def with_floats(graph: Graph, types: Collection[DType], to: DType) -> Graph:
    """The same computation with one floating point type in place of others, data and conversions included.

    A conversion between two of them is gone.
    """
    return _Change(frozenset(types), to).graph(graph)


@dataclass
class _Change:
    """What becomes of one graph, and of the graphs that its ops hold."""

    types: frozenset[DType]
    to: DType
    new: dict[str, Op] = field(default_factory=dict[str, Op])

    def graph(self, graph: Graph) -> Graph:
        new = self.new
        for op in graph.ops:
            new[op.digest] = self.op(op)
        inputs = tuple(cast("Input", new.get(i.digest) or self.op(i)) for i in graph.inputs)
        outputs = tuple(new[o.digest] for o in graph.outputs)
        origins: dict[str, tuple[str, ...]] = {}
        own = [op for op in graph.ops if not any(new[op.digest] is new[x.digest] for x in op.operands)]
        for op in own:  # what a conversion that is gone shows has an origin of its own
            if names := graph.origin(op):
                origins.setdefault(new[op.digest].digest, names)
        return with_live_origins(replace(graph, inputs=inputs, outputs=outputs, origins=origins))

    def op(self, op: Op) -> Op:
        operands = [self.new[x.digest] for x in op.operands]
        if isinstance(op, Cast) and operands[0].dtype == self.dtype(op.dtype) == self.to:
            return operands[0]
        return op.remade(operands, {name: self.attribute(value) for name, value in op.attrs.items()})

    def attribute(self, value: Any) -> Any:
        match value:
            case DType():
                return self.dtype(value)
            case Type():
                return self.type(value)
            case Tensor() if value.type.dtype in self.types:
                return Tensor.of(np.asarray(value.array()).astype(self.to.numpy))
            case Kernel():
                return self.kernel(value)
            case Graph():
                return _Change(self.types, self.to).graph(value)
            case tuple():
                return tuple(self.attribute(v) for v in cast("tuple[Any, ...]", value))
            case _:
                return value

    def dtype(self, of: DType) -> DType:
        return self.to if of in self.types else of

    def type(self, of: Type) -> Type:
        return Type(self.to, of.shape) if of.dtype in self.types else of

    def kernel(self, kernel: Kernel) -> Kernel:
        def tensors(params: tuple[Param, ...]) -> tuple[Param, ...]:
            return tuple(Param(p.name, self.type(p.type)) for p in params)

        nests = tuple(n.map(lambda e: self.expr(e, kernel)) for n in kernel.nests)
        return Kernel(tensors(kernel.params), tensors(kernel.results), tensors(kernel.locals), nests)

    def expr(self, e: Expr, kernel: Kernel) -> Expr:
        match e:
            case Apply(fn, (x,)) if fn in DTYPES and self.dtype(DTYPES[fn]) == self.to:
                own = kernel.dtype_of(x)
                inner = self.expr(x, kernel)
                return inner if own is not None and self.dtype(own) == self.to else apply(self.to.name, inner)
            case Apply(fn, args):
                return apply(fn, *(self.expr(x, kernel) for x in args))
            case Load(param, index):
                return Load(param, tuple(self.expr(x, kernel) for x in index))
            case Const() | Axis():
                return e
            case _:
                raise AssertionError(e)
