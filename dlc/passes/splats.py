"""Splat algebra: what is computed from values that are equal everywhere is known without any memory.

add(splat 1, splat 2) → splat 3        transpose(splat v) → splat v        concat(splat v, splat v) → splat v
"""

from __future__ import annotations

import math

from dlc.base.types import Type
from dlc.graph.op import Op
from dlc.graph.structure import Constant, Splat
from dlc.kernel.expr import Apply, Const, Expr, Load
from dlc.kernel.schedules.start import needs_fill
from dlc.ops.pointwise import Pointwise, literal
from dlc.passes.exact import evaluate_exactly


def fold_splats(op: Op) -> Splat | None:
    """The splat that an op with splats as operands is, or None where its elements differ or are not known exactly."""
    if len(op.types) != 1 or op.runs or not any(isinstance(x, Splat) for x in op.operands):
        return None
    if op.requires() or (op.symbols and not all(isinstance(x, (Constant, Splat)) for x in op.operands)):
        return None  # a size may be found by what the other operands depend on
    if isinstance(op, Pointwise):
        return _pointwise(op)
    # A composition is not opened for this: its parts are asked, where a pass opens it.
    return _moved(op) if type(op).expand is Op.expand else None


def _moved(op: Op) -> Splat | None:
    """The value of an op whose kernel only places elements, all of them from splats of that value or literals."""
    kernel = op.kernel
    splats = {p.name: x.value for p, x in zip(kernel.params, op.operands, strict=False) if isinstance(x, Splat)}

    def values(body: Expr) -> list[bool | int | float | None]:
        match body:
            case Const(v):
                return [literal(v, op.dtype)]
            case Load(name, _):
                return [splats.get(name)]
            case Apply("select", (_, a, b)):
                return values(a) + values(b)
            case _:
                return [None]

    if kernel.locals or kernel.reduces:
        return None
    (result,) = kernel.results
    found = [v for nest in kernel.nests for v in values(nest.body)]
    if needs_fill(kernel, result.name):
        found.append(literal(kernel.start_of(result.name), op.dtype))
    # As text, because 0.0 and -0.0 are equal, and NaN is not.
    first = found[0]
    return Splat(first, op.type) if first is not None and len(set(map(repr, found))) == 1 else None


def _pointwise(op: Pointwise) -> Splat | None:
    values = [x.value for x in op.operands if isinstance(x, Splat)]
    if len(values) < len(op.operands):
        return None
    if math.prod(op.shape) == 0:
        return Splat(literal(0, op.dtype), op.type)
    # On single elements: at its own shape, the op would fill memory with what is one number.
    single = op.with_operands([Splat(v, Type(x.dtype, ())) for v, x in zip(values, op.operands, strict=True)])
    got = evaluate_exactly(single, [x.evaluate() for x in single.operands])
    return None if got is None else Splat(got.item(), op.type)
