"""What quantised models consist of, by its parts: bytes with a scale and a zero point.

    dequantised   f32(i32(q) - i32(zero)) · scale            q: i8 or u8; the scale a constant, as the zero point mostly
    quantised     cast(clip(round(y / scale) + zero), to)

Movements of such values are values of moved bytes, as long as there is one scale for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dlc.base.types import DType, Type, f32, i8, i32, u8
from dlc.graph.op import Op
from dlc.graph.structure import Splat
from dlc.graph.tensor import Array
from dlc.ops.elementwise import Add, Cast, Clip, Div, Mul, Round, Sub
from dlc.ops.shape import Reshape, Transpose

Constants = Callable[[Op], Array | None]
"""The elements of a constant expression; None for anything else."""


@dataclass(frozen=True)
class Bytes:
    """Integers of 8 bits, or of 32 where only biases have them, and what they are relative to.

    Attributes:
        values: The integers.
        zero: Their zero point, broadcast with them; an op of i32 and one element where a run finds it.
        scale: What a step is worth, broadcast with them; None where integers are meant.
    """

    values: Op
    zero: Array | Op
    scale: Array | None = None

    @property
    def uniform(self) -> bool:
        """Whether all elements have one scale and one zero point."""
        size = self.zero.type.size if isinstance(self.zero, Op) else self.zero.size
        return size == 1 and (self.scale is None or self.scale.size == 1)

    @property
    def known_zero(self) -> Array | None:
        """The zero point, if it is known before a run."""
        return None if isinstance(self.zero, Op) else self.zero

    def transposed(self) -> Bytes:
        """A matrix with its dimensions exchanged."""
        values = Transpose(self.values, perm=(1, 0))
        zero = self.zero if isinstance(self.zero, Op) else _matrix(self.zero).T
        return Bytes(values, zero, None if self.scale is None else _matrix(self.scale).T)

    def unsigned(self) -> Bytes:
        """The same values as u8."""
        return self if self.values.dtype is u8 else self._moved(128, u8)

    def signed(self) -> Bytes:
        """The same values as i8."""
        return self if self.values.dtype is i8 else self._moved(-128, i8)

    def _moved(self, by: int, to: DType) -> Bytes:
        return self.of(shifted(self.values, by, to), by)

    def of(self, values: Op, by: int) -> Bytes:
        """Other bytes for the same values: all of them are greater by a number."""
        zero = Add(self.zero, _step(by)) if isinstance(self.zero, Op) else self.zero + by
        return replace(self, values=values, zero=zero)


def shifted(x: Op, by: int, to: DType) -> Op:
    """Bytes as others that are greater by a number."""
    return Cast(Add(Cast(x, to=i32), _step(by)), to=to)


def _unmoved(x: Bytes) -> Bytes:
    """The bytes of u8 from which 128 was taken, where these are such ones."""
    match x.values:
        case Cast(x=Add(a=Cast(x=inner), b=Splat(value=-128)), to=to) if to is i8 and inner.dtype is u8:
            return x.of(inner, 128)
        case _:
            return x


def _step(by: int) -> Op:
    return Splat(by, Type(i32, ()))


def _matrix(v: Array) -> Array:
    return v.reshape((1,) * (2 - v.ndim) + v.shape)


def dequantised(op: Op, constants: Constants) -> Bytes | None:
    """What a float stands for; of i32 too, as biases are."""
    match op:
        case Mul(a=Cast(x=inner, to=to), b=factor) if to is f32 and inner.dtype is i32 and factor.dtype is f32:
            scale = constants(factor)
            found = centred(inner, constants) or _bias(inner)
            if scale is None or not np.all(np.isfinite(scale) & (scale > 0)):
                return None
            return replace(found, scale=scale) if factor.type.rank <= inner.type.rank else None
        case Transpose() | Reshape():
            return _through(op, dequantised(op.x, constants))
        case _:
            return None


def _bias(op: Op) -> Bytes:
    return Bytes(op, np.zeros((), np.int64))


def centred(op: Op, constants: Constants) -> Bytes | None:
    """Bytes in 32 bits without their zero point."""
    match op:
        case Sub(a=a, b=b) if op.dtype is i32 and (values := as_bytes(a)) is not None and a.shape == op.shape:
            zero = constants(b)
            if zero is not None:
                return _unmoved(Bytes(values, zero.astype(np.int64)))
            return _unmoved(Bytes(values, Reshape(b, to=()))) if b.type.size == 1 else None
        case Transpose() | Reshape() if (inner := centred(op.x, constants)) is not None:
            return _through(op, inner)
        case _:
            values = as_bytes(op)
            return None if values is None else _unmoved(Bytes(values, np.zeros((), np.int64)))


def as_bytes(op: Op) -> Op | None:
    """The bytes that an op converts to i32."""
    match op:
        case Cast(x=x, to=to) if to is i32 and x.dtype in (i8, u8):
            return x
        case Transpose() | Reshape() if (inner := as_bytes(op.x)) is not None:
            return op.with_operands((inner,))
        case _:
            return None


def _through(op: Transpose | Reshape, inner: Bytes | None) -> Bytes | None:
    """A movement of bytes instead of their values."""
    if inner is None or not inner.uniform:
        return None
    zero = inner.zero if isinstance(inner.zero, Op) else inner.zero.reshape(())
    scale = None if inner.scale is None else inner.scale.reshape(())
    return Bytes(op.with_operands((inner.values,)), zero, scale)


@dataclass(frozen=True)
class Quantisation:
    """y quantised: cast(clip(round(y / scale) + zero, low, high), to).

    Attributes:
        y: What is quantised.
        scale: One number for all.
        quotient: y / scale.
        zero: Zero point.
        dtype: What it is quantised to.
    """

    y: Op
    scale: float
    quotient: Op
    zero: int
    dtype: DType

    def of(self, quotient: Op) -> Op:
        """The same of another quotient than y / scale, as u8; those of i8 are 128 greater, and moved back."""
        by = 0 if self.dtype is u8 else 128
        new: Op = Round(quotient)
        if zero := self.zero + by:
            new = Add(new, Splat(float(zero), Type(f32, ())))
        low, high = u8.limits
        found = Cast(Clip(new, low=float(low), high=float(high)), to=u8)
        return shifted(found, -by, i8) if by else found


def quantised(op: Op, constants: Constants) -> Quantisation | None:
    """The parts of a quantisation to i8 or u8 by one scale; None of anything else."""
    match op:
        case Cast(x=Clip(x=sum_, low=low, high=high), to=to) if to in (i8, u8) and (low, high) == to.limits:
            pass
        case _:
            return None
    zero, rounded = 0, sum_
    match sum_:
        case Add(a=Round() as rounded, b=b) if (found := constants(b)) is not None and found.size == 1:
            zero = int(found.reshape(-1)[0])
        case _:
            pass
    match rounded:
        case Round(x=Div(a=y, b=divisor) as quotient) if y.dtype is f32 and y.shape == op.shape:
            scale = constants(divisor)
        case _:
            return None
    if scale is None or scale.size != 1 or not float(scale.reshape(-1)[0]) > 0:
        return None
    return Quantisation(y, float(scale.reshape(-1)[0]), quotient, zero, op.dtype)
