"""Operators that make constants: values in the model, shapes, ranges."""

from __future__ import annotations

import math

import numpy as np

from dlc.base.extents import is_open, shown
from dlc.base.polynomials import LONGEST
from dlc.base.types import Type, f32, f64, i64
from dlc.graph import Constant, Op, Splat
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Cast, Equal
from dlc.ops.pointwise import scalar
from dlc.ops.sizes import Count, Size, Sizes
from dlc_frontend_onnx.implied import exactly
from dlc_frontend_onnx.node import FIXED, Array, Node, cast, constant
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.sized import elements, sized
from dlc_frontend_onnx.tensors import check_count, check_rank
from dlc_frontend_onnx.terms import Term, as_op, ceil, clip, largest, where
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("Shape")
def shape(node: Node) -> Op:
    """The shape of x, which is known."""
    extents = node.x().shape
    rank = len(extents)
    start, end = node.int("start", 0), node.int("end", rank)
    kept = extents[slice(start, end)]
    return Sizes(kept) if is_open(kept) else constant(kept, i64)


@onnx("Size")
def size(node: Node) -> Op:
    """The number of elements of x, which is known."""
    size = node.x().type.size
    return Size(size) if is_open((size,)) else constant(size, i64)


@onnx("Constant")
def constant_(node: Node) -> Op:
    """A value in the model."""
    if (found := node.tensor("value")) is not None:
        return Constant(found)
    if node.has("value_float"):
        return constant(node.float("value_float"), f32)
    if node.has("value_floats"):
        return constant(node.floats("value_floats"), f32)
    if node.has("value_int"):
        return constant(node.int("value_int"), i64)
    if node.has("value_ints"):
        return constant(node.ints("value_ints"), i64)
    raise Unsupported("a constant that is text or sparse", "supported: tensors of numbers and truth values")


@onnx("ConstantOfShape")
def constant_of_shape(node: Node) -> Op:
    """One value in a constant shape: never stored, however large."""
    to = node.numbers(0, "the shape", lambda outs: exactly(*outs[0]))
    if any(d < 0 for d in to):
        raise ShapeError(f"the shape {list(to)} has a negative dimension")
    check_rank(len(to))
    found = node.tensor("value")
    if found is None:
        return Splat(0.0, Type(f32, to))
    if found.type.size != 1:
        raise ShapeError(f"the value has {found.type.size} elements, not 1")
    return Splat(found.array().reshape(-1)[0].item(), Type(found.type.dtype, to))


@onnx("Range")
def range_(node: Node) -> Op:
    """start, start + step, … before limit; bounds are constant, follow from sizes, or are known when it runs."""
    if (counted := _counted(node)) is not None:
        return counted
    if any(node.maybe_constant(k) is None for k in range(3)):
        return _found(node)
    start, limit, step = (node.constant(k, "the bounds").reshape(-1)[0].item() for k in range(3))
    if not all(map(math.isfinite, (start, limit, step))) or step == 0:
        raise ShapeError(f"a range from {start} to {limit} in steps of {step}")
    count = max(math.ceil((limit - start) / step), 0)
    check_count(count, "the range")
    dtype = node.x().dtype
    steps: Array = np.arange(count, dtype=dtype.numpy)
    return constant(start + steps * step, dtype)


def _found(node: Node) -> Op:
    """A range with a bound that is known when the program runs; narrow floats are computed in f32 (version 27)."""
    given = [elements(node, k) for k in range(3)]
    if any(len(found) != 1 for found in given):
        raise ShapeError(f"bounds of types {', '.join(str(node.x(k).type) for k in range(3))}, which are no numbers")
    start, limit, step = (found[0] if isinstance(found[0], Term) else Term(_wide(node, found[0])) for found in given)
    dtype = node.x().dtype
    if dtype.is_float:
        count = ceil((limit - start) / step)
    else:
        up, down = largest(step, 1), largest(-step, 1)
        count = where(step < 0, (start - limit + (down - 1)) / down, (limit - start + (up - 1)) / up)
    # Steps of 0 have no number of elements, and a float that is none has no integer.
    count = where(step.same(0), -1, clip(count, 0, LONGEST))
    size = sized(node, 0, 1, count, None)
    exact = dtype if dtype.is_integer or dtype.bits > 16 else f32
    first, by, numbers = (Term(as_op(v, exact)) for v in (start, step, size.numbers()))
    return size.checked(cast((first + numbers * by).op, dtype))


def _wide(node: Node, value: float) -> Op:
    return scalar(value, f64 if node.x().dtype.is_float else i64)


def _counted(node: Node) -> Op | None:
    """A range with a bound that is a symbolic dimension."""
    found = [node.values.extents(node.x(k)) for k in range(3)]
    if not any(f is not None and is_open(f) for f in found):
        return None
    if any(f is None or len(f) != 1 for f in found) or not node.x().dtype.is_integer:
        return None
    start, limit, step = (f[0] for f in found if f is not None)
    if is_open((step,)) or step == 0:
        raise Unsupported(f"steps of {shown(step)}", FIXED)
    count = (limit - start + step - 1) // step if step > 0 else (start - limit - step - 1) // -step
    if count < 0:
        raise ShapeError(f"a range from {shown(start)} to {shown(limit)} in steps of {step}")
    return Count(count, start=start, step=step, to=node.x().dtype)


@onnx("EyeLike")
def eye_like(node: Node) -> Op:
    """Ones on a diagonal, in the shape of x."""
    x = node.x()
    if len(x.shape) != 2:
        raise ShapeError(f"{x.type} is not a matrix")
    check_count(x.type.capacity, "the matrix")
    dtype = node.dtype("dtype") if node.has("dtype") else x.dtype
    if not x.type.is_open:
        return constant(np.eye(*x.shape, k=node.int("k")), dtype)
    rows, columns = x.shape
    return Cast(Equal(Count(columns), reshaped(Count(rows, start=node.int("k")), (rows, 1))), to=dtype)
