"""integers: sums of products of dequantised values are summed as the integers that they are.

    conv(deq(x), deq(w), deq(b))   →   f32(conv_integer(pad(x), w) + b') · (scale of x · scale of w)
    matmul(i32(a) - za, i32(b) - zb)   →   matmul_integer(a, b) - za·Σb - zb·Σa + K·za·zb
    quantise(deq(conv_integer))    →   quantise by one factor: scale of x · scale of w / scale of y
    quantise(deq(x)), equal scales →   x
    quantise to i8                 →   i8(i32(quantise to u8) - 128)
    max_pool(deq(x))               →   deq(max_pool(x)); also of reshape, transpose

Zero points leave the sums: what they add is a constant of each output channel, and a sum over the other factor where
the weights have a zero point. Borders are padded with the zero point, so that padding adds exactly nothing. Sums of
integers are exact, where the float convolution that the model describes rounds; so results may differ from it by one
step of the quantisation, as those of every runtime with integer kernels. Bytes of activations become u8, bytes of
weights i8, which is what dot products of processors multiply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.base.types import DType, Type, f32, i8, i32, u8
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Constant, Splat
from dlc.graph.tensor import Array, Tensor
from dlc.graph.walk import evaluate_ops
from dlc.ops.elementwise import Add, Cast, Clip, Mul, Relu, Sub
from dlc.ops.linear import Conv, ConvInteger, Gemm, MatMul, MatMulInteger
from dlc.ops.pool import GlobalAveragePool, MaxPool
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc.ops.shape import Pad, Reshape, Transpose
from dlc.ops.window import defaulted
from dlc.passes.quantised import Bytes, centred, dequantised, quantised, shifted
from dlc.spec import option

MOST_TERMS = 1 << 16
"""Bytes whose sum is an integer that f32 has."""


@dataclass(frozen=True)
class Integers(Pass[Graph, Graph]):
    """Sum products of quantised values as integers: conv(deq(x), deq(w))  →  conv_integer(x, w) · scale."""

    name: ClassVar[str] = "integers"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "ops"
    idempotent: ClassVar[bool] = True
    group: int = option(4, "terms of a sum that lie together: channels are padded to a multiple of it", low=1)

    def run(self, state: Graph, report: Report) -> Graph:
        """The same outputs up to one step of their quantisation."""
        report.missed_as = "left in floating point"
        if not any(op.dtype.bits == 8 for op in state.ops if len(op.types) == 1 and op.dtype.is_integer):
            return state
        return state.rewrite(_Rules(self.group, report))


@dataclass
class _Rules:
    """The rule that `Graph.rewrite` calls once per op, operands first."""

    group: int
    report: Report
    known: dict[str, bool] = field(default_factory=dict[str, bool])
    values: dict[str, Array] = field(default_factory=dict[str, Array])

    def __call__(self, op: Op) -> Op | None:
        if len(op.types) != 1 or op.symbols or is_constant(op, self.known):
            return None
        new = self._rewritten(op)
        if new is not None:
            self.report.count(op.text_name)
        return new

    def constant(self, op: Op) -> Array | None:
        """The elements of a constant expression."""
        if not is_constant(op, self.known) or len(op.types) != 1:
            return None
        if op.digest not in self.values:
            self.values[op.digest] = np.asarray(evaluate_ops((op,), {})[0])
        return self.values[op.digest]

    def _rewritten(self, op: Op) -> Op | None:
        match op:
            case Conv():
                return self._conv(op)
            case MatMul(a=a, b=b) if a.type.rank >= 2 and b.type.rank >= 2:
                return self._product(op, (a, b), (False, False), None)
            case Gemm() if op.alpha == 1.0 and op.beta == 1.0 and op.dtype in (f32, i32):
                return self._product(op, (op.a, op.b), (op.trans_a, op.trans_b), op.c)
            case MaxPool(x=x) if (found := dequantised(x, self.constant)) is not None and found.uniform:
                return self._value(found, op.with_operands((found.values,)))
            case ReduceMean(x=x) if (found := dequantised(x, self.constant)) is not None and found.uniform:
                return self._mean(op, found, op.axes, op.keep)
            case GlobalAveragePool(x=x) if (found := dequantised(x, self.constant)) is not None and found.uniform:
                return self._mean(op, found, tuple(range(2, x.type.rank)), keep=True)
            case Cast():
                return self._quantised(op)
            case _:
                return None

    # ---- sums of products ----
    def _operand(self, op: Op, dtype: DType) -> Bytes | None:
        found = dequantised(op, self.constant) if dtype is f32 else centred(op, self.constant)
        return found if found is not None and found.values.dtype.bits == 8 else None

    def _conv(self, op: Conv) -> Op | None:
        if op.dtype not in (f32, i32):
            return None
        x, w = self._operand(op.x, op.dtype), self._operand(op.w, op.dtype)
        if x is None or w is None:
            return None
        rank = op.x.type.rank - 2
        pads = defaulted(op.pads, 2 * rank, 0, "pads")
        x, w = x.unsigned(), w.signed()
        moved = x.known_zero is None or bool(np.any(x.known_zero))
        weights = w.known_zero
        if not x.uniform or weights is None or (x.known_zero is None and any(pads)):
            return self._left(op, "a zero point is not known before a run, or differs between channels")
        if op.group > 1 and np.any(weights):
            return self._left(op, "weights of groups have a zero point")
        if not all(_along(v, w.values.type.rank, 0) for v in (weights, w.scale) if v is not None):
            return self._left(op, "its weights have scales or zero points along other dimensions than that of outputs")
        channels = x.values.shape[1] // op.group
        more = -channels % self.group if op.group == 1 else 0
        data, factors = x.values, w.values
        if any(pads) or more:
            value = 0 if x.known_zero is None else int(x.known_zero.reshape(()))
            sides = (0, 0, *pads[:rank], 0, more, *pads[rank:])
            data = Pad(data, pads=sides, value=value)
            factors = _padded(factors, 1, more)
        total: Op = ConvInteger(data, factors, op.stride, (), op.dilation, op.group)
        per = (-1, *(1,) * rank)
        offset: list[Op] = []
        if np.any(weights):
            ones = Splat(1, Type(i8, (1, *factors.shape[1:])))
            rows: Op = ConvInteger(data, ones, op.stride, (), op.dilation)
            rows = Sub(rows, self._times(x.zero, _splat(ones.type.size)))
            total = Sub(total, Mul(rows, _integers(_shaped(weights, per))))
        if moved:
            sums = ReduceSum(Cast(w.values, to=i32), axes=tuple(range(1, w.values.type.rank)))
            offset.append(self._times(x.zero, Reshape(sums, to=(w.values.shape[0], *(1,) * rank))))
        bias = None if op.b is None else Reshape(op.b, to=(op.shape[1], *(1,) * rank))
        scale = None if x.scale is None or w.scale is None else _scales(x.scale, _shaped(w.scale, per))
        return self._finished(total, offset, bias, scale)

    def _product(self, op: Op, pair: Sequence[Op], turned: Sequence[bool], addend: Op | None) -> Op | None:
        if op.dtype not in (f32, i32):
            return None
        a, b = (self._operand(x, op.dtype) for x in pair)
        if a is None or b is None:
            return None
        a, b = (x.transposed() if t else x for x, t in zip((a, b), turned, strict=True))
        a, b = a.unsigned(), b.signed()
        rank = b.values.type.rank
        columns = b.known_zero
        if not a.uniform or not (columns is None or _along(columns, rank, rank - 1)):
            return self._left(op, "zero points or scales differ along what is summed")
        if b.scale is not None and not _along(b.scale, rank, rank - 1):
            return self._left(op, "scales differ along what is summed")
        inner = a.values.shape[-1]
        more = -inner % self.group
        left, right = _padded(a.values, a.values.type.rank - 1, more), _padded(b.values, rank - 2, more)
        total: Op = MatMulInteger(left, right)
        offset: list[Op] = []
        if columns is None or np.any(columns):
            rows = ReduceSum(Cast(a.values, to=i32), axes=(a.values.type.rank - 1,), keep=True)
            rows = Sub(rows, self._times(a.zero, _splat(inner)))
            zero = b.zero if isinstance(b.zero, Op) else _integers(_shaped(b.zero, (-1,)))
            total = Sub(total, Mul(rows, zero))
        if a.known_zero is None or np.any(a.known_zero):
            sums = ReduceSum(Cast(b.values, to=i32), axes=(rank - 2,), keep=True)
            offset.append(self._times(a.zero, sums))
        scale = None if a.scale is None or b.scale is None else _scales(a.scale, _shaped(b.scale, (-1,)))
        return self._finished(total, offset, addend, scale)

    def _times(self, zero: Array | Op, sums: Op) -> Op:
        """A zero point times a sum; a constant where both are."""
        if isinstance(zero, Op):
            return Mul(zero, sums)
        known = self.constant(sums)
        factor = zero.reshape(()).astype(np.int64)
        return Mul(_integers(factor), sums) if known is None else _integers(factor * known.astype(np.int64))

    def _finished(self, total: Op, offset: Sequence[Op], bias: Op | None, scale: Array | None) -> Op:
        """The sum without its offset and with its bias, as i32, or as f32 by a scale."""
        own = bias if scale is None or bias is None else self._integer_bias(bias, scale)
        known = [None if x is None else self.constant(x) for x in (own, *offset)]
        if own is not None and offset and all(v is not None for v in known):
            added, moved = (v.astype(np.int64) for v in known if v is not None)
            total = Add(total, _integers(added - moved))
        else:
            for x in offset:
                total = Sub(total, x)
            total = total if own is None else Add(total, own)
        if scale is None:
            return total
        value = Mul(Cast(total, to=f32), Constant(Tensor.of(scale, f32)))
        return value if bias is None or own is not None else Add(value, bias)

    def _integer_bias(self, bias: Op, scale: Array) -> Op | None:
        """The integers of a bias that is stored in steps of the sum's scale, as quantisers write it."""
        found = dequantised(bias.x if isinstance(bias, Reshape) else bias, self.constant)
        if found is None or found.values.dtype is not i32 or found.scale is None or found.known_zero is None:
            return None
        own, sum_ = np.broadcast_arrays(found.scale.ravel(), scale.ravel())
        if np.any(found.known_zero) or not np.array_equal(own, sum_):
            return None
        return Reshape(found.values, to=bias.shape) if isinstance(bias, Reshape) else found.values

    # ---- what lies between sums ----
    def _value(self, of: Bytes, values: Op) -> Op:
        """Other bytes with the scale and zero point of these."""
        assert of.scale is not None
        wide: Op = Cast(values, to=i32)
        zero = of.zero if isinstance(of.zero, Op) else _integers(of.zero)
        if isinstance(of.zero, Op) or np.any(of.zero):
            wide = Sub(wide, zero)
        return Mul(Cast(wide, to=f32), Constant(Tensor.of(of.scale, f32)))

    def _mean(self, op: Op, x: Bytes, axes: tuple[int, ...], keep: bool) -> Op | None:
        """Sums of bytes are exact, whatever their order, as long as f32 has them."""
        count = x.values.type.size // max(1, op.type.size)
        if x.scale is None or count > MOST_TERMS or x.values.dtype.bits != 8:
            return None
        wide = self._value(x, x.values)
        assert isinstance(wide, Mul) and isinstance(wide.a, Cast)
        total = ReduceSum(wide.a.x, axes=axes, keep=keep)
        factor = np.asarray(x.scale.reshape(()) / np.float32(count), np.float32)
        return Mul(Cast(total, to=f32), Constant(Tensor.of(factor, f32)))

    def _quantised(self, op: Cast) -> Op | None:
        found = quantised(op, self.constant)
        if found is None:
            return None
        source = dequantised(found.y, self.constant)
        if source is not None and source.uniform and source.scale is not None and source.values.dtype.bits == 8:
            same, zero = source.unsigned(), found.zero + (128 if op.dtype is i8 else 0)
            known = same.known_zero
            if known is not None and int(known.reshape(())) == zero and float(source.scale) == found.scale:
                if source.values.dtype is op.dtype:
                    return source.values
                return same.values if op.dtype is u8 else shifted(same.values, -128, i8)
        quotient = self._divided(found.y, np.float32(found.scale))
        if quotient is None:
            return found.of(found.quotient) if op.dtype is i8 else None
        return found.of(quotient)

    def _divided(self, y: Op, by: np.float32) -> Op | None:
        """y / by where y is made of integers times a scale: the factors take the division in."""
        match y:
            case Mul(a=Cast(x=inner, to=to) as value, b=factor) if to is f32 and inner.dtype is i32:
                scale = self.constant(factor)
                return None if scale is None else Mul(value, Constant(Tensor.of((scale / by).astype(np.float32), f32)))
            case Add(a=a, b=b):
                left, right = (self._divided(x, by) for x in (a, b))
                return None if left is None or right is None else Add(left, right)
            case Relu(x=x) | Clip(x=x):
                inner = self._divided(x, by)
                if inner is None or isinstance(y, Relu):
                    return None if inner is None else Relu(inner)
                low, high = (None if v is None else float(np.float32(v) / by) for v in (y.low, y.high))
                return Clip(inner, low=low, high=high)
            case Transpose() | Reshape():
                inner = self._divided(y.x, by)
                return None if inner is None else y.with_operands((inner,))
            case _:
                return None

    def _left(self, op: Op, why: str) -> None:
        self.report.missed(f"{op.text_name}: {op.type}", why)


def _along(v: Array, rank: int, dimension: int) -> bool:
    """Whether what broadcasts with a tensor of a rank varies along one dimension at most."""
    shape = (1,) * (rank - v.ndim) + v.shape
    return all(e == 1 for d, e in enumerate(shape) if d != dimension)


def _shaped(v: Array, shape: tuple[int, ...]) -> Array:
    """A vector in the shape that broadcasts with sums; one number as a scalar."""
    return v.reshape(()) if v.size == 1 else v.reshape(shape)


def _scales(x: Array, w: Array) -> Array:
    return (x.reshape(()).astype(np.float32) * w.astype(np.float32)).astype(np.float32)


def _integers(v: Array) -> Constant:
    """Constants of i32; they wrap, as sums of i32 do."""
    return Constant(Tensor.of(v.astype(np.int64).astype(np.int32), i32))


def _splat(value: int) -> Splat:
    return Splat(value, Type(i32, ()))


def _padded(x: Op, dimension: int, more: int) -> Op:
    """x with zeros behind one dimension."""
    if not more:
        return x
    rank = x.type.rank
    pads = [0] * (2 * rank)
    pads[rank + dimension] = more
    return Pad(x, pads=tuple(pads), value=0)
