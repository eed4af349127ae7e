"""Evaluation at compile time that gives what the program would compute, or nothing.

A division by zero must not become a crash of the compiler or a made-up number, and signed overflow, an exponent below
zero or a float outside the integer's range differ between machines: such ops stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dlc.base.types import DType, in_compute_type
from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.graph.walk import as_result, toposort
from dlc.kernel.expr import Apply, Expr
from dlc.ops.elementwise import Abs, Add, Cast, Div, Mod, Mul, Neg, Pow, Sub
from dlc.ops.linear import Gemm, MatMul
from dlc.ops.reduce import CumProd, CumSum, IndexOf, ReduceProd, ReduceSum, ReduceSumSquare

# Functions that choose among integers or compare them: they cannot leave the range.
_CHOOSING = frozenset({"select", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "sign"})

_WIDE: Mapping[type[Op], Callable[..., Array]] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    Neg: np.negative,
    Abs: np.abs,
    Pow: np.power,
}
_SUMS = (ReduceSum, ReduceProd, ReduceSumSquare, CumSum, CumProd, MatMul, Gemm)


def evaluate_exactly(op: Op, args: Sequence[Array]) -> Array | None:
    """The result of an op with one result on arrays of its operands' types; None where run time might differ."""
    if op.expansion is None:
        return _primitive(op, args)
    values: dict[str, Array] = {x.digest: np.asarray(a) for x, a in zip(op.operands, args, strict=True)}
    for part in toposort((op.expansion,)):
        if part.digest in values:
            continue
        got = (
            _primitive(part, [values[x.digest] for x in part.operands])
            if part.expansion is None
            else (evaluate_exactly(part, [values[x.digest] for x in part.operands]))
        )
        if got is None:
            return None
        values[part.digest] = got
    return values[op.expansion.digest]


def _primitive(op: Op, args: Sequence[Array]) -> Array | None:
    if not _is_safe(op, args):
        return None
    with np.errstate(all="ignore"):
        return as_result(op.evaluate(*args), op.type)


def _is_safe(op: Op, given: Sequence[Array]) -> bool:
    args = [in_compute_type(np.asarray(a)) for a in given]
    if isinstance(op, IndexOf):
        return True  # what it gives are subscripts
    if isinstance(op, Cast):
        return _fits(args[0], op.x.dtype, op.to)
    if not op.operands or not any(x.dtype.is_integer for x in (op, *op.operands)):
        return True
    if isinstance(op, (Div, Mod)):
        lowest, _ = op.dtype.limits
        overflows = op.dtype.kind == "int" and bool(np.any(args[0] == lowest)) and bool(np.any(args[1] == -1))
        return bool(np.all(args[1] != 0)) and not overflows
    if isinstance(op, Pow) and bool(np.any(args[1] < 0)):
        return False
    with np.errstate(all="ignore"):
        if type(op) in _WIDE:
            return _in_range(_WIDE[type(op)](*(a.astype(np.float64) for a in args)), op.dtype)
        if isinstance(op, _SUMS):
            # Sums of absolute values bound every partial sum, in whatever order a machine adds.
            return _in_range(op.evaluate(*(np.abs(a.astype(np.float64)) for a in args)), op.dtype)
    return all(_only_chooses(nest.body) and nest.reduce in (None, "min", "max") for nest in op.kernel.nests)


def _in_range(values: Any, dtype: DType) -> bool:
    """Whether float64 figures lie inside an integer type, with room for their own rounding where they have any."""
    low, high = dtype.limits
    slack = 1.0 if dtype.itemsize < 8 else 1 - 2.0**-40
    return bool(np.all((values >= low * slack) & (values <= high * slack)))


def _fits(values: Array, have: DType, want: DType) -> bool:
    """Whether every value has a counterpart in the wanted type."""
    if want.is_float or want.kind == "bool" or have.kind == "bool" or not values.size:
        return True
    low, high = want.limits
    if have.is_integer:
        return int(values.min()) >= low and int(values.max()) <= high
    whole = np.trunc(values.astype(np.float64))
    # The largest i64 is no float64: what rounds to 2^63 is outside.
    return bool(np.all((whole >= float(low)) & (whole < float(high + 1))))


def _only_chooses(e: Expr) -> bool:
    """Whether an expression's value is picked from loads and literals; subscripts may compute."""
    return not isinstance(e, Apply) or (e.fn in _CHOOSING and all(map(_only_chooses, e.args)))
