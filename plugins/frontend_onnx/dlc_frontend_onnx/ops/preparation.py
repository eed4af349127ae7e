"""Preparation of features (domain ai.onnx.ml)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlc.base.types import DType, f32, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.index import Gather
from dlc.ops.reduce import ReduceL1, ReduceL2, ReduceMax
from dlc.ops.shape import Concat, Pad, Reshape
from dlc_frontend_onnx.node import Array, Node, cast, constant, number
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.scores import ML
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported


def _figures(node: Node, key: str, x: Op) -> Op | None:
    """One number for each feature, or one for all."""
    found = node.floats(key)
    if not found:
        return None
    if len(found) not in (1, *x.shape[-1:]):
        raise ShapeError(f"{len(found)} numbers {key} for {x.type}")
    return constant(found, x.dtype)


@onnx("Scaler", domain=ML)
def scaler(node: Node) -> Op:
    """y = (x - offset) · scale: f32."""
    x = cast(node.x(), f32)
    offset, scale = _figures(node, "offset", x), _figures(node, "scale", x)
    y = x if offset is None else e.Sub(x, offset)
    return y if scale is None else e.Mul(y, scale)


@onnx("Normalizer", domain=ML)
def normalizer(node: Node) -> Op:
    """Each row divided by its norm: f32."""
    x, kind = cast(node.x(), f32), node.text("norm", "MAX")
    axes = (len(x.shape) - 1,)
    match kind:
        case "MAX":
            size: Op = ReduceMax(e.Abs(x), axes=axes, keep=True)
        case "L1":
            size = ReduceL1(x, axes=axes, keep=True)
        case "L2":
            size = ReduceL2(x, axes=axes, keep=True)
        case _:
            raise Unsupported(f"norm {kind!r}", "MAX, L1 and L2 are defined")
    return e.Div(x, e.Maximum(size, number(1e-30, x)))


@onnx("Binarizer", domain=ML)
def binarizer(node: Node) -> Op:
    """y = 1 where x is above the threshold, else 0."""
    x = node.x()
    limit = node.float("threshold")
    if not x.dtype.is_float:  # whole numbers are above a number if they are above the whole one below it
        limit = min(max(math.floor(limit), x.dtype.limits[0]), x.dtype.limits[1])
    return cast(e.Greater(x, number(limit, x)), x.dtype)


@onnx("Imputer", domain=ML)
def imputer(node: Node) -> Op:
    """x with a value that stands for a missing one replaced."""
    x = node.x()
    floats, whole = node.floats("imputed_value_floats"), node.ints("imputed_value_int64s")
    replaced, replaced_whole = node.float("replaced_value_float"), node.int("replaced_value_int64")
    values: Sequence[float] = (floats if x.dtype.is_float else whole) or ()
    if not x.shape or len(values) not in (1, x.shape[-1]):
        raise ShapeError(f"{len(values)} values for {x.type}")
    if x.dtype.is_float and math.isnan(replaced):
        gone: Op = e.IsNan(x)
    else:
        gone = e.Equal(x, number(replaced if x.dtype.is_float else replaced_whole, x))
    return e.Where(gone, constant(values, x.dtype), x)


@onnx("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node) -> Op:
    """Features side by side, each operand cut or continued with zeros to its number of them: f32."""
    sizes = node.ints("inputdimensions") or ()
    if len(sizes) != len(node.inputs):
        raise Unsupported(f"{len(sizes)} dimensions for {len(node.inputs)} operands", MALFORMED)
    parts: list[Op] = []
    for x, size in zip(node.all(), sizes, strict=True):
        if not 1 <= len(x.shape) <= 2 or size < 0:
            raise ShapeError(f"{size} features of {x.type}")
        rows = cast(x if len(x.shape) == 2 else Reshape(x, to=(*x.shape, 1)), f32)
        more = size - rows.shape[1]
        parts.append(Pad(rows, pads=(0, 0, 0, more)) if more else rows)
    check_count(sum(p.type.size for p in parts), "the features")
    return Concat(tuple(parts), axis=1)


@onnx("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node) -> Op:
    """A 1 at the number of the category that an element is: f32. Elements of no category give zeros."""
    node.ignore("zeros")  # an error there is none at run time
    x, named = node.x(), node.texts("cats_strings")
    categories = node.values.texts.numbers(named) if named else node.ints("cats_int64s") or ()
    check_count(x.type.size * len(categories), "the encoded elements")
    whole = cast(x, i64) if x.dtype.is_integer else x
    return cast(e.Equal(Reshape(whole, to=(*x.shape, 1)), constant(categories, whole.dtype)), f32)


@onnx("LabelEncoder", since=2, domain=ML)
def label_encoder(node: Node) -> Op:
    """The value of the key that an element is, or the default."""
    x, keys, named = node.x(), node.tensor("keys_tensor"), node.values.texts.numbers(node.texts("keys_strings"))
    stated = named or node.ints("keys_int64s") or node.floats("keys_floats") or ()
    found = np.array(stated) if keys is None else keys.array()
    values, dtype, default = _values(node)
    if found.size != len(values) or not found.size:
        raise Unsupported(f"{found.size} keys for {len(values)} values", MALFORMED)
    check_count(x.type.size * found.size, "the comparisons of elements and keys")
    alike = e.Equal(Reshape(x, to=(*x.shape, 1)), constant(found.reshape(-1), x.dtype))
    numbers = e.Where(alike, constant(np.arange(found.size), i64), constant(-1, i64))
    # No key is -1, which counts from the end: there is the default.
    table = constant(np.append(values, values.dtype.type(default)), dtype)
    return Gather(table, ReduceMax(numbers, axes=(len(x.shape),)), axis=0)


@onnx("ZipMap", domain=ML)
def zip_map(node: Node) -> Op:
    """The scores as they are, [B, N] in the order of the labels, instead of a map for each row."""
    x = node.x()
    labels = node.ints("classlabels_int64s") or node.texts("classlabels_strings")
    if len(x.shape) not in (1, 2) or len(labels) != x.shape[-1]:
        raise ShapeError(f"{len(labels)} labels for {x.type}")
    y = x if len(x.shape) == 2 else Reshape(x, to=(1, *x.shape))
    node.values.texts.columns[y.digest] = tuple(map(str, labels))
    return y


def _values(node: Node) -> tuple[Array, DType, float]:
    """Values, their type, and the default."""
    tensor, default = node.tensor("values_tensor"), node.tensor("default_tensor")
    whole, floats = node.int("default_int64", -1), node.float("default_float", -0.0)
    if named := node.texts("values_strings"):
        node.gives_texts = True
        *numbers, other = node.values.texts.numbers((*named, node.text("default_string", "_Unused")))
        return np.array(numbers, np.int64), i64, other
    node.ignore("default_string")
    if tensor is not None:
        return tensor.array().reshape(-1), tensor.type.dtype, 0 if default is None else default.array().reshape(-1)[0]
    if (found := node.ints("values_int64s")) is not None:
        return np.array(found, np.int64), i64, whole
    return np.array(node.floats("values_floats") or (), np.float32), f32, floats
