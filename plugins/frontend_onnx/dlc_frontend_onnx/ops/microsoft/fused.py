"""Operators that onnxruntime's optimiser makes of several: products, convolutions and normalisations with their
neighbours, and the embedding layer of BERT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dlc.base.types import Type, i32
from dlc.graph import Op, Splat
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import linear, normalize, reduce
from dlc.ops.index import Gather
from dlc.ops.shape import Slice, Transpose
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.ops.microsoft.layouts import channels_last, with_channels_first
from dlc_frontend_onnx.ops.nn import conv, gemm, max_pool
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported

_PLAIN: Final[Mapping[str, Callable[[Op], Op]]] = {
    "Relu": e.Relu,
    "Sigmoid": e.Sigmoid,
    "Tanh": e.Tanh,
    "Softplus": e.Softplus,
    "Softsign": e.Softsign,
}
_WITH_PARAMETERS: Final = ("LeakyRelu", "Elu", "ThresholdedRelu", "HardSigmoid", "Clip")


def activated(x: Op, kind: str, given: Sequence[float | None]) -> Op:
    """x through the activation that an operator has fused, with parameters alpha and beta as far as they are given."""
    alpha, beta, *_ = (*given, None, None)
    match kind:
        case "":
            return x
        case "LeakyRelu":
            return e.LeakyRelu(x, alpha=0.01 if alpha is None else alpha)
        case "Elu":
            return e.Elu(x, alpha=1.0 if alpha is None else alpha)
        case "ThresholdedRelu":
            return e.ThresholdedRelu(x, alpha=1.0 if alpha is None else alpha)
        case "HardSigmoid":
            return e.HardSigmoid(x, alpha=0.2 if alpha is None else alpha, beta=0.5 if beta is None else beta)
        case "Clip":
            return e.Clip(x, low=alpha, high=beta)
        case _ if kind in _PLAIN:
            return _PLAIN[kind](x)
        case _:
            raise Unsupported(f"activation {kind}", f"supported: {', '.join((*_PLAIN, *_WITH_PARAMETERS))}")


# ---- products


def _last_two_exchanged(x: Op) -> Op:
    rank = len(x.shape)
    return x if rank < 2 else Transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def _first_to_rows(x: Op) -> Op:
    """[M, batch…, K] → [batch…, M, K]."""
    rank = len(x.shape)
    return x if rank < 3 else Transpose(x, perm=(*range(1, rank - 1), 0, rank - 1))


@onnx("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node: Node) -> Op:
    """y = alpha · A · B of matrices that may be transposed, or have the batch between rows and columns."""
    operands: list[Op] = []
    for k, name in enumerate("AB"):
        x = node.x(k)
        x = _first_to_rows(x) if node.flag(f"transBatch{name}") else x
        operands.append(_last_two_exchanged(x) if node.flag(f"trans{name}") else x)
    y, alpha = linear.MatMul(*operands), node.float("alpha", 1.0)
    return y if alpha == 1.0 else e.Mul(y, number(alpha, y))


@onnx("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node) -> Op:
    """y = activation(alpha · A · B + beta · C)."""
    names = ("activation_alpha", "activation_beta")
    node.ignore("activation_gamma")  # of no activation that is fused
    parameters = tuple(node.float(name) if node.has(name) else None for name in names)
    return activated(gemm(node), node.text("activation"), parameters)


@onnx("FusedConv", domain=MICROSOFT)
def fused_conv(node: Node) -> Op:
    """y = activation(X ∗ W + B + Z)."""
    y, z = conv(node), node.optional(3)
    y = y if z is None else e.Add(y, z)
    return activated(y, node.text("activation"), node.floats("activation_params") or ())


@onnx("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(node: Node) -> Op:
    """The convolution of data whose channels are the last dimension; w is as the standard has it."""
    return channels_last(fused_conv(with_channels_first(node, 0, 3)))


@onnx("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(node: Node) -> Op:
    """Maximum over windows of data whose channels are the last dimension."""
    return channels_last(max_pool(with_channels_first(node, 0))[0])


# ---- normalisations


def _with_skip(node: Node, bias: Op | None) -> Op:
    """input + skip (+ bias)."""
    x, skip = node.x(0), node.x(1)
    total: Op = e.Add(x, skip)
    if total.shape != x.shape:
        raise ShapeError(f"a skip of type {skip.type} for an input of type {x.type}")
    return total if bias is None else e.Add(total, bias)


def _refuse_statistics(node: Node) -> None:
    for k, what in ((1, "mean"), (2, "inv_std_var")):
        node.refuse_output(k, what)


@onnx("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(node: Node) -> tuple[Op | None, ...]:
    """y = layer norm of (input + skip + bias), and that sum."""
    _refuse_statistics(node)
    total = _with_skip(node, node.optional(4))
    epsilon = node.float("epsilon", 1e-12)
    y = normalize.LayerNorm(total, node.x(2), node.optional(3), axis=len(total.shape) - 1, epsilon=epsilon)
    return y, None, None, total


@onnx("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(node: Node) -> tuple[Op | None, ...]:
    """y = RMS norm of (input + skip + bias), and that sum."""
    _refuse_statistics(node)
    total = _with_skip(node, node.optional(3))
    y = normalize.RmsNorm(total, node.x(2), axis=len(total.shape) - 1, epsilon=node.float("epsilon", 1e-12))
    return y, None, None, total


@onnx("GroupNorm", "SkipGroupNorm", domain=MICROSOFT)
def group_norm(node: Node) -> tuple[Op | None, ...]:
    """y = group norm of X (+ skip + bias), then SiLU if `activation` is 1, and that sum."""
    last = node.flag("channels_last", True)
    x, total = node.x(0), None
    if node.proto.op_type == "SkipGroupNorm":
        skip, bias = node.x(3), node.optional(4)
        if len(skip.shape) == 2:  # one value for each item and channel
            from dlc_frontend_onnx.ops.shape import reshaped

            ones = (1,) * (len(x.shape) - 2)
            skip = reshaped(skip, (skip.shape[0], *ones, skip.shape[1]) if last else (*skip.shape, *ones))
        total = e.Add(x, skip)
        if bias is not None:
            from dlc_frontend_onnx.ops.shape import reshaped

            bias = bias if last else reshaped(bias, (bias.type.size, *(1,) * (len(x.shape) - 2)))
            total = e.Add(total, bias)
        x = total
    from dlc_frontend_onnx.ops.microsoft.layouts import channels_first

    inner = channels_first(x) if last else x
    gamma, beta = cast(node.x(1), x.dtype), cast(node.x(2), x.dtype)
    y: Op = normalize.GroupNorm(inner, gamma, beta, groups=node.int("groups", 1), epsilon=node.float("epsilon", 1e-5))
    if (kind := node.int("activation")) not in (0, 1):
        raise Unsupported(f"activation {kind} of a group norm", "0, none, and 1, SiLU, are defined")
    y = e.Mul(y, e.Sigmoid(y)) if kind else y
    y = channels_last(y) if last else y
    return (y,) if total is None else (y, total)


@onnx("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(node: Node) -> tuple[Op | None, ...]:
    """y = layer norm of word[ids] + position[positions] + segment[segments]; the number of words; the sum."""
    node.ignore("mask_index_type")
    ids, segments, mask, positions = node.x(0), node.optional(1), node.optional(7), node.optional(8)
    batch, length = ids.shape
    table = node.x(3)
    if positions is not None:
        placed: Op = Gather(table, positions, axis=0)
    elif length <= table.shape[0]:
        placed = Slice(table, starts=(0, 0), sizes=(length, table.shape[1]), steps=(1, 1))
    else:
        raise ShapeError(f"{length} positions of {table.shape[0]} that have an embedding")
    total: Op = e.Add(Gather(node.x(2), ids, axis=0), placed)
    if segments is not None:
        total = e.Add(total, Gather(node.x(4), segments, axis=0))
    y = normalize.LayerNorm(total, node.x(5), node.optional(6), axis=2, epsilon=node.float("epsilon", 1e-12))
    count: Op
    if mask is None:
        count = Splat(0, Type(i32, (batch,)))
    else:
        ones = e.Equal(mask, number(1, mask))
        count = reduce.ReduceSum(cast(ones, i32), axes=(1,))
    return y, count, total


# ---- activations with a bias


@onnx("BiasAdd", domain=MICROSOFT)
def bias_add(node: Node) -> Op:
    """y = x + bias + skip."""
    return e.Add(e.Add(node.x(0), node.x(1)), node.x(2))


@onnx("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(node: Node) -> Op:
    """y = left · gelu(right) of the halves of x + bias."""
    x = e.Add(node.x(0), node.x(1))
    *outer, width = x.shape
    if width % 2:
        raise ShapeError(f"{width} elements in the last dimension have no halves")
    left, right = (
        Slice(x, starts=(*(0 for _ in outer), at), sizes=(*outer, width // 2), steps=(1,) * len(x.shape))
        for at in (0, width // 2)
    )
    return e.Mul(left, e.Gelu(right))


@onnx("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(node: Node) -> Op:
    """y = softmax of data + bias over all dimensions from the axis on."""
    from dlc_frontend_onnx.ops.shape import reshaped

    x, bias = node.x(0), node.x(1)
    axis = node.axis(default=1)
    node.ignore("is_inner_broadcast")
    total = e.Add(x, bias)
    outer = 1
    for n in total.shape[:axis]:
        outer *= n
    flat = reshaped(total, (outer, total.type.size // max(outer, 1)))
    return reshaped(normalize.Softmax(flat, axis=1), total.shape)
