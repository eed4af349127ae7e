"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.base.extents import Dim, divided
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import shape as s
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import axes, axis, cast, cut, expanded, joined, promoted, reshaped, transposed

MAX_INT = 1 << 62


def inferred(x: Op, size: Sequence[Any]) -> tuple[Any, ...]:
    """A shape with its -1 computed."""
    wanted = list(size)
    unknown = [k for k, d in enumerate(wanted) if not isinstance(d, Dim) and d == -1]
    if not unknown:
        return tuple(wanted)
    rest: Any = math.prod(d for k, d in enumerate(wanted) if k != unknown[0])
    found = divided(x.type.size, rest) if not (isinstance(rest, int) and rest == 0) else 0
    if found is None:
        raise ShapeError(f"{x.type.text} cannot be reshaped to {list(size)}")
    wanted[unknown[0]] = found
    return tuple(wanted)


@aten("view.default", "view", "reshape", "_unsafe_view", "_reshape_alias")
def view(x: Op, size: Any, *ignored: Any) -> Op:
    """The elements in another shape."""
    del ignored
    if isinstance(size, str):
        raise Unsupported("a view as another element type")
    return reshaped(x, inferred(x, size))


@aten("view_as", "reshape_as")
def view_as(x: Op, other: Op) -> Op:
    """The elements in the shape of another tensor."""
    return reshaped(x, other.shape)


@aten("flatten.using_ints", "flatten")
def flatten(x: Op, start_dim: int = 0, end_dim: int = -1) -> Op:
    """Dimensions start_dim to end_dim as one."""
    rank = len(x.shape)
    if rank == 0:
        return reshaped(x, (1,))
    first, last = axis(start_dim, rank), axis(end_dim, rank)
    return reshaped(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


@aten("unflatten.int", "unflatten")
def unflatten(x: Op, dim: int, sizes: Sequence[Any]) -> Op:
    """One dimension as several."""
    d = axis(dim, len(x.shape))
    part = list(sizes)
    if -1 in [v for v in part if isinstance(v, int)]:
        k = part.index(-1)
        part[k] = divided(x.shape[d], math.prod(v for j, v in enumerate(part) if j != k))
    return reshaped(x, (*x.shape[:d], *part, *x.shape[d + 1 :]))


@aten("squeeze.default", "squeeze.dim", "squeeze.dims", "squeeze")
def squeeze(x: Op, dim: Any = None) -> Op:
    """Without dimensions of 1."""
    chosen = axes(dim, len(x.shape)) if dim is not None else tuple(range(len(x.shape)))
    return reshaped(x, tuple(d for k, d in enumerate(x.shape) if k not in chosen or d != 1))


@aten("unsqueeze")
def unsqueeze(x: Op, dim: int) -> Op:
    """With a further dimension of 1."""
    d = axis(dim, len(x.shape) + 1)
    return reshaped(x, (*x.shape[:d], 1, *x.shape[d:]))


@aten("permute")
def permute(x: Op, dims: Sequence[int]) -> Op:
    """Dimensions in another order."""
    return transposed(x, axes(dims, len(x.shape)) if len(dims) else ())


@aten("transpose.int", "transpose", "swapaxes", "swapdims")
def transpose(x: Op, dim0: int, dim1: int) -> Op:
    """Two dimensions exchanged."""
    rank = len(x.shape)
    if rank == 0:
        return x
    perm = list(range(rank))
    a, b = axis(dim0, rank), axis(dim1, rank)
    perm[a], perm[b] = b, a
    return transposed(x, perm)


@aten("t", "numpy_T", "matrix_H", "mT")
def matrix_transpose(x: Op) -> Op:
    """A matrix, transposed."""
    return x if len(x.shape) < 2 else transpose(x, -2, -1)


@aten("movedim.int", "movedim.intlist", "movedim")
def movedim(x: Op, source: Any, destination: Any) -> Op:
    """Dimensions at other places."""
    rank = len(x.shape)
    a, b = axes(source, rank), axes(destination, rank)
    rest = iter([d for d in range(rank) if d not in a])
    place = dict(zip(b, a, strict=True))
    return transposed(x, [place[d] if d in place else next(rest) for d in range(rank)])


@aten("expand")
def expand(x: Op, size: Sequence[Any], implicit: bool = False) -> Op:
    """Broadcast to a shape; -1 keeps a dimension."""
    del implicit
    lead = len(size) - len(x.shape)
    to = tuple(x.shape[k - lead] if not isinstance(d, Dim) and d == -1 else d for k, d in enumerate(size))
    return expanded(x, to)


@aten("expand_as")
def expand_as(x: Op, other: Op) -> Op:
    """Broadcast to the shape of another tensor."""
    return expanded(x, other.shape)


@aten("broadcast_tensors")
def broadcast_tensors(xs: Sequence[Op]) -> list[Op]:
    """Tensors in their common shape."""
    from dlc.ops.pointwise import broadcast

    shape = broadcast(*(x.shape for x in xs))
    return [expanded(x, shape) for x in xs]


@aten("repeat", "tile")
def repeat(x: Op, repeats: Sequence[Any]) -> Op:
    """Repeated along its dimensions."""
    lead = max(len(repeats) - len(x.shape), 0)
    x = reshaped(x, (*(1,) * lead, *x.shape))
    counts = (*(1,) * (len(x.shape) - len(repeats)), *repeats)
    return x if all(r == 1 for r in counts) else s.Tile(x, repeats=counts)


def repeated(x: Op, d: int, times: Any) -> Op:
    """Each element along an axis several times."""
    before, after = x.shape[: d + 1], x.shape[d + 1 :]
    wide = expanded(reshaped(x, (*before, 1, *after)), (*before, times, *after))
    return reshaped(wide, (*x.shape[:d], x.shape[d] * times, *after))


@aten("repeat_interleave.self_int")
def repeat_interleave(x: Op, repeats: int, dim: int | None = None, output_size: Any = None) -> Op:
    """Each element repeated, one after the other."""
    del output_size
    if dim is None:
        x, dim = reshaped(x, (x.type.size,)), 0
    d = axis(dim, len(x.shape))
    return repeated(x, d, repeats)


@aten("cat", "concat", "concatenate")
def cat(tensors: Sequence[Op], dim: int = 0) -> Op:
    """Tensors one after the other; empty vectors among larger tensors do not count."""
    kept = [x for x in tensors if x.shape != (0,)] or list(tensors[:1])
    dtype = promoted(*tensors)
    return joined([cast(x, dtype) for x in kept], axis(dim, len(kept[0].shape)))


@aten("stack")
def stack(tensors: Sequence[Op], dim: int = 0) -> Op:
    """Tensors along a new dimension."""
    dtype = promoted(*tensors)
    return joined([unsqueeze(cast(x, dtype), dim) for x in tensors], axis(dim, len(tensors[0].shape) + 1))


@aten("split_with_sizes", "split.sizes")
def split_with_sizes(x: Op, sizes: Sequence[Any], dim: int = 0) -> list[Op]:
    """Parts of given sizes."""
    d, start = axis(dim, len(x.shape)), 0
    parts: list[Op] = []
    for size in sizes:
        parts.append(cut(x, d, start, size))
        start = start + size
    return parts


@aten("split.Tensor", "split")
def split(x: Op, size: Any, dim: int = 0) -> list[Op]:
    """Parts of one size, the last one with what is left."""
    if isinstance(size, (list, tuple)):
        return split_with_sizes(x, size, dim)
    total = x.shape[axis(dim, len(x.shape))]
    if isinstance(total, Dim):
        raise Unsupported("a split of a dimension that has no size yet")
    return split_with_sizes(x, [min(size, total - k) for k in range(0, total, size)] or [0], dim)


@aten("chunk")
def chunk(x: Op, chunks: int, dim: int = 0) -> list[Op]:
    """A number of parts, of sizes as equal as may be."""
    total = x.shape[axis(dim, len(x.shape))]
    if isinstance(total, Dim):
        part = divided(total, chunks)
        if part is None:
            raise Unsupported("chunks of a dimension that has no size yet")
        return split_with_sizes(x, [part] * chunks, dim)
    return split(x, max(-(-total // chunks), 1), dim)


@aten("unbind.int", "unbind")
def unbind(x: Op, dim: int = 0) -> list[Op]:
    """All slices along a dimension."""
    return [select(x, dim, k) for k in range(x.shape[axis(dim, len(x.shape))])]


@aten("select.int", "select")
def select(x: Op, dim: int, index: Any) -> Op:
    """One slice, without the dimension."""
    if isinstance(index, Op):
        raise Unsupported("a slice that a tensor selects", "use index_select")
    d = axis(dim, len(x.shape))
    place = index if isinstance(index, Dim) or index >= 0 else index + x.shape[d]
    return reshaped(cut(x, d, place, 1), (*x.shape[:d], *x.shape[d + 1 :]))


@aten("slice.Tensor", "slice")
def slice_(x: Op, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Op:
    """Every step-th element from start up to end."""
    d = axis(dim, len(x.shape))
    first, size = extent(x.shape[d], start, end, step)
    return cut(x, d, first, size, step)


def extent(total: Any, start: Any, end: Any, step: int) -> tuple[Any, Any]:
    """The first element and the number of elements of a slice, as Python has it."""

    def place(value: Any, default: Any) -> Any:
        if value is None:
            return default
        if isinstance(value, Dim) or isinstance(total, Dim):
            if isinstance(value, int) and value >= MAX_INT:
                return total
            return value + total if isinstance(value, int) and value < 0 else value
        return max(0, min(value + total if value < 0 else value, total))

    first, last = place(start, 0), place(end, total)
    count = last - first
    if not isinstance(count, Dim):
        count = max(count, 0)
        return (first if count else 0), -(-count // step)
    return first, count if step == 1 else (count + step - 1) // step


@aten("narrow")
def narrow(x: Op, dim: int, start: Any, length: Any) -> Op:
    """`length` elements from start on."""
    return cut(x, axis(dim, len(x.shape)), start, length)


@aten("flip")
def flip(x: Op, dims: Sequence[int]) -> Op:
    """Reversed along dimensions."""
    chosen = axes(dims, len(x.shape)) if len(dims) else ()
    starts = tuple(x.shape[d] - 1 if d in chosen else 0 for d in range(len(x.shape)))
    steps = tuple(-1 if d in chosen else 1 for d in range(len(x.shape)))
    return s.Slice(x, starts=starts, sizes=tuple(x.shape), steps=steps) if chosen else x


@aten("roll")
def roll(x: Op, shifts: Any, dims: Any = ()) -> Op:
    """Rotated along dimensions."""
    shifts, dims = ([v] if isinstance(v, int) else list(v) for v in (shifts, dims))
    if not dims:
        return reshaped(roll(reshaped(x, (x.type.size,)), shifts, [0]), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        d = axis(dim, len(x.shape))
        total = x.shape[d]
        part = shift % total if total else 0
        if part:
            x = joined([cut(x, d, total - part, part), cut(x, d, 0, total - part)], d)
    return x


def padded(x: Op, pad: Sequence[Any], mode: Any, value: float = 0.0) -> Op:
    """Pads in PyTorch's order: before and after the last dimension, then the one before it, …"""
    rank = len(x.shape)
    before, after = [0] * rank, [0] * rank
    for k in range(len(pad) // 2):
        before[rank - 1 - k], after[rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    if not any(map(_not_zero, (*before, *after))):
        return x
    plain = float(value) if x.dtype.is_float else int(value)
    return s.Pad(x, pads=(*before, *after), value=plain, mode=mode)


def _not_zero(value: Any) -> bool:
    return isinstance(value, Dim) or value != 0


@aten("constant_pad_nd")
def constant_pad(x: Op, pad: Sequence[Any], value: Any = 0) -> Op:
    """Padded with a value; negative pads crop."""
    return padded(x, pad, "constant", value)


@aten("pad")
def pad_by_mode(x: Op, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Op:
    """Padded with a value, or with elements of the tensor."""
    known = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in known:
        raise Unsupported(f"padding of mode {mode}")
    return padded(x, pad, known[mode], value or 0)


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(x: Op, pad: Sequence[Any]) -> Op:
    """Padded with its mirror image."""
    return padded(x, pad, "reflect")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(x: Op, pad: Sequence[Any]) -> Op:
    """Padded with its border."""
    return padded(x, pad, "edge")


@aten("pixel_shuffle")
def pixel_shuffle(x: Op, factor: int) -> Op:
    """Channels as blocks of pixels."""
    return s.DepthToSpace(x, block=factor, mode="CRD")


@aten("pixel_unshuffle")
def pixel_unshuffle(x: Op, factor: int) -> Op:
    """Blocks of pixels as channels."""
    *lead, c, h, w = x.shape
    r = factor
    y = reshaped(x, (*lead, c, h // r, r, w // r, r))
    n = len(lead)
    y = transposed(y, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshaped(y, (*lead, c * r * r, h // r, w // r))


@aten("as_strided")
def as_strided(x: Op, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Op:
    """The elements in another shape, where the strides are those of that shape without gaps."""
    dense: list[Any] = []
    step: Any = 1
    for d in reversed(size):
        dense.insert(0, step)
        step = step * d
    same = all(d == 1 or a == b for d, a, b in zip(size, stride, dense, strict=True))
    if offset in (None, 0) and same and step == x.type.size:
        return reshaped(x, tuple(size))
    raise Unsupported("strides that skip or repeat elements")
