"""The compositions, a function with its equation for each kind of op; `RULES` and `GRADIENTS` list them.

A composition rounds no more than the op by itself would: every value that is stored besides is exact, or as small as
the result. So clip(x, 0, 6) is no 6 - relu(6 - relu(x)), whose inner value rounds small x as if they were near 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from dlc.graph import Constant, Cotangent, Input, Op, Splat, Tensor, evaluate_ops
from dlc.graph.evaluate import is_constant
from dlc.ops.elementwise import Add, Clip, HardSigmoid, LeakyRelu, Mul, Relu, Sub
from dlc.ops.index import Pick
from dlc.ops.linear import Conv, ConvTranspose, MatMul
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNormTraining, LayerNorm, Softmax
from dlc.ops.pointwise import normalized, scalar
from dlc.ops.pool import AveragePool, MaxPool
from dlc.ops.shape import Concat, Reshape, Slice, Transpose

_FLAT: Final = 2
"""Rank of rows of features."""


def _number(value: float, x: Op) -> Op:
    return scalar(value, x.dtype)


def clip(op: Clip) -> Op | None:
    """clip(x, a, b) = min(max(x, a), b); max(x, 0) is relu(x)."""
    x, low, high = op.x, op.low, op.high
    if not x.dtype.is_float or len(x.shape) < _FLAT or (low is None and high is None):
        return None
    r = x if low is None else _bounded(x, low, 1) if low else Relu(x)
    if high is None:
        return r
    return _capped(r, high) if low == 0 and _few_bits(high) else _bounded(r, high, -1)


_ROOM: Final = 64
"""How many times a bound operands may be for `_capped` to be exact."""


def _few_bits(bound: float) -> bool:
    """Whether a bound is a multiple of the last place of fp16 at `_ROOM` times its size, as 1 and 6 are."""
    fraction, _ = math.frexp(bound)
    return (fraction * 2.0**11 / _ROOM).is_integer()


def _capped(x: Op, high: float) -> Op:
    """min(x, b) = x - relu(x - b): 0 is subtracted below b, and above what fp16 holds exactly up to `_ROOM` times b.

    Beyond, what is cut off is as inexact as x itself.
    """
    return Add(x, _scaled(Relu(Sub(x, _number(high, x)) if high else x), -1.0))


_SHARE: Final = 1.0 - 2.0**-9
"""Of a difference that is added first: what is left is above 0 however fp16 rounded it."""


def _bounded(x: Op, bound: float, sign: int) -> Op:
    """max(x, a) from below: y = a + s·relu(x - a), then y + s·relu(x - y), then y + relu(x - y); s < 1.

    relu(x - a) + a by itself rounds x near 0 as if it were near a. What is left, x - y, is smaller by 2⁻⁸ each time, is
    never below 0, and 0 where x is below a: the sum is right to 2⁻²⁸ of a and x, and a itself where x is below. With
    the other sign, min(x, b) from above.
    """
    beyond = Add(_scaled(x, sign), _number(-sign * bound, x))
    half = Relu(_scaled(beyond, _SHARE / 2))  # half of it: x - a may be beyond fp16
    y: Op = Add(_scaled(half, 2.0 * sign), _number(bound, x))
    for share in (_SHARE, 1.0):
        left = Relu(Add(_scaled(y, -1.0), x) if sign > 0 else Add(_scaled(x, -1.0), y))
        y = Add(_scaled(left, share * sign), y)
    return y


def _scaled(x: Op, factor: float) -> Op:
    return x if factor == 1 else Mul(x, _number(factor, x))


def leaky_relu(op: LeakyRelu) -> Op | None:
    """x where x > 0, else a·x   =   (1 - a)·relu(x) + a·x."""
    x = op.x
    if len(x.shape) < _FLAT:
        return None
    return Add(_scaled(Relu(x), 1.0 - op.alpha), _scaled(x, op.alpha))


def hard_sigmoid(op: HardSigmoid) -> Op | None:
    """max(0, min(1, a·x + b)) = clip(a·x + b, 0, 1)."""
    x = op.x
    if len(x.shape) < _FLAT:
        return None
    return Clip(Add(Mul(x, _number(op.alpha, x)), _number(op.beta, x)), low=0.0, high=1.0)


def mat_mul(op: MatMul) -> Op | None:
    """x[…, k]·w[k, m] = y[…, m]   =   the product of all rows at once: a linear layer."""
    a, b = op.a, op.b
    if len(b.shape) != _FLAT or len(a.shape) <= _FLAT:
        return None
    return _rows(a, lambda rows: MatMul(rows, b), op.shape)


def _rows(x: Op, compute: Callable[[Op], Op], shape: tuple[int, ...], features: int = 0) -> Op:
    """Something computed of x as [rows, features], in another shape."""
    features = features or x.shape[-1]
    return Reshape(compute(Reshape(x, to=(x.type.size // features, features))), to=shape)


def add(op: Add) -> Op | None:
    """x[…, d…] + b[d…] for a stored b: as [rows, features], where the unit adds a number for each feature."""
    return _by_feature(op, op.a, op.b) or _by_feature(op, op.b, op.a)


def mul(op: Mul) -> Op | None:
    """x[…, d…]·w[d…] for a stored w, in the same way."""
    return _by_feature(op, op.a, op.b) or _by_feature(op, op.b, op.a)


def _by_feature(op: Add | Mul, x: Op, b: Op) -> Op | None:
    stored = (isinstance(b, Input) and b.role == "weight") or (not isinstance(b, Input) and is_constant(b))
    if not stored or not op.dtype.is_float or x.shape != op.shape or b.type.size == 1:
        return None
    own = tuple(b.shape)
    while own and own[0] == 1:
        own = own[1:]
    features = b.type.size
    # Along the channels of a map the unit has it as it stands.
    if len(x.shape) <= _FLAT or x.shape[len(x.shape) - len(own) :] != own or own == x.shape:
        return None
    flat = Reshape(b, to=(features,)) if b.shape != (features,) else b
    return _rows(x, lambda rows: type(op)(rows, flat), op.shape, features)


def softmax(op: Softmax) -> Op | None:
    """Along the last dimension: of all rows at once."""
    x = op.x
    if len(x.shape) <= _FLAT or normalized(op.axis, len(x.shape)) != len(x.shape) - 1:
        return None
    return _rows(x, lambda rows: Softmax(rows, axis=1), op.shape)


def layer_norm(op: LayerNorm) -> Op | None:
    """(x - mean)/√(var + ε)·s + t of a row   =   a norm by the batch whose channels are the rows, then s and t."""
    x, axis = op.x, normalized(op.axis, len(op.x.shape))
    features = math.prod(x.shape[axis:])
    rows = x.type.size // features
    wide = any(v is not None and v.type.size != features for v in (op.scale, op.bias))
    if wide or len(x.shape) < _FLAT or features == 1 or not axis:
        return None
    # Fresh constants: statistics are those of a row, and nothing of them is trained.
    ones, zeros = (Constant(Tensor.of(np.full(rows, value, x.dtype.numpy))) for value in (1, 0))
    y: Op = BatchNormTraining(Reshape(x, to=(1, rows, features)), ones, zeros, epsilon=op.epsilon)
    y = Mul(Reshape(y, to=(rows, features)), _flat(op.scale))
    y = y if op.bias is None else Add(y, _flat(op.bias))
    return Reshape(y, to=op.shape)


def _flat(v: Op) -> Op:
    return v if len(v.shape) == 1 else Reshape(v, to=(v.type.size,))


def average_pool(op: AveragePool) -> Op | None:
    """A mean that counts its padding   =   a convolution of each channel by 1 / (k·k)."""
    if not op.count_pad or not any(op.pads) or op.ceil or len(op.x.shape) != 4:
        return None
    channels, window = op.x.shape[1], op.window
    w = np.full((channels, 1, *window), 1.0 / math.prod(window), op.dtype.numpy)
    kernel = Constant(Tensor.of(w))
    return Conv(op.x, kernel, stride=op.stride, pads=op.pads, dilation=op.dilation, group=channels)


_PLACES: Final = 4
"""Side of the largest window of the unit's pools."""


def max_pool(op: MaxPool) -> Op | None:
    """Windows of a·b x a·b side by side   =   those of a x a, and of their maxima those of b x b."""
    side, *rest = op.window
    alike = rest == [side] and tuple(op.stride) == tuple(op.window) and not any(op.pads) and set(op.dilation) <= {1}
    if not alike or side <= _PLACES or any(extent % side for extent in op.x.shape[2:]):
        return None
    first = next((a for a in (4, 2, 3) if side % a == 0), None)
    if first is None:
        return None
    inner = MaxPool(op.x, window=(first,) * 2, stride=(first,) * 2)
    return MaxPool(inner, window=(side // first,) * 2, stride=(side // first,) * 2)


def conv_transpose(op: ConvTranspose) -> Op | None:
    """The gradient of a convolution with respect to its data, and a bias behind it."""
    forward = _of(op, Splat(0.0, op.type))
    if forward is None:
        return None
    if op.b is None:
        return Cotangent.make(forward, op.x, 0)
    return Add(ConvTranspose(op.x, op.w, **op.attrs), Reshape(op.b, to=(op.shape[1], 1, 1)))


def _of(op: ConvTranspose, y: Op) -> Conv | None:
    """The convolution of what a transposed one gives, back to the shape of its data."""
    if len(op.x.shape) != 4:
        return None
    try:
        found = Conv(y, op.w, stride=op.stride, pads=op.pads, dilation=op.dilation, group=op.group)
        return found if found.shape == op.x.shape else None
    except ValueError:
        return None


def pick(op: Pick) -> Op | None:
    """Rows or columns k times each, as nearest neighbours are = a transposed convolution of each channel by k ones."""
    x, axis = op.x, op.axis
    if len(x.shape) != 4 or axis < 2 or not x.dtype.is_float or not is_constant(op.indices):
        return None
    (places,) = evaluate_ops((op.indices,), {})
    times = places.size // x.shape[axis]
    if places.ndim != 1 or not np.array_equal(places, np.repeat(np.arange(x.shape[axis]), times)):
        return None
    taps = (times, 1) if axis == 2 else (1, times)
    ones = Constant(Tensor.of(np.ones((x.shape[1], 1, *taps), x.dtype.numpy)))
    return ConvTranspose(x, ones, stride=taps, group=x.shape[1])


def of_conv_transpose(op: ConvTranspose, seed: Op, operand: int) -> Op | None:
    """dx = conv(dy, w), dw = the weight gradient of that convolution for dy as its data."""
    found = _of(op, seed)
    if found is None or op.b is not None:
        return None
    return found if operand == 0 else Cotangent.make(found, op.x, 1)


def of_concat(op: Concat, seed: Op, operand: int) -> Op | None:
    """The operand's part of what comes back."""
    first = sum(x.shape[op.axis] for x in op.xs[:operand])
    starts = tuple(first if d == op.axis else 0 for d in range(len(seed.shape)))
    return Slice(seed, starts=starts, sizes=op.xs[operand].shape, steps=(1,) * len(starts))


def of_mul(op: Mul, seed: Op, operand: int) -> Op | None:
    """Of x·c for a constant c: dy·c."""
    other = op.operands[1 - operand]
    known = not isinstance(other, Input) and is_constant(other)
    return Mul(seed, other) if known and op.operands[operand].shape == op.shape else None


def of_transpose(op: Transpose, seed: Op, operand: int) -> Op | None:
    """Back to where it came from."""
    del operand
    return Transpose(seed, tuple(int(k) for k in np.argsort(op.perm)))


def label_cross_entropy(op: LabelCrossEntropy) -> Op | None:
    """Scores of more than rows and classes: the classes last, and all else rows."""
    scores = op.scores
    rank = len(scores.shape)
    axis = normalized(op.axis, rank)
    if rank <= _FLAT:
        return None
    order = (*(d for d in range(rank) if d != axis), axis)
    last = scores if axis == rank - 1 else Transpose(scores, order)
    classes = scores.shape[axis]
    rows = Reshape(last, to=(scores.type.size // classes, classes))
    labels = Reshape(op.labels, to=(op.labels.type.size,))
    attrs = {**op.attrs, "axis": 1}
    return Reshape(LabelCrossEntropy(rows, labels, **attrs), to=op.shape)


RULES: Final[Mapping[type[Op], Callable[[Any], Op | None]]] = {
    Clip: clip,
    LeakyRelu: leaky_relu,
    HardSigmoid: hard_sigmoid,
    MatMul: mat_mul,
    Add: add,
    Mul: mul,
    Softmax: softmax,
    LayerNorm: layer_norm,
    AveragePool: average_pool,
    MaxPool: max_pool,
    Pick: pick,
    ConvTranspose: conv_transpose,
    LabelCrossEntropy: label_cross_entropy,
}
"""Op → what it is composed of; None: the device has it as it stands, or no composition."""
GRADIENTS: Final[Mapping[type[Op], Callable[[Any, Op, int], Op | None]]] = {
    ConvTranspose: of_conv_transpose,
    Concat: of_concat,
    Mul: of_mul,
    Transpose: of_transpose,
}
"""Op → its gradient for a seed and one of its operands, where the device has that without a composition."""
