"""Contractions, pools, normalisations and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dlc.base.extents import is_open, larger
from dlc.base.types import f32, shortest
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import linear, normalize, pool, reduce
from dlc.ops.shape import Reshape, Transpose
from dlc.ops.window import window_size
from dlc_frontend_onnx.node import Node, cast, cut_axis, number
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported

STEPS: Final = "give multiples of the stride as sizes: --dim NAME=LOW..HIGH/STEP"


def window(node: Node, kernel: Sequence[int], x: Op) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Stride, pads and dilation of a window, auto_pad resolved."""
    rank = len(x.shape) - 2
    stride = node.ints("strides") or (1,) * rank
    dilation = node.ints("dilations") or (1,) * rank
    pads = node.ints("pads") or (0,) * (2 * rank)
    mode = node.text("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        return stride, pads, dilation
    if mode == "VALID":
        return stride, (0,) * (2 * rank), dilation
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"auto_pad {mode}")
    begins: list[int] = []
    ends: list[int] = []
    for extent, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True):
        total = larger((-(-extent // s) - 1) * s + (k - 1) * d + 1 - extent, 0)
        before = total // 2 if mode == "SAME_UPPER" else total - total // 2
        begins.append(before)
        ends.append(total - before)
    if is_open(begins) or is_open(ends):
        reason = f"auto_pad {mode} of {x.type.text} with strides {list(stride)}: how much depends on the size"
        raise Unsupported(reason, STEPS)
    return stride, (*begins, *ends), dilation


@onnx("Conv")
def conv(node: Node) -> Op:
    """Convolution of any spatial rank."""
    x, w = node.x(0), node.x(1)
    node.ints("kernel_shape")
    stride, pads, dilation = window(node, w.shape[2:], x)
    group = node.int("group", 1)
    return linear.Conv(x, w, node.optional(2), stride=stride, pads=pads, dilation=dilation, group=group)


@onnx("ConvTranspose")
def conv_transpose(node: Node) -> Op:
    """The adjoint of a convolution."""
    x, w = node.x(0), node.x(1)
    rank = len(x.shape) - 2
    node.ints("kernel_shape")
    stride = node.ints("strides") or (1,) * rank
    dilation = node.ints("dilations") or (1,) * rank
    pads = node.ints("pads") or (0,) * (2 * rank)
    extra = list(node.ints("output_padding") or (0,) * rank)
    shape, mode = node.ints("output_shape"), node.text("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * (2 * rank)
    if shape is not None or mode.startswith("SAME"):
        wanted = (shape or tuple(i * s for i, s in zip(x.shape[2:], stride, strict=True)))[-rank:]
        begins: list[int] = []
        ends: list[int] = []
        for d in range(rank):
            full = (x.shape[d + 2] - 1) * stride[d] + extra[d] + (w.shape[d + 2] - 1) * dilation[d] + 1
            total = max(full - wanted[d], 0)
            extra[d] += max(wanted[d] - full, 0)  # a larger shape than the data reaches is zero at the end
            begins.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
            ends.append(total - begins[-1])
        pads = (*begins, *ends)
    figures = {"stride": stride, "pads": pads, "dilation": dilation, "output_pad": tuple(extra)}
    return linear.ConvTranspose(x, w, node.optional(2), group=node.int("group", 1), **figures)  # type: ignore[arg-type]


@onnx("Gemm")
def gemm(node: Node) -> Op:
    """y = alpha · A · B + beta · c."""
    node.ignore("broadcast")  # c broadcasts wherever it may
    factors = node.float("alpha", 1.0), node.float("beta", 1.0)
    if not node.x(0).dtype.is_float and any(f != int(f) for f in factors):
        raise Unsupported("integers times a factor that is not whole", "cast the operands to float32 first")
    if any(len(x.shape) > 2 for x in (node.x(0), node.x(1))):
        node.quirk("an operand has more than two dimensions", "as a product of batches of matrices")
        return _batched_gemm(node, *factors)
    return linear.Gemm(
        node.x(0),
        node.x(1),
        node.optional(2),
        alpha=factors[0],
        beta=factors[1],
        trans_a=node.flag("transA"),
        trans_b=node.flag("transB"),
    )


def _batched_gemm(node: Node, alpha: float, beta: float) -> Op:
    """alpha · A · B + beta · c with batches of matrices."""
    a, b, c = node.x(0), node.x(1), node.optional(2)
    y: Op = linear.MatMul(_turned(a) if node.flag("transA") else a, _turned(b) if node.flag("transB") else b)
    y = y if alpha == 1.0 else e.Mul(y, number(alpha, y))
    return y if c is None else e.Add(y, c if beta == 1.0 else e.Mul(c, number(beta, c)))


def _turned(x: Op) -> Op:
    """x with its last two dimensions exchanged."""
    rank = len(x.shape)
    if rank < 2:
        raise ShapeError(f"{x.type} is no matrix to transpose")
    return Transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def _pooled(node: Node) -> dict[str, object]:
    kernel = node.ints("kernel_shape") or ()
    stride, pads, dilation = window(node, kernel, node.x())
    ceil = node.flag("ceil_mode")
    # Refuses figures that do not fit before an op is made of them.
    for d, k in enumerate(kernel):
        window_size(node.x().shape[d + 2], k, stride[d], pads[d], pads[len(kernel) + d], dilation[d], ceil)
    return {"window": kernel, "stride": stride, "pads": pads, "dilation": dilation, "ceil": ceil}


@onnx("MaxPool")
def max_pool(node: Node) -> tuple[Op, ...]:
    """Maximum over windows, and where in the data it is."""
    x, figures, columns = node.x(), _pooled(node), node.flag("storage_order")
    y = pool.MaxPool(x, **figures)  # type: ignore[arg-type]
    if not node.wants(1):
        return (y,)
    first = pool.MaxPlace(x, y, **figures)  # type: ignore[arg-type]
    del figures["ceil"]
    return y, pool.TapIndex(first, of=x.shape, columns=columns, **figures)  # type: ignore[arg-type]


@onnx("AveragePool")
def average_pool(node: Node) -> Op:
    """Mean over windows."""
    count_pad = node.flag("count_include_pad")
    return pool.AveragePool(node.x(), count_pad=count_pad, **_pooled(node))  # type: ignore[arg-type]


@onnx("LpPool")
def lp_pool(node: Node) -> Op:
    """y = (Σ |x|^p)^(1/p) over windows."""
    p = node.int("p", 2)
    x = node.x()
    total = pool.SumPool(_power(x, p), **_pooled(node))  # type: ignore[arg-type]
    return _root(total, p)


@onnx("GlobalLpPool")
def global_lp_pool(node: Node) -> Op:
    """y = (Σ |x|^p)^(1/p) over all spatial dimensions."""
    p, x = node.int("p", 2), node.x()
    return _root(reduce.ReduceSum(_power(x, p), axes=tuple(range(2, len(x.shape))), keep=True), p)


@onnx("LpNormalization")
def lp_normalization(node: Node) -> Op:
    """y = x / (Σ |x|^p)^(1/p) along an axis; 0 where that is 0 / 0."""
    p, x = node.int("p", 2), node.x()
    norm = _root(reduce.ReduceSum(_power(x, p), axes=(node.axis(default=-1),), keep=True), p)
    return e.Div(x, e.Where(e.Equal(norm, number(0, norm)), number(1, norm), norm))


def _power(x: Op, p: int) -> Op:
    return e.Abs(x) if p == 1 else e.Mul(x, x) if p == 2 else e.Pow(e.Abs(x), number(p, x))


def _root(x: Op, p: int) -> Op:
    return x if p == 1 else e.Root(x, degree=p)


@onnx("GlobalAveragePool")
def global_average_pool(node: Node) -> Op:
    """Mean over all spatial dimensions."""
    return pool.GlobalAveragePool(node.x())


@onnx("GlobalMaxPool")
def global_max_pool(node: Node) -> Op:
    """Maximum over all spatial dimensions."""
    return pool.GlobalMaxPool(node.x())


@onnx("BatchNormalization", since=14)
def batch_norm_by_mode(node: Node) -> Op | tuple[Op, ...]:
    """Normalisation by stored statistics, or in training mode by those of the batch, with the new running ones."""
    if not node.flag("training_mode"):
        return batch_norm(node)
    x, scale, bias, *running = (node.x(k) for k in range(5))
    y = normalize.BatchNormTraining(x, cast(scale, x.dtype), cast(bias, x.dtype), node.float("epsilon", 1e-5))
    momentum = node.float("momentum", 0.9)
    batch = normalize.batch_mean(x), normalize.batch_variance(x)
    moved = (normalize.running_statistic(r, cast(b, r.dtype), momentum) for r, b in zip(running, batch, strict=True))
    return y, *moved


@onnx("BatchNormalization")
def batch_norm(node: Node) -> Op:
    """Normalisation by stored statistics."""
    node.ignore("consumed_inputs")
    if node.version < 7 and not node.flag("is_test"):
        raise Unsupported("batch normalisation in training mode", "export the model in inference mode (model.eval())")
    if not node.flag("spatial", True):
        raise Unsupported("batch normalisation per activation (spatial=0)")
    for k in range(1, node.outputs):
        node.refuse_output(k, "of the statistics")
    momentum = shortest(node.float("momentum", 0.9), f32)  # 0.9 in single precision is 0.9, the default
    return normalize.BatchNorm(*(node.x(k) for k in range(5)), epsilon=node.float("epsilon", 1e-5), momentum=momentum)


@onnx("InstanceNormalization")
def instance_norm(node: Node) -> Op:
    """Normalisation per item and channel."""
    return normalize.InstanceNorm(node.x(0), node.x(1), node.x(2), epsilon=node.float("epsilon", 1e-5))


@onnx("GroupNormalization", since=21)
def group_norm(node: Node) -> Op:
    """Normalisation per group of channels."""
    node.ignore("stash_type")
    groups, epsilon = node.int("num_groups", 1), node.float("epsilon", 1e-5)
    return normalize.GroupNorm(node.x(0), node.x(1), node.x(2), groups=groups, epsilon=epsilon)


@onnx("LayerNormalization")
def layer_norm(node: Node) -> tuple[Op, ...]:
    """Normalisation over the last dimensions; version 17, and onnxruntime's in older models."""
    node.ignore("stash_type")
    x, epsilon = node.x(), node.float("epsilon", 1e-5)
    axis = node.axis(default=-1)
    y = normalize.LayerNorm(x, node.x(1), node.optional(2), axis=axis, epsilon=epsilon)
    if not node.wants(1) and not node.wants(2):
        return (y,)
    axes = tuple(range(axis, len(x.shape)))
    mean = reduce.ReduceMean(x, axes=axes, keep=True)
    centred = e.Sub(x, mean)
    variance = reduce.ReduceMean(e.Mul(centred, centred), axes=axes, keep=True)
    return y, mean, e.Reciprocal(e.Sqrt(e.Add(variance, number(epsilon, variance))))


@onnx("RMSNormalization", since=23)
@onnx("SimplifiedLayerNormalization")
def rms_norm(node: Node) -> tuple[Op, ...]:
    """Division by the root of the mean square; onnxruntime's has the inverse of that as its second result."""
    node.ignore("stash_type")
    x, axis, epsilon = node.x(), node.axis(default=-1), node.float("epsilon", 1e-5)
    y = normalize.RmsNorm(x, node.x(1), axis=axis, epsilon=epsilon)
    if not node.wants(1):
        return (y,)
    square = reduce.ReduceMean(e.Mul(x, x), axes=tuple(range(axis, len(x.shape))), keep=True)
    return y, e.Reciprocal(e.Sqrt(e.Add(square, number(epsilon, square))))


@onnx("LRN")
def lrn(node: Node) -> Op:
    """Local response normalisation across channels."""
    return normalize.Lrn(
        node.x(),
        size=node.int("size", 1),
        alpha=node.float("alpha", 1e-4),
        beta=node.float("beta", 0.75),
        bias=node.float("bias", 1.0),
    )


@onnx("Softmax", "LogSoftmax", "Hardmax", since=13)
def softmax(node: Node) -> Op:
    """Softmax and its relatives along one axis."""
    return _soft(node.proto.op_type, node.x(), node.axis(default=-1))


@onnx("Softmax", "LogSoftmax", "Hardmax")
def softmax_of_matrix(node: Node) -> Op:
    """Before version 13 all dimensions from the axis on count as one."""
    x = node.x()
    axis = cut_axis(node)
    if axis == len(x.shape) - 1:
        return _soft(node.proto.op_type, x, axis)
    flat = Reshape(x, to=(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return Reshape(_soft(node.proto.op_type, flat, 1), to=x.shape)


def _soft(kind: str, x: Op, axis: int) -> Op:
    if kind == "Softmax":
        return normalize.Softmax(x, axis=axis)
    if kind == "LogSoftmax":
        return normalize.LogSoftmax(x, axis=axis)
    from dlc.ops.index import OneHot
    from dlc_frontend_onnx.node import constant

    top = reduce.ArgMax(x, axis=axis, keep=False)
    return OneHot(top, constant([0.0, 1.0], x.dtype), depth=x.shape[axis], axis=axis)
