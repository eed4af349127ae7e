"""Ops that move elements without computing with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from dlc.base.extents import Undecided, bounds, capacity, divided, is_open, larger
from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, comp, grid, nearest, same
from dlc.kernel.expr import Axis, Const, Expr, apply, select
from dlc.kernel.nest import Param
from dlc.ops.pointwise import at, broadcast, literal


class Reshape(Op):
    """The elements of x in row-major order, in shape `to` (no -1: sizes are known)."""

    exact: ClassVar[bool] = True
    x: Op
    to: tuple[int, ...] = ()

    def define(self, *params: Any) -> Comp:
        (x,) = params
        if any(d < 0 for d in self.to):
            raise ShapeError(f"shape {list(self.to)} has a negative dimension")
        if math.prod(self.to) != x.type.size:
            raise ShapeError(f"{x.type} has {x.type.size} elements, {list(self.to)} has {math.prod(self.to)}")
        i = grid(self.to)
        return comp(i, x[_reshaped(i, x.shape)])

    def evaluate(self, *args: Array) -> Any:
        return args[0].reshape(self.to)


def _reshaped(index: Sequence[Axis], shape: Sequence[int]) -> tuple[Expr, ...]:
    """Subscripts into `shape` of the element that row-major order puts at `index`.

    Runs of dimensions with equal products are translated on their own: [n,c,h,w] → [n,c,h·w] leaves n and c alone.
    """
    if math.prod(shape) == 0:
        return tuple(Const(0) for _ in shape)
    out: list[Expr] = []
    a = b = 0
    while b < len(shape):
        a1, b1 = a, b + 1
        left, right = 1, shape[b]
        while left != right:
            if a1 < len(index) and (b1 == len(shape) or _grows(left, right)):
                left *= index[a1].extent
                a1 += 1
            else:
                right *= shape[b1]
                b1 += 1
        flat: Expr = Const(0)
        for axis in index[a:a1]:
            flat = axis if flat == Const(0) else flat * axis.extent + axis
        for d, extent in enumerate(shape[b:b1], b):
            rest = math.prod(shape[d + 1 : b1])
            place = flat // rest
            out.append(place if not out or rest * extent == right else place % extent)
        a, b = a1, b1
    return tuple(out)


def _grows(left: int, right: int) -> bool:
    """Whether a product of dimensions still has to grow to be equal to another."""
    try:
        return left < right
    except Undecided:
        return divided(right, left) is not None or capacity(left) < capacity(right)


class Transpose(Op):
    """y[i₀, i₁, …] = x with dimension perm[d] of x as dimension d of y."""

    exact: ClassVar[bool] = True
    x: Op
    perm: tuple[int, ...] = ()

    def define(self, *params: Any) -> Comp:
        (x,) = params
        if sorted(self.perm) != list(range(len(x.shape))):
            raise ShapeError(f"{self.perm} is not a permutation of the {len(x.shape)} dimensions of {x.type}")
        i = grid([x.shape[p] for p in self.perm])
        back = {p: i[d] for d, p in enumerate(self.perm)}
        return comp(i, x[tuple(back[d] for d in range(len(i)))])

    def evaluate(self, *args: Array) -> Any:
        return np.transpose(args[0], self.perm)


class Concat(Op):
    """The operands behind each other along `axis`."""

    exact: ClassVar[bool] = True
    xs: tuple[Op, ...]
    axis: int = 0

    def define(self, *params: Any) -> Sequence[Comp]:
        xs: tuple[Param, ...] = params[0]
        first = xs[0].shape
        if not 0 <= self.axis < len(first):
            raise ShapeError(f"axis {self.axis} of {xs[0].type}")
        for x in xs[1:]:
            same(len(first), len(x.shape), "ranks")
            for d, (p, q) in enumerate(zip(first, x.shape, strict=True)):
                if d != self.axis:
                    same(p, q, f"dimensions {d}")
        into = [*first]
        into[self.axis] = sum(x.shape[self.axis] for x in xs)
        out: list[Comp] = []
        offset = 0
        for x in xs:
            i = grid(x.shape)
            index = tuple(a + offset if d == self.axis else a for d, a in enumerate(i))
            out.append(comp(index, x[i], into=into, over=i))
            offset += x.shape[self.axis]
        return out

    def evaluate(self, *args: Array) -> Any:
        return np.concatenate(args, self.axis)


class Slice(Op):
    """y[i] = x[starts + i·steps], `sizes` elements per dimension; steps may be negative."""

    exact: ClassVar[bool] = True
    x: Op
    starts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    def define(self, *params: Any) -> Comp:
        (x,) = params
        steps = self.steps or (1,) * len(x.shape)
        if not len(self.starts) == len(self.sizes) == len(steps) == len(x.shape):
            raise ShapeError(f"starts, sizes and steps must have one number for each dimension of {x.type}")
        for d, (start, size, step) in enumerate(zip(self.starts, self.sizes, steps, strict=True)):
            last = start + (size - 1) * step
            if step == 0:
                raise ShapeError(f"a step of 0 in dimension {d} of {x.type}")
            if is_open((start, size, x.shape[d])):
                # Where a remainder decides the last one, it is the kernel whose subscripts are proved.
                inside = (start >= 0, last < x.shape[d]) if step > 0 else (bounds(last)[1] >= 0, start < x.shape[d])
                if not all(inside):
                    raise ShapeError(f"elements {start} to {last} of dimension {d} of {x.type}")
            elif size < 0 or (size and not (0 <= start < x.shape[d] and 0 <= last < x.shape[d])):
                raise ShapeError(f"elements {start} to {last} of dimension {d} of {x.type}")
        i = grid(self.sizes)
        place = [a * step + start for a, step, start in zip(i, steps, self.starts, strict=True)]
        for d, (start, size, step) in enumerate(zip(self.starts, self.sizes, steps, strict=True)):
            if step < 0 and is_open((start, size)):  # bounds of subscripts know no relation of a start and an end
                place[d] = apply("max", place[d], 0)
        return comp(i, x[tuple(place)])

    def evaluate(self, *args: Array) -> Any:
        steps = self.steps or (1,) * args[0].ndim
        parts: list[slice] = []
        for start, size, step in zip(self.starts, self.sizes, steps, strict=True):
            stop = start + size * step
            parts.append(slice(start, None if stop < 0 else stop, step))
        return args[0][tuple(parts)].reshape(self.sizes)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # A map over the operand, which is never in memory where it is added to others; with steps it has holes.
        if any(step != 1 for step in self.steps):
            return None
        behind = (e - a - n for e, a, n in zip(self.x.shape, self.starts, self.sizes, strict=True))
        pads = (*self.starts, *behind)
        return [None if g is None else Pad(g, pads=pads) for g in seeds]


class Pad(Op):
    """x with pads[d] elements before and pads[rank + d] behind dimension d; negative pads crop.

    mode: "constant" (`value`), "edge" (nearest element), "reflect" (mirror without repeating the edge) or "wrap".
    """

    exact: ClassVar[bool] = True
    x: Op
    pads: tuple[int, ...] = ()
    value: float | int | bool = 0.0
    mode: Literal["constant", "edge", "reflect", "wrap"] = "constant"

    def define(self, *params: Any) -> Comp:
        (x,) = params
        rank = len(x.shape)
        same(len(self.pads), 2 * rank, "pads and twice the dimensions")
        extents = [e + self.pads[d] + self.pads[rank + d] for d, e in enumerate(x.shape)]
        if any(e < 0 for e in extents):
            raise ShapeError(f"pads {self.pads} crop {x.type} to {extents}")
        if self.mode != "constant" and any(not e and extents[d] for d, e in enumerate(x.shape)):
            raise ShapeError(f"mode {self.mode} has no element of {x.type} to repeat")
        i = grid(extents)
        place = [a - self.pads[d] for d, a in enumerate(i)]
        if self.mode != "constant":
            moved = [self.pads[d] != 0 or self.pads[rank + d] != 0 for d in range(rank)]
            folded = (_folded(p, e, self.mode) if m else p for p, e, m in zip(place, x.shape, moved, strict=True))
            return comp(i, x[tuple(folded)])
        guards = [
            apply("and", p >= 0, p < e)
            for d, (p, e) in enumerate(zip(place, x.shape, strict=True))
            if capacity(self.pads[d]) > 0 or capacity(self.pads[rank + d]) > 0
        ]
        body: Expr = x[tuple(place)]
        if guards:
            within = guards[0]
            for g in guards[1:]:
                within = within & g
            body = select(within, body, literal(self.value, x.dtype))
        return comp(i, body)

    def evaluate(self, *args: Array) -> Any:
        rank = args[0].ndim
        begins, ends = self.pads[:rank], self.pads[rank:]
        width = [(max(b, 0), max(e, 0)) for b, e in zip(begins, ends, strict=True)]
        if self.mode == "constant":
            full = np.pad(args[0], width, constant_values=literal(self.value, self.x.dtype))
        else:
            full = np.pad(args[0], width, self.mode)
        # Cropped last: what is repeated comes from the whole of x, and pads on one side may be cropped on the other.
        return full[tuple(slice(max(-b, 0), n - max(-e, 0)) for b, e, n in zip(begins, ends, full.shape, strict=True))]


def _folded(place: Expr, extent: int, mode: str) -> Expr:
    """A subscript outside [0, extent) brought inside by the mode."""
    if mode == "wrap":
        return place % larger(extent, 1)
    if mode == "edge" or extent == 1:
        return nearest(place, extent)
    period = larger(2 * (extent - 1), 1)  # of one element, 0 is the only place, and its remainder by 1
    turned = place % period
    return apply("min", turned, period - turned)


class Expand(Op):
    """x broadcast to shape `to` by numpy's rule; every dimension of `to` is that of the result."""

    exact: ClassVar[bool] = True
    x: Op
    to: tuple[int, ...] = ()

    def define(self, *params: Any) -> Comp:
        (x,) = params
        if broadcast(x.shape, self.to) != self.to:
            raise ShapeError(f"{x.type} does not broadcast to {list(self.to)}")
        i = grid(self.to)
        return comp(i, at(x, i))

    def evaluate(self, *args: Array) -> Any:
        return np.broadcast_to(args[0], self.to)


class Tile(Op):
    """x repeated `repeats[d]` times along dimension d."""

    exact: ClassVar[bool] = True
    x: Op
    repeats: tuple[int, ...] = ()

    def define(self, *params: Any) -> Comp:
        (x,) = params
        same(len(self.repeats), len(x.shape), "repeats and dimensions")
        if any(r < 0 for r in self.repeats):
            raise ShapeError(f"repeats {self.repeats}")
        i = grid([e * r for e, r in zip(x.shape, self.repeats, strict=True)])
        return comp(i, x[tuple(a % e if e else Const(0) for a, e in zip(i, x.shape, strict=True))])

    def evaluate(self, *args: Array) -> Any:
        return np.tile(args[0], self.repeats)


class DepthToSpace(Op):
    """x[N, C, H, W] → [N, C/b², H·b, W·b] with b = `block`.

    In "DCR" order depth varies slowest, in "CRD" channels do.
    """

    x: Op
    block: int = 1
    mode: Literal["DCR", "CRD"] = "DCR"

    def expand(self) -> Op:
        n, c, h, w = _image(self.x)
        b = self.block
        if b < 1 or c % (b * b):
            raise ShapeError(f"{c} channels do not divide into blocks of {b}x{b}")
        inner = (n, b, b, c // (b * b), h, w) if self.mode == "DCR" else (n, c // (b * b), b, b, h, w)
        perm = (0, 3, 4, 1, 5, 2) if self.mode == "DCR" else (0, 1, 4, 2, 5, 3)
        return Reshape(Transpose(Reshape(self.x, to=inner), perm=perm), to=(n, c // (b * b), h * b, w * b))


class SpaceToDepth(Op):
    """x[N, C, H, W] → [N, C·b², H/b, W/b] for b = `block`: the inverse of DepthToSpace in either order."""

    x: Op
    block: int = 1
    mode: Literal["DCR", "CRD"] = "DCR"

    def expand(self) -> Op:
        n, c, h, w = _image(self.x)
        b = self.block
        if b < 1 or h % b or w % b:
            raise ShapeError(f"{h}x{w} does not divide into blocks of {b}x{b}")
        split = Reshape(self.x, to=(n, c, h // b, b, w // b, b))
        perm = (0, 3, 5, 1, 2, 4) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return Reshape(Transpose(split, perm=perm), to=(n, c * b * b, h // b, w // b))


def _image(x: Op) -> tuple[int, int, int, int]:
    match x.shape:
        case (n, c, h, w):
            return n, c, h, w
        case _:
            raise ShapeError(f"x must be [N, C, H, W], not {x.type}")
