"""A graph in double precision: what numerical checks of derivatives are made in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from dlc.base.types import DTYPES, DType, Type, f64
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Input
from dlc.graph.tensor import Tensor
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Param

_NARROW = frozenset(name for name, dtype in DTYPES.items() if dtype.is_float and dtype is not f64)


def in_double(graph: Graph) -> Graph:
    """The same computation with f64 in place of every other floating point type, data and conversions included.

    Values that went through a narrower type are rounded no more; integers and booleans stay what they are.
    """
    new: dict[str, Op] = {}
    for op in graph.ops:
        new[op.digest] = _widened(op, new)
    inputs = tuple(cast("Input", new.get(i.digest) or _widened(i, new)) for i in graph.inputs)
    outputs = tuple(new[o.digest] for o in graph.outputs)
    origins = {new[digest].digest: names for digest, names in graph.origins.items() if digest in new}
    return with_live_origins(replace(graph, inputs=inputs, outputs=outputs, origins=origins))


def _widened(op: Op, new: dict[str, Op]) -> Op:
    operands: dict[str, Any] = {}
    for name, value in op.operand_fields():
        match value:
            case None:
                operands[name] = None
            case tuple():
                operands[name] = tuple(new[x.digest] for x in value)
            case _:
                operands[name] = new[value.digest]
    return type(op)(**operands, **{name: _attribute(value) for name, value in op.attrs.items()})


def _attribute(value: Any) -> Any:
    match value:
        case DType():
            return f64 if value.is_float else value
        case Type():
            return _type(value)
        case Tensor() if value.type.dtype.is_float and value.type.dtype is not f64:
            return Tensor.of(np.asarray(value.array(), np.float64))
        case Kernel():
            return _kernel(value)
        case Graph():
            return in_double(value)
        case tuple():
            return tuple(_attribute(v) for v in cast("tuple[Any, ...]", value))
        case _:
            return value


def _type(of: Type) -> Type:
    return Type(f64, of.shape) if of.dtype.is_float else of


def _kernel(kernel: Kernel) -> Kernel:
    def tensors(params: tuple[Param, ...]) -> tuple[Param, ...]:
        return tuple(Param(p.name, _type(p.type)) for p in params)

    nests = tuple(n.map(_expr) for n in kernel.nests)
    return Kernel(tensors(kernel.params), tensors(kernel.results), tensors(kernel.locals), nests)


def _expr(e: Expr) -> Expr:
    match e:
        case Apply(fn, args):
            return apply("f64" if fn in _NARROW else fn, *map(_expr, args))
        case Load(param, index):
            return Load(param, tuple(map(_expr, index)))
        case Const() | Axis():
            return e
        case _:
            raise AssertionError(e)
