"""Convolutions of any spatial rank. With a bias they are compositions, so that the contraction stays pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, axes, comp, grid, inside, same
from dlc.kernel.expr import Axis, Expr, apply, both
from dlc.ops.elementwise import Add
from dlc.ops.shape import Reshape
from dlc.ops.window import defaulted, padded_only, row_major, sliding, window_size


class Conv(Op):
    """y[n,f,o…] = Σ_{c,k…} x[n,c,o·stride+k·dilation-pad …] · w[f,c,k…] (+ b[f]), zero-padded, any spatial rank.

    Cross-correlation, as ONNX Conv 11. `pads` holds all begins, then all ends. With groups, w is [F, C/group, K…] and
    output channel f reads the input channels of its group only. () as stride, pads or dilation means 1, 0, 1.
    """

    x: Op
    w: Op
    b: Op | None = None
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    group: int = 1

    def expand(self) -> Op | None:
        if self.b is None:
            return None
        bare = Conv(self.x, self.w, stride=self.stride, pads=self.pads, dilation=self.dilation, group=self.group)
        same(self.b.type.size, bare.shape[1], "bias and output channels")
        return Add(bare, Reshape(self.b, to=(bare.shape[1], *(1,) * self._rank)))

    @property
    def _rank(self) -> int:
        return len(self.x.shape) - 2

    def define(self, *params: Any) -> Comp:
        x, w, _ = params
        return windows_times(self, x, w, lambda a, b: a * b)

    def evaluate(self, *args: Array) -> Any:
        y = windows_matmul(self, args[0], args[1])
        return y if self.b is None else y + args[2].reshape(-1, *(1,) * self._rank)


class Sliding(Protocol):
    """What a convolution is but for the type of its sums: data x[n,c,i…], weights w[f,c,k…] and how windows lie."""

    @property
    def x(self) -> Op: ...
    @property
    def w(self) -> Op: ...
    @property
    def stride(self) -> tuple[int, ...]: ...
    @property
    def pads(self) -> tuple[int, ...]: ...
    @property
    def dilation(self) -> tuple[int, ...]: ...
    @property
    def group(self) -> int: ...


def figures(op: Sliding) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Stride, pads, dilation and output extents per spatial dimension."""
    x, w, rank = op.x.shape, op.w.shape, len(op.x.shape) - 2
    if rank < 0 or len(w) != rank + 2:
        raise ShapeError(f"data {op.x.type} and weights {op.w.type} must have one rank of at least 2")
    if op.group < 1 or w[0] % op.group or x[1] % op.group:
        raise ShapeError(f"{x[1]} input and {w[0]} output channels do not divide into {op.group} groups")
    same(x[1] // op.group, w[1], "channels per group")
    stride = defaulted(op.stride, rank, 1, "stride")
    pads = defaulted(op.pads, 2 * rank, 0, "pads")
    dilation = defaulted(op.dilation, rank, 1, "dilation")
    out = tuple(window_size(x[d + 2], w[d + 2], stride[d], pads[d], pads[rank + d], dilation[d]) for d in range(rank))
    return stride, pads, dilation, out


def windows_times(op: Sliding, x: Any, w: Any, term: Callable[[Expr, Expr], Expr]) -> Comp:
    """The sum over every window of x of `term` of an element and its weight."""
    stride, pads, dilation, out = figures(op)
    n, c = axes("n c", x.shape[0], w.shape[1])
    o, k = grid(out, "o"), grid(w.shape[2:], "k")
    place = tuple(o[d] * stride[d] + k[d] * dilation[d] - pads[d] for d in range(len(o)))
    guard = padded_only(place, x.shape[2:], pads)
    if op.group == 1:
        (f,) = axes("f", w.shape[0])
        return comp((n, f, *o), term(x[n, c, *place], w[f, c, *k]), sum=(c, *k), where=guard)
    g, f = axes("g f", op.group, w.shape[0] // op.group)
    body = term(x[n, g * c.extent + c, *place], w[g * f.extent + f, c, *k])
    into = (x.shape[0], w.shape[0], *out)
    return comp((n, g * f.extent + f, *o), body, sum=(c, *k), where=guard, into=into, over=(n, g, f, *o))


def windows_matmul(op: Sliding, x: Array, w: Array) -> Array:
    """The value of a convolution on arrays of one type."""
    stride, pads, dilation, out = figures(op)
    rank, group = len(out), op.group
    windows = sliding(x, w.shape[2:], stride, pads, dilation, 0)  # n c o… k…
    n, per = x.shape[0], w.shape[1]
    split = windows.reshape(n, group, per, *windows.shape[2:])  # n g c o… k…
    order = (1, 2, *range(3 + rank, 3 + 2 * rank), 0, *range(3, 3 + rank))  # g c k… n o…
    columns = split.transpose(order).reshape(group, per * math.prod(w.shape[2:]), n * math.prod(out))
    y = np.matmul(w.reshape(group, w.shape[0] // group, per * math.prod(w.shape[2:])), columns)
    return np.moveaxis(y.reshape(w.shape[0], n, *out), 1, 0)


class ConvTranspose(Op):
    """The adjoint of Conv: y[n,f,o] = Σ x[n,c,i] · w[c,f,k] (+ b[f]) over all i·stride + k·dilation - pad = o.

    As ONNX ConvTranspose 11: w is [C, F/group, K…]; output extent = (in-1)·stride + (K-1)·dilation + 1 - pads +
    output_pad. Stated as a gather, so that every output is written once.
    """

    x: Op
    w: Op
    b: Op | None = None
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_pad: tuple[int, ...] = ()
    group: int = 1

    def expand(self) -> Op | None:
        if self.b is None:
            return None
        attrs = dict(self.attrs)
        bare = ConvTranspose(self.x, self.w, **attrs)
        same(self.b.type.size, bare.shape[1], "bias and output channels")
        return Add(bare, Reshape(self.b, to=(bare.shape[1], *(1,) * (len(self.x.shape) - 2))))

    def _figures(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        x, w, rank = self.x.shape, self.w.shape, len(self.x.shape) - 2
        if rank < 0 or len(w) != rank + 2:
            raise ShapeError(f"data {self.x.type} and weights {self.w.type} must have one rank of at least 2")
        same(x[1], w[0], "input channels")
        if self.group < 1 or x[1] % self.group:
            raise ShapeError(f"{x[1]} channels do not divide into {self.group} groups")
        stride = defaulted(self.stride, rank, 1, "stride")
        pads = defaulted(self.pads, 2 * rank, 0, "pads")
        dilation = defaulted(self.dilation, rank, 1, "dilation")
        extra = defaulted(self.output_pad, rank, 0, "output_pad")
        out = tuple(
            (x[d + 2] - 1) * stride[d] + (w[d + 2] - 1) * dilation[d] + 1 - pads[d] - pads[rank + d] + extra[d]
            for d in range(rank)
        )
        if any(s < 1 for s in (*stride, *dilation)) or any(o < 0 for o in out):
            raise ShapeError(f"output extents {out} with stride {stride} and dilation {dilation}")
        return stride, pads, dilation, out

    def define(self, *params: Any) -> Comp:
        x, w, _ = params
        stride, pads, dilation, out = self._figures()
        n, g, f, c = axes("n g f c", x.shape[0], self.group, w.shape[1], x.shape[1] // self.group)
        o, k = grid(out, "o"), grid(w.shape[2:], "k")
        place, guard = _windows_at(o, k, stride, pads, dilation, x.shape[2:])
        channel: Expr = g * c.extent + c
        body = x[n, channel, *place] * w[channel, f, *k]
        into = (x.shape[0], self.group * w.shape[1], *out)
        over: tuple[Axis, ...] = (n, g, f, *o)
        return comp((n, g * f.extent + f, *o), body, sum=(c, *k), where=guard, into=into, over=over)

    def evaluate(self, *args: Array) -> Any:
        x, w = args[0], args[1]
        stride, pads, dilation, out = self._figures()
        n, rank, group = x.shape[0], x.ndim - 2, self.group
        split = x.reshape(n, group, w.shape[0] // group, math.prod(x.shape[2:]))
        taps = w.reshape(group, w.shape[0] // group, math.prod(w.shape[1:]))
        parts = np.einsum("ngcp,gcq->ngqp", split, taps).reshape(n, group * w.shape[1], *w.shape[2:], *x.shape[2:])
        span = [
            (i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(x.shape[2:], stride, w.shape[2:], dilation, strict=True)
        ]
        room = [max(o + pads[d] + pads[rank + d], span[d]) for d, o in enumerate(out)]
        full = np.zeros((n, group * w.shape[1], *room), x.dtype)
        for k in np.ndindex(*w.shape[2:]) if x.size else ():
            where = tuple(
                slice(k[d] * dilation[d], k[d] * dilation[d] + (x.shape[d + 2] - 1) * stride[d] + 1, stride[d])
                for d in range(rank)
            )
            full[(slice(None), slice(None), *where)] += parts[(slice(None), slice(None), *k)]
        crop = tuple(slice(pads[d], pads[d] + out[d]) for d in range(rank))
        y = full[(slice(None), slice(None), *crop)]
        return y if self.b is None else y + args[2].reshape(-1, *(1,) * rank)


class Col2Im(Op):
    """y[n,c,i…] = Σ x[n, c·K + k, l] over the windows l and their elements k with l·stride + k·dilation - pad = i.

    ONNX Col2Im 18, the adjoint of taking windows apart: x is [N, C·K, L] with K elements in a window of shape `block`
    and L windows over an image of shape `image`, both numbered in row-major order; y is [N, C, *image].
    """

    x: Op
    image: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()

    def define(self, *params: Any) -> Comp:
        (x,) = params
        rank, per = len(self.image), math.prod(self.block)
        if len(x.shape) != 3 or len(self.block) != rank or per < 1 or x.shape[1] % per:
            raise ShapeError(f"{x.type} does not consist of windows {list(self.block)} of {list(self.image)}")
        stride = defaulted(self.stride, rank, 1, "stride")
        pads = defaulted(self.pads, 2 * rank, 0, "pads")
        dilation = defaulted(self.dilation, rank, 1, "dilation")
        counts = [
            window_size(e, self.block[d], stride[d], pads[d], pads[rank + d], dilation[d])
            for d, e in enumerate(self.image)
        ]
        same(x.shape[2], math.prod(counts), f"windows of {list(self.image)} and columns")
        n, c = axes("n c", x.shape[0], x.shape[1] // per)
        i, k = grid(self.image, "i"), grid(self.block, "k")
        place, guard = _windows_at(i, k, stride, pads, dilation, counts)
        element = x[n, c * per + row_major(k, self.block), row_major(place, counts)]
        return comp((n, c, *i), element, sum=k, where=guard)


def _windows_at(
    i: Sequence[Axis],
    k: Sequence[Axis],
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    counts: Sequence[int],
) -> tuple[list[Expr], Expr | None]:
    """The window whose element k lies at i along each dimension, and where there is one."""
    guard: Expr | None = None
    place: list[Expr] = []
    for d in range(len(i)):
        reach = i[d] + pads[d] - k[d] * dilation[d]
        place.append(reach // stride[d])
        if stride[d] > 1:
            guard = both(guard, apply("eq", reach % stride[d], 0))
        guard = both(guard, inside((place[-1], counts[d])))
    return place, guard
