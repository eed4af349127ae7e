"""Ops that compute every element from the elements at its place: operands broadcast as numpy's do.

The conversion of element types is one of them, and stands here because the graph itself converts (`dlc.graph.precise`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dlc.base.types import DType, Type
from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, comp, element_type, grid
from dlc.kernel.expr import Apply, Const, Expr, Load, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import LITERAL_DTYPES, Param
from dlc.kernel.rounding import rounded_body
from dlc.kernel.scalar import SCALARS, note_library


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape of operands by numpy's rule: aligned at the end, dimensions equal or 1.

    Raises:
        ShapeError: they do not broadcast.
    """
    if shapes and all(s == shapes[0] for s in shapes):
        return tuple(shapes[0])
    rank = max((len(s) for s in shapes), default=0)
    out: list[int] = []
    for d in range(rank):
        sizes = {s[d - rank + len(s)] for s in shapes if d - rank + len(s) >= 0} - {1}
        if len(sizes) > 1:
            raise ShapeError(f"shapes do not broadcast: {' and '.join(str(list(s)) for s in shapes)}")
        out.append(next(iter(sizes), 1))
    return tuple(out)


def at(param: Param, index: Sequence[Expr]) -> Load:
    """The element of a broadcast operand that belongs to the result's element `index`."""
    own = index[len(index) - len(param.shape) :]
    return param[tuple(Const(0) if extent == 1 else i for i, extent in zip(own, param.shape, strict=True))]


class Pointwise(Op, abstract=True):
    """Base of the ops that compute every element from the elements at its place; operands broadcast.

    A subclass names its scalar function as `fn`, or composes several in `scalar`.
    """

    exact: ClassVar[bool] = True
    fn: ClassVar[str]

    def scalar(self, *values: Expr) -> Expr:
        """One element of the result from one element of each operand."""
        return apply(self.fn, *values)

    def derive_types(self) -> tuple[Type, ...]:
        # What `define` would give, without its axes and subscripts: most ops of a model are of this kind.
        operands = self.operands
        names = [f"p{k}" for k in range(len(operands))]
        body = self.scalar(*(Load(n, ()) for n in names))
        dtype = element_type([body], {n: o.dtype for n, o in zip(names, operands, strict=True)})
        return (Type(dtype, broadcast(*(o.shape for o in operands))),)

    def define(self, *params: Any) -> Comp:
        i = grid(broadcast(*(p.shape for p in params)))
        return comp(i, self.scalar(*(at(p, i) for p in params)))

    def evaluate(self, *args: Array) -> Any:
        names = [f"p{k}" for k in range(len(args))]
        params = tuple(Param(n, Type(o.dtype, ())) for n, o in zip(names, self.operands, strict=True))
        kernel = Kernel(params, (), (), ())
        body = rounded_body(self.scalar(*(Load(n, ()) for n in names)), kernel.dtypes, self.dtype)
        got = _value(body, kernel, dict(zip(names, args, strict=True)), None)
        return np.broadcast_to(got, self.shape)


class Unary(Pointwise, abstract=True):
    """Base of the element-wise ops of one operand."""

    x: Op


class Binary(Pointwise, abstract=True):
    """Base of the element-wise ops of two operands of one type."""

    a: Op
    b: Op


class Cast(Unary):
    """y = x converted to the element type `to`: floats to integers toward zero, numbers to bool by `x != 0`."""

    to: DType

    def scalar(self, *values: Expr) -> Expr:
        return apply(self.to.name, *values)


def _value(e: Expr, kernel: Kernel, env: Mapping[str, Array], like: DType | None) -> Array:
    """An expression on whole arrays: a load stands for all elements of its operand at once."""
    match e:
        case Const(v):
            return np.asarray(v, (like or LITERAL_DTYPES[type(v)]).numpy)
        case Load(param, _):
            return env[param]
        case Apply(fn, args):
            rule = SCALARS[fn].rule
            if rule in ("cast", "bits"):
                return SCALARS[fn].value(_value(args[0], kernel, env, None))
            values = args[1:] if rule == "select" else args
            found = next((d for a in values if (d := kernel.dtype_of(a)) is not None), None)
            inner = found or (None if rule == "bool" else like)
            first = (_value(args[0], kernel, env, None),) if rule == "select" else ()
            arrays = (*first, *(_value(a, kernel, env, inner) for a in values))
            note_library(fn, arrays)
            return np.asarray(SCALARS[fn].value(*arrays))
        case _:
            raise AssertionError(e)
