"""Sums of products of bytes, in 32 bits: what quantised convolutions and matrix products are made of.

Zero points are not here: what they add is the same for all elements of an output channel, or a sum over rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.base.types import i32
from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, axes, comp, grid, same
from dlc.kernel.expr import Expr, apply
from dlc.ops.linear.convolution import windows_matmul, windows_times
from dlc.ops.pointwise import at, broadcast


def _product(a: Expr, b: Expr) -> Expr:
    return apply("i32", a) * apply("i32", b)


def _bytes(*operands: Op) -> None:
    for x in operands:
        if not x.dtype.is_integer or x.dtype.bits != 8:
            raise ShapeError(f"operands must be 8-bit integers, not {x.type}")


class ConvInteger(Op):
    """y[n,f,o…] = Σ_{c,k…} i32(x[n,c,o·stride+k·dilation-pad …]) · i32(w[f,c,k…]): a `conv` of bytes.

    x and w are i8 or u8 each; sums have 32 bits, and wrap. What lies in the padding adds 0.
    """

    x: Op
    w: Op
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    group: int = 1

    def define(self, *params: Any) -> Comp:
        _bytes(self.x, self.w)
        x, w = params
        return windows_times(self, x, w, _product)

    def evaluate(self, *args: Array) -> Any:
        x, w = (a.astype(i32.numpy) for a in args)
        return windows_matmul(self, x, w)


class MatMulInteger(Op):
    """y[…,m,n] = Σₖ i32(a[…,m,k]) · i32(b[…,k,n]): a product of matrices of bytes, summed in 32 bits.

    a and b are i8 or u8 each and have at least two dimensions, of which the leading ones broadcast.
    """

    a: Op
    b: Op

    def define(self, *params: Any) -> Comp:
        a, b = params
        _bytes(self.a, self.b)
        if len(a.shape) < 2 or len(b.shape) < 2:
            raise ShapeError(f"a product of {self.a.type} and {self.b.type}: both need at least two dimensions")
        inner = same(a.shape[-1], b.shape[-2], "inner dimensions")
        batch = grid(broadcast(a.shape[:-2], b.shape[:-2]), "b")
        m, n, k = axes("m n k", a.shape[-2], b.shape[-1], inner)
        return comp((*batch, m, n), _product(at(a, (*batch, m, k)), at(b, (*batch, k, n))), sum=(k,))

    def evaluate(self, *args: Array) -> Any:
        return np.matmul(*(a.astype(i32.numpy) for a in args))
