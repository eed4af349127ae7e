"""An example of every equation of `simplify`: a random op to which it applies."""

import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from dlc.base.types import DType, Type, bool_, f32, f64, i32, i64
from dlc.graph import Constant, Input, Op, Splat, Tensor
from dlc.ops.elementwise import (
    Abs,
    Add,
    And,
    Cast,
    Clip,
    Div,
    Erf,
    Exp,
    Floor,
    HardSigmoid,
    Log,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Not,
    Or,
    Pow,
    Reciprocal,
    Relu,
    Round,
    Sign,
    Softplus,
    Sqrt,
    Sub,
    Tanh,
    Where,
    Xor,
)
from dlc.ops.index import Gather
from dlc.ops.linear import Conv, ConvTranspose, Gemm, MatMul
from dlc.ops.normalize import BatchNorm, LayerNorm, RmsNorm, Softmax
from dlc.ops.pool import AveragePool, MaxPool
from dlc.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from dlc.ops.shape import Concat, Expand, Pad, Reshape, Slice, Tile, Transpose
from tests.passes.drawing import Draw, Shape


def n(value: float, dtype: DType = f32, shape: Shape = ()) -> Splat:
    return Splat(float(value) if dtype.is_float else int(value), Type(dtype, shape))


def flag(value: bool) -> Splat:
    return Splat(value, Type(bool_, ()))


def turned(d: Draw, op: Callable[[Op], Op], low: int = 2) -> Op:
    """op of a transposed input whose dimensions differ."""
    shape = (2, 3, 4, 5)[: d.size(low, 4)]
    return op(Transpose(d.x(shape), perm=d.turn(len(shape))))


def image(d: Draw) -> Input:
    return d.x((d.size(1, 2), 3, d.size(4, 6), d.size(4, 6)))


def conv(d: Draw, x: Op | None = None, bias: bool = True, pads: int = 1) -> Conv:
    return Conv(x or image(d), d.c(4, 3, 3, 2), d.c(4) if bias else None, pads=(pads,) * 4, stride=(d.size(1, 2), 1))


def shuffled(d: Draw) -> Op:
    """Six channels in another order."""
    size = d.size(4, 6)
    x, parts = d.x((d.size(1, 2), 6, size, size)), d.pick((2, 3), (3, 2))
    between = d.pick((*parts, size, size), (*parts, size * size))
    moved = Transpose(Reshape(x, to=(x.shape[0], *between)), perm=(0, 2, 1, *range(3, len(between) + 1)))
    return Reshape(moved, to=x.shape)


def layer(d: Draw) -> Op:
    """Something that absorbs factors per channel."""
    x, bias = d.x((2, 3, 5)), d.pick(True, False)
    match d.pick("conv", "transpose", "gemm"):
        case "conv":
            return conv(d, bias=bias)
        case "transpose":
            return ConvTranspose(x, d.c(3, 4, 2), d.c(4) if bias else None, stride=(2,))
        case _:
            c = d.c(*d.pick((4,), (1, 4), ())) if bias else None
            return Gemm(d.x((2, 3)), d.c(4, 3), c, alpha=0.5, beta=2.0, trans_b=True)


def channels(d: Draw, x: Op) -> Op:
    tail = (1,) * (len(x.shape) - 2)
    return d.pick(d.c(x.shape[1], *tail), d.c(1, x.shape[1], *tail), n(1.5), d.c(1))


def norm(d: Draw, x: Op) -> BatchNorm:
    count = x.shape[1]
    return BatchNorm(x, d.c(count), d.c(count), d.c(count), d.c(count))


def padded(d: Draw, value: float = 0.0) -> Pad:
    return Pad(image(d), pads=(0, 0, 1, 0, 0, 0, d.size(1, 2), 1), value=value)


def cut(d: Draw, x: Op, axis: int, start: int, stop: int) -> Slice:
    starts = tuple(start if k == axis else 0 for k in range(len(x.shape)))
    return Slice(x, starts=starts, sizes=tuple(stop - start if k == axis else e for k, e in enumerate(x.shape)))


def sliced(d: Draw, x: Op) -> Slice:
    parts = [
        d.data.draw(st.integers(0, e - 1).flatmap(lambda s, e=e: st.tuples(st.just(s), st.integers(1, e - s))))
        for e in x.shape
    ]
    return Slice(x, starts=tuple(p[0] for p in parts), sizes=tuple(p[1] for p in parts))


def centred(x: Op) -> Op:
    return Sub(x, ReduceMean(x, axes=(len(x.shape) - 1,), keep=True))


def variance(d: Draw, x: Op) -> Op:
    square = d.pick(Mul(x, x), Pow(x, n(2)))
    return Add(ReduceMean(square, axes=(len(x.shape) - 1,), keep=True), n(1e-3))


def standard(d: Draw, x: Op) -> Op:
    v = variance(d, x)
    forms = (Div(x, Sqrt(v)), Mul(x, Reciprocal(Sqrt(v))), Mul(Pow(v, n(-0.5)), x), Div(x, Pow(v, n(0.5))))
    return d.pick(*forms)


def product(d: Draw, *parts: Op) -> Op:
    """The product in a random order."""
    left, *rest = [parts[k] for k in d.perm(len(parts))]
    for x in rest:
        left = Mul(left, x)
    return left


def gelu(d: Draw) -> Op:
    x = d.x((2, 3))
    if d.pick(True, False):
        inner = d.pick(Div(x, n(math.sqrt(2))), Mul(x, n(0.70710678)))
        return product(d, x, n(0.5), Add(Erf(inner), n(1)))
    cube = d.pick(Mul(Pow(x, n(3)), n(0.044715)), Mul(Mul(Mul(x, x), x), n(0.044715)))
    inner = Mul(Add(x, cube), n(0.7978846))
    return product(d, x, n(0.5), Add(Tanh(inner), n(1)))


def exponential(x: Op, safe: bool = True) -> Op:
    return Exp(Sub(x, ReduceMax(x, axes=(1,), keep=True)) if safe else x)


def hard(x: Op) -> Op:
    return Clip(Add(x, n(3)), low=0.0, high=6.0)


CASES: dict[str, Callable[[Draw], Op]] = {
    "constant_right": lambda d: d.pick(Add, Mul, Minimum, Maximum)(n(2.5), d.x()),
    "add_zero": lambda d: d.pick(Add(d.x((2,)), n(-0.0, shape=(3, 1))), Add(d.x((2,), i32), n(0, i32))),
    "sub_zero": lambda d: Sub(d.x(), n(d.pick(0.0))),
    "sub_constant": lambda d: Sub(d.x((2, 3)), d.pick(d.c(3), n(2))),
    "times_one": lambda d: d.pick(Mul, Div)(d.x(), n(1)),
    "times_zero": lambda d: Mul(d.x(dtype=i64), n(0, i64)),
    "minus_itself": lambda d: Sub(x := d.x(dtype=i32), x),
    "divided_by_itself": lambda d: Div(x := d.x(), x),
    "shuffle_through_depthwise": lambda d: Conv(
        shuffled(d), d.c(6, 1, 3, 2), d.c(6) if d.pick(True, False) else None, pads=(1,) * 4, group=6
    ),
    "shuffle_through_batch_norm": lambda d: BatchNorm(shuffled(d), d.c(6), d.c(6), d.c(6), d.c(6)),
    "divide_by_power_of_two": lambda d: Div(d.x(), n(d.pick(0.25, 2.0, -64.0))),
    "power": lambda d: Pow(d.x(), n(d.pick(1, 2, -1))),
    "root": lambda d: Pow(Abs(d.x()), n(0.5)),
    "collect_constants": lambda d: d.pick(Add(Add(d.x(), n(2)), n(3)), Mul(Mul(d.x(), n(2)), n(3))),
    "twice": lambda d: d.pick(Neg(Neg(d.x())), Not(Not(d.x(dtype=bool_)))),
    "idempotent": lambda d: d.pick(Relu(Relu(x := d.x())), Abs(Abs(x)), Sign(Sign(x)), Floor(Round(x))),
    "sign_is_lost": lambda d: Abs(Neg(d.x())),
    "add_negated": lambda d: d.pick(Add(x := d.x(), Neg(d.x(x.shape))), Add(Neg(x), d.x(x.shape)), Sub(x, Neg(x))),
    "with_itself": lambda d: d.pick(Minimum(x := d.x(), x), Maximum(x, x)),
    "logic_with_constant": lambda d: d.pick(And, Or, Xor)(d.x(dtype=bool_), flag(d.pick(True, False))),
    "where": lambda d: d.pick(
        Where(flag(d.pick(True, False)), d.x((2, 1)), d.x((3,))),
        Where(d.x((2, 3), bool_), y := d.x((3,)), y),
        Where(Not(d.x((2, 3), bool_)), d.x((3,)), y),
    ),
    "cast": lambda d: d.pick(Cast(d.x(), f32), Cast(Cast(d.x(), f64), f32), Cast(Cast(d.x(dtype=i32), i64), f32)),
    "broadcast_late": lambda d: Add(d.x((2, 3)), d.pick(Expand(d.x((3,)), to=(2, 3)), n(2, shape=(2, 3)))),
    "bound": lambda d: d.pick(Minimum, Maximum)(d.x(), n(0.5)),
    "clip_alone": lambda d: d.pick(Clip(d.x()), Clip(d.x(), low=0.0)),
    "clip_of_clip": lambda d: Clip(
        d.pick(Clip(x := d.x(), low=float(d.size(0, 2)) - 1, high=1.0), Relu(x), Clip(x, high=0.5)),
        low=d.pick(None, -0.5, 0.75),
        high=d.pick(None, 0.25, 2.0),
    ),
    "reshape": lambda d: d.pick(Reshape(Reshape(d.x((2, 6)), to=(12,)), to=(3, 4)), Reshape(d.x((2, 3)), to=(2, 3))),
    "transpose": lambda d: Transpose(Transpose(d.x((2, 3, 4)), perm=d.perm(3)), perm=d.perm(3)),
    "transpose_of_ones": lambda d: Transpose(d.x((1, 3, 1, 2)), perm=d.pick((1, 0, 2, 3), (0, 2, 1, 3), (1, 3, 0, 2))),
    "reshape_of_transpose": lambda d: Reshape(
        Transpose(Reshape(d.x((1, 24)), to=(1, 2, 3, 4)), perm=d.pick((0, 2, 3, 1), (0, 2, 1, 3), (3, 0, 2, 1))),
        to=(4, 6),
    ),
    "expand": lambda d: d.pick(
        Expand(Expand(d.x((3, 1)), to=(3, 2)), to=(4, 3, 2)), Expand(x := d.x((2,)), to=(1, 2)), Expand(x, to=(2,))
    ),
    "slice_all": lambda d: Slice(x := d.x(), starts=(0,) * len(x.shape), sizes=x.shape),
    "slice_of_slice": lambda d: sliced(d, Slice(d.x((9, 4)), starts=(8, 1), sizes=(3, 3), steps=(-3, 1))),
    "pad_nothing": lambda d: Pad(x := d.x(), pads=(0,) * (2 * len(x.shape))),
    "pad_of_pad": lambda d: Pad(
        Pad(d.x((2, 3)), pads=(1, 0, 0, d.size()), value=2.0), pads=(0, d.size(), 1, 0), value=2.0
    ),
    "tile_once": lambda d: d.pick(Tile(d.x((2, 3)), repeats=(1, 1)), Tile(d.x((1, 3)), repeats=(4, 1))),
    "reduce_nothing": lambda d: ReduceSum(d.x((2, 1, 3)), axes=d.pick((1,), ()), keep=d.pick(True, False)),
    "reduce_of_reduce": lambda d: (kind := d.pick(ReduceSum, ReduceMax, ReduceMean))(
        kind(d.x((2, 3, 4)), axes=(1,), keep=d.pick(True, False)), axes=(1,), keep=d.pick(True, False)
    ),
    "pool_of_one": lambda d: d.pick(MaxPool, AveragePool)(image(d), window=(1, 1)),
    "concat_of_one": lambda d: d.pick(Concat((d.x(),)), Concat((d.x((2, 3)), d.x((2, 0))), axis=1)),
    "concat_of_concat": lambda d: Concat((Concat((d.x((2, 3)), d.x((2, 1))), axis=1), d.x((2, 2))), axis=1),
    "concat_of_slices": lambda d: Concat(
        (cut(d, x := d.x((2, 6)), 1, 0, k := d.size()), cut(d, x, 1, k, 5), cut(d, x, 1, 0, 2)), axis=1
    ),
    "slice_of_concat": lambda d: cut(d, Concat((d.x((2, 3)), d.x((2, 4))), axis=1), 1, *d.pick((0, 2), (3, 7), (4, 6))),
    "slice_of_expand": lambda d: sliced(d, Expand(d.x((3, 1)), to=(2, 3, 4))),
    "gather_of_constant": lambda d: Gather(
        d.x((5, 4)), Constant(Tensor.of(np.asarray(d.pick(2, -1, [1, 2, 3], [4, 2, 0], [-1]), np.int64))), axis=0
    ),
    "transpose_through_pointwise": lambda d: Add(Relu(t := Transpose(d.x((2, 3, 4)), perm=d.turn(3))), d.c(t.shape[2])),
    "reshape_through_pointwise": lambda d: Mul(Reshape(d.x((2, 6)), to=(3, 4)), n(1.5)),
    "transpose_through_softmax": lambda d: turned(d, lambda t: Softmax(t, axis=d.size(0, len(t.shape) - 1))),
    "reshape_through_softmax": lambda d: Softmax(Reshape(d.x((1, 3, 4, 1)), to=d.pick((3, 4), (3, 1, 4))), axis=0),
    "transpose_through_concat": lambda d: Concat(
        (Transpose(d.x((2, 3, 4)), perm=(p := d.turn(3))), Transpose(d.x((2, 3, 4)), perm=p)), axis=d.size(0, 2)
    ),
    "transpose_through_slice": lambda d: turned(d, lambda t: sliced(d, t)),
    "transpose_through_pad": lambda d: turned(
        d, lambda t: Pad(t, pads=tuple(d.size(0, 2) for _ in range(2 * len(t.shape))), value=1.0)
    ),
    "transpose_through_reduce": lambda d: turned(
        d, lambda t: ReduceSum(t, axes=(d.size(0, len(t.shape) - 1),), keep=d.pick(True, False))
    ),
    "batch_norm_into_layer": lambda d: norm(d, layer(d)),
    "batch_norm_twice": lambda d: norm(d, norm(d, image(d))),
    "factor_into_layer": lambda d: d.pick(Mul, Div)(y := d.pick(layer(d), norm(d, image(d))), channels(d, y)),
    "offset_into_layer": lambda d: Add(y := d.pick(conv(d), norm(d, image(d))), channels(d, y)),
    "factor_before_conv": lambda d: conv(d, Mul(x := image(d), channels(d, x))),
    "pad_into_conv": lambda d: conv(d, padded(d), pads=d.size(0, 1)),
    "matmul_bias": lambda d: Add(
        d.pick(MatMul(d.x((2, 3)), d.c(3, 4)), Gemm(d.x((2, 3)), d.c(3, 4), d.c(4), beta=2.0)), d.c(4)
    ),
    "gemm_of_transpose": lambda d: (
        Gemm(Transpose(d.x((3, 2)), perm=(1, 0)), Transpose(d.x((3, 4)), perm=(1, 0)), trans_b=True)
        if d.pick(False)
        else Gemm(Transpose(d.x((3, 2)), perm=(1, 0)), d.c(3, 4))
    ),
    "matmul_of_transpose": lambda d: MatMul(d.x((2, 3)), Transpose(d.x((4, 3)), perm=(1, 0))),
    "gemm_factors": lambda d: Gemm(d.x((2, 3)), d.c(3, 4), d.c(4), alpha=0.5, beta=3.0),
    "zero_bias": lambda d: d.pick(
        Conv(image(d), d.c(4, 3, 3, 2), n(0, shape=(4,))),
        ConvTranspose(d.x((2, 3, 5)), d.c(3, 4, 2), n(0, shape=(4,)), stride=(2,)),
        Gemm(d.x((2, 3)), d.c(3, 4), n(0, shape=(4,)), beta=2.0),
    ),
    "sum_plus_zero": lambda d: Add(
        d.pick(
            MatMul(d.x((5, 2, 3)), d.x((3, 4))), ReduceSum(d.x((2, 4)), axes=(0,)), Gemm(d.x((2, 3)), d.c(3, 4), d.c(4))
        ),
        d.pick(n(0), n(0, shape=(4,)), n(-0.0)),
    ),
    "pad_into_max_pool": lambda d: MaxPool(padded(d, -math.inf), window=(3, 3), stride=(2, 1)),
    "pad_into_average_pool": lambda d: AveragePool(padded(d), window=(3, 2), stride=(2, 1), ceil=d.pick(True, False)),
    "softmax": lambda d: Div(e := exponential(d.x((2, 3))), ReduceSum(e, axes=(1,), keep=True)),
    "log_softmax": lambda d: Sub(
        s := exponential(d.x((2, 3))).operands[0], Log(ReduceSum(Exp(s), axes=(1,), keep=True))
    ),
    "log_of_softmax": lambda d: Log(Softmax(d.x((2, 3)), axis=0)),
    "gelu": gelu,
    "sigmoid": lambda d: d.pick(Reciprocal(y := Add(Exp(Neg(d.x())), n(1))), Div(n(1), y)),
    "softplus": lambda d: Log(Add(Exp(d.x()), n(1))),
    "softsign": lambda d: Div(x := d.x(), Add(Abs(x), n(1))),
    "hard_sigmoid": lambda d: d.pick(Div(hard(x := d.x()), n(6)), Mul(hard(x), n(1 / 6))),
    "hard_swish": lambda d: d.pick(Div(Mul(x := d.x(), hard(x)), n(6)), Mul(x, HardSigmoid(x, alpha=1 / 6, beta=0.5))),
    "mish": lambda d: Mul(x := d.x(), Tanh(Softplus(x))),
    "sum_of_squares": lambda d: ReduceSum(Mul(x := d.x((2, 3)), x), axes=(d.size(0, 1),)),
    "standardize": lambda d: standard(d, d.pick(centred(x := d.x((2, 3, 4))), x)),
    "norm_scale": lambda d: Mul(d.pick(LayerNorm, RmsNorm)(d.x((2, 3)), n(1, shape=(3,)), axis=1), d.c(3)),
    "norm_bias": lambda d: Add(LayerNorm(d.x((2, 3)), d.c(3), axis=1), d.c(3)),
}
