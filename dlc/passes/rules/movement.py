"""Ops that only move elements: those that move nothing, and two in a row that are one."""

from __future__ import annotations

from dlc.api.rules import RewriteContext, equation, rule
from dlc.graph.op import Op
from dlc.ops.pool import AveragePool, MaxPool
from dlc.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from dlc.ops.shape import Expand, Pad, Reshape, Slice, Tile, Transpose


@equation(Reshape)
def reshape(op: Reshape) -> Op | None:
    """reshape(x, shape of x) → x; reshape(reshape(x, s), t) → reshape(x, t)."""
    if op.to == op.x.shape:
        return op.x
    return Reshape(op.x.x, to=op.to) if isinstance(op.x, Reshape) else None


@equation(Transpose)
def transpose(op: Transpose) -> Op | None:
    """transpose(x, identity) → x; transpose(transpose(x, p), q) → transpose(x, p∘q)."""
    if op.perm == tuple(range(len(op.perm))):
        return op.x
    match op.x:
        case Transpose(x=x, perm=first):
            return Transpose(x, perm=tuple(first[p] for p in op.perm))
        case _:
            return None


@equation(Transpose)
def transpose_of_ones(op: Transpose) -> Op | None:
    """transpose that moves only dimensions of size 1 → reshape, which moves no data."""
    moved = [p for p in op.perm if op.x.shape[p] != 1]
    return Reshape(op.x, to=op.shape) if moved == sorted(moved) else None


@rule(Reshape)
def reshape_of_transpose(op: Reshape, context: RewriteContext) -> Op | None:
    """reshape(transpose(reshape(x, s), p), t) → the same with the fewest dimensions for the transpose.

    Dimensions of size 1 are left out, and dimensions that stay neighbours are merged.
    """
    match op.x:
        case Transpose(x=Reshape() as x, perm=perm) if context.single(op.x):
            groups = _groups(x.shape, perm)
        case _:
            return None
    if len(groups) == len(perm):
        return None
    order = sorted(groups, key=lambda g: g[0])
    sizes = tuple(_product(x.shape, g) for g in order)
    return Reshape(Transpose(Reshape(x, to=sizes), perm=tuple(order.index(g) for g in groups)), to=op.to)


def _groups(shape: tuple[int, ...], perm: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Runs of dimensions larger than 1 that a permutation keeps together, in the permutation's order."""
    large = [d for d in range(len(shape)) if shape[d] != 1]
    place = {d: k for k, d in enumerate(large)}
    groups: list[tuple[int, ...]] = []
    for d in (p for p in perm if p in place):
        if groups and place[groups[-1][-1]] + 1 == place[d]:
            groups[-1] = (*groups[-1], d)
        else:
            groups.append((d,))
    return groups


def _product(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    size = 1
    for d in dims:
        size *= shape[d]
    return size


@equation(Expand)
def expand(op: Expand) -> Op | None:
    """expand(x, shape of x) → x; expand(expand(x, s), t) → expand(x, t); expand by leading ones only → reshape."""
    if op.to == op.x.shape:
        return op.x
    if isinstance(op.x, Expand):
        return Expand(op.x.x, to=op.to)
    return Reshape(op.x, to=op.to) if op.type.size == op.x.type.size else None


@equation(Slice)
def slice_all(op: Slice) -> Op | None:
    """slice of everything → x."""
    forward = all(step > 0 for step in op.steps)
    return op.x if op.sizes == op.x.shape and forward else None


@equation(Slice)
def slice_of_slice(op: Slice) -> Op | None:
    """slice(slice(x, a, s), b, t) → slice(x, a + b·s, s·t)."""
    match op.x:
        case Slice(x=x, starts=first, steps=inner):
            inner = inner or (1,) * len(first)
            steps = op.steps or (1,) * len(first)
            starts = tuple(a + b * s for a, b, s in zip(first, op.starts, inner, strict=True))
            product = tuple(s * t for s, t in zip(inner, steps, strict=True))
            # Where nothing or one element is taken, start and step say no more than that.
            inside = all(0 <= a < e for a, e in zip(starts, x.shape, strict=True))
            return Slice(x, starts=starts, sizes=op.sizes, steps=product) if inside else None
        case _:
            return None


@equation(Pad)
def pad_nothing(op: Pad) -> Op | None:
    """pad by nothing → x."""
    return None if any(op.pads) else op.x


@equation(Pad)
def pad_of_pad(op: Pad) -> Op | None:
    """pad(pad(x, p), q) → pad(x, p + q) for the same constant value and no cropping."""
    match op:
        case Pad(x=Pad(x=x, pads=p, value=v, mode="constant"), pads=q, mode="constant"):
            alike = repr(v) == repr(op.value) and all(n >= 0 for n in (*p, *q))
            return Pad(x, pads=tuple(a + b for a, b in zip(p, q, strict=True)), value=v) if alike else None
        case _:
            return None


@equation(Tile)
def tile_once(op: Tile) -> Op | None:
    """tile(x, ones) → x; tile of dimensions of size 1 only → expand(x)."""
    if all(r == 1 for r in op.repeats):
        return op.x
    spread = all(r == 1 or e == 1 for r, e in zip(op.repeats, op.x.shape, strict=True))
    return Expand(op.x, to=op.shape) if spread else None


@equation(ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd)
def reduce_nothing(op: ReduceSum | ReduceMean | ReduceMax | ReduceMin | ReduceProd) -> Op | None:
    """reduction over dimensions of size 1 → reshape(x)."""
    return Reshape(op.x, to=op.shape) if all(op.x.shape[a] == 1 for a in op.axes) else None


@rule(ReduceSum, ReduceMax, ReduceMin, ReduceProd, ReduceMean)
def reduce_of_reduce(
    op: ReduceSum | ReduceMax | ReduceMin | ReduceProd | ReduceMean, context: RewriteContext
) -> Op | None:
    """reduce(reduce(x, axes a), axes b) → reduce(x, axes a and b)."""
    inner = op.x
    if not isinstance(inner, _REDUCTIONS) or type(inner) is not type(op) or not context.single(inner):
        return None
    left = [d for d in range(len(inner.x.shape)) if inner.keep or d not in inner.axes]
    axes = tuple(sorted({*inner.axes, *(left[a] for a in op.axes)}))
    if not op.dtype.is_float and isinstance(op, ReduceMean):
        return None  # integers round after each division
    merged = type(inner)(inner.x, axes=axes, keep=op.keep)
    return merged if merged.shape == op.shape else Reshape(merged, to=op.shape)


_REDUCTIONS = (ReduceSum, ReduceMax, ReduceMin, ReduceProd, ReduceMean)


@equation(MaxPool, AveragePool)
def pool_of_one(op: MaxPool | AveragePool) -> Op | None:
    """pool with window 1, stride 1 and no padding → x."""
    one = all(k == 1 for k in op.window) and all(s == 1 for s in op.stride) and not any(op.pads)
    return op.x if one and op.shape == op.x.shape else None


RULES = (
    reshape,
    transpose,
    transpose_of_ones,
    reshape_of_transpose,
    expand,
    slice_all,
    slice_of_slice,
    pad_nothing,
    pad_of_pad,
    tile_once,
    reduce_nothing,
    reduce_of_reduce,
    pool_of_one,
)
