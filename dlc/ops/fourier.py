"""Discrete Fourier transforms as products with matrices. Complex numbers are pairs along the last dimension.

A length may be known at run time only: the matrix is then computed in every call.
"""

from __future__ import annotations

import math
from typing import Any

from dlc.base.extents import bounds, is_open, shown, smaller
from dlc.base.types import DType
from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, comp, grid, same
from dlc.kernel.expr import Const, Expr, apply, lift, select
from dlc.ops.linear import MatMul
from dlc.ops.shape import Reshape, Slice, Transpose


class DftMatrix(Op):
    """m[n,p,k,q]: what part p of element n contributes to part q of element k of a transform: e^(∓2πi·n·k/length).

    Parts are real (0) and imaginary (1), as many as `parts` before and after; `extents` is how many elements there are
    before and after. The inverse has the sign + and is divided by the length; `halved` input is the first half of a
    conjugate symmetric one, whose elements but the first and the middle one count twice.
    """

    length: int
    extents: tuple[int, int]
    parts: tuple[int, int]
    inverse: bool
    halved: bool
    to: DType

    def define(self, *params: Any) -> tuple[Comp, ...]:
        if bounds(self.length)[0] < 1:
            raise ShapeError(f"a transform of length {shown(self.length)}")
        n, k = grid(self.extents, "n")
        length = lift(self.length)
        step, part = _per(2 * math.pi, self.length), _per(1.0, self.length)
        # Remainders of integers are exact, whatever the size of the product.
        angle = apply("f64", n * k % length) * step
        scale: Expr = part if self.inverse else Const(1.0)
        if self.halved:
            alone = apply("or", apply("eq", n, 0), apply("eq", n * 2, length))
            scale = select(alone, scale, scale * 2.0)
        into = (n.extent, self.parts[0], k.extent, self.parts[1])
        out: list[Comp] = []
        for p in range(self.parts[0]):
            for q in range(self.parts[1]):
                value = apply("cos" if p == q else "sin", angle)
                if p != q and (p < q) != self.inverse:
                    value = -value
                out.append(comp((n, p, k, q), apply(self.to.name, value * scale), into=into, over=(n, k)))
        return tuple(out)


def _per(total: float, length: int) -> Expr:
    """The quotient of a number and a length."""
    return Const(total) / apply("f64", lift(length)) if is_open((length,)) else Const(total / length)


class Dft(Op):
    """y[…,k,…,:] = Σₙ x[…,n,…,:] · e^(-2πi·n·k/length) along `axis` (ONNX DFT 20); the inverse, with +, / length.

    The last dimension of x is 2, or 1 for real numbers; that of y is 2. x is cut, or continued with zeros, to `length`.
    With `half` only the first length // 2 + 1 elements are computed, which for real x determine the others; an inverse
    starts from such elements and y is real.
    """

    x: Op
    axis: int
    length: int
    inverse: bool = False
    half: bool = False

    def expand(self) -> Op:
        rank = len(self.x.shape)
        if rank < 2 or not 0 <= self.axis < rank - 1 or self.x.shape[-1] not in (1, 2) or not self.x.dtype.is_float:
            raise ShapeError(f"a Fourier transform along axis {self.axis} of {self.x.type}")
        if bounds(self.length)[0] < 1:
            raise ShapeError(f"a Fourier transform of length {shown(self.length)}")
        some = self.length // 2 + 1
        taken = smaller(self.x.shape[self.axis], some if self.inverse and self.half else self.length)
        count = some if self.half and not self.inverse else self.length
        extents, parts = (taken, count), (self.x.shape[-1], 1 if self.inverse and self.half else 2)
        halved = self.inverse and self.half
        matrix = DftMatrix(self.length, extents, parts, self.inverse, halved, self.x.dtype)
        x = self.x
        if taken != x.shape[self.axis]:
            sizes = tuple(taken if d == self.axis else e for d, e in enumerate(x.shape))
            x = Slice(x, starts=(0,) * rank, sizes=sizes)
        others = [d for d in range(rank - 1) if d != self.axis]
        moved = Transpose(x, perm=(*others, self.axis, rank - 1))
        outer = tuple(self.x.shape[d] for d in others)
        rows = Reshape(moved, to=(math.prod(outer), taken * parts[0]))
        product = MatMul(rows, Reshape(matrix, to=(taken * parts[0], count * parts[1])))
        back = [*range(self.axis), rank - 2, *range(self.axis, rank - 2), rank - 1]
        return Transpose(Reshape(product, to=(*outer, count, parts[1])), perm=tuple(back))


class Frames(Op):
    """y[b,f,n,c] = x[b,f·step+n,c] · window[n] for n < length: overlapping pieces of a signal [B, L, C]."""

    x: Op
    window: Op | None = None
    length: int = 1
    step: int = 1

    def define(self, *params: Any) -> Comp:
        x, window = params
        if len(x.shape) != 3 or self.step < 1 or self.length < 1 or self.length > x.shape[1]:
            raise ShapeError(f"pieces of {self.length}, {self.step} apart, of {x.type}")
        count = (x.shape[1] - self.length) // self.step + 1
        b, f, n, c = grid((x.shape[0], count, self.length, x.shape[2]))
        element = x[b, f * self.step + n, c]
        if window is None:
            return comp((b, f, n, c), element)
        same(len(window.shape), 1, "dimensions of a window")
        same(window.shape[0], self.length, "lengths of the window and of the pieces")
        return comp((b, f, n, c), element * window[n])
