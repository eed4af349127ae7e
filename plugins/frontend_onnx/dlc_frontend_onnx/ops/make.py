"""Operators that make constants: values in the model, shapes, ranges."""

from __future__ import annotations

import math

import numpy as np

from dlc.base.types import Type, f32, i64
from dlc.graph import Constant, Op, Splat
from dlc.kernel.define import ShapeError
from dlc_frontend_onnx.implied import exactly
from dlc_frontend_onnx.node import Array, Node, constant
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count, check_rank
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("Shape")
def shape(node: Node) -> Op:
    """The shape of x, which is known."""
    extents = node.x().shape
    rank = len(extents)
    start, end = node.int("start", 0), node.int("end", rank)
    return constant(extents[slice(start, end)], i64)


@onnx("Size")
def size(node: Node) -> Op:
    """The number of elements of x, which is known."""
    return constant(node.x().type.size, i64)


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
    """start, start + step, … before limit; constant bounds."""
    start, limit, step = (node.constant(k, "the bounds").reshape(-1)[0].item() for k in range(3))
    if not all(map(math.isfinite, (start, limit, step))) or step == 0:
        raise ShapeError(f"a range from {start} to {limit} in steps of {step}")
    count = max(math.ceil((limit - start) / step), 0)
    check_count(count, "the range")
    dtype = node.x().dtype
    steps: Array = np.arange(count, dtype=dtype.numpy)
    return constant(start + steps * step, dtype)


@onnx("EyeLike")
def eye_like(node: Node) -> Op:
    """Ones on a diagonal, in the shape of x."""
    x = node.x()
    if len(x.shape) != 2:
        raise ShapeError(f"{x.type} is not a matrix")
    check_count(x.type.size, "the matrix")
    dtype = node.dtype("dtype") if node.has("dtype") else x.dtype
    return constant(np.eye(*x.shape, k=node.int("k")), dtype)
