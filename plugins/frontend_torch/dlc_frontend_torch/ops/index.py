"""Operators that select elements by data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc.base.types import bool_, i64
from dlc.graph import Op, Splat
from dlc.ops import elementwise as e
from dlc.ops import index as ix
from dlc.ops import order
from dlc.ops.pointwise import broadcast
from dlc.ops.sizes import Count
from dlc_frontend_torch.ops.make import filled
from dlc_frontend_torch.ops.shape import extent, unsqueeze
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import axis, cast, cut, expanded, joined, number, reshaped, transposed


@aten("embedding")
def embedding(weight: Op, indices: Op, padding_idx: int = -1, *ignored: Any) -> Op:
    """Rows of a table."""
    del padding_idx, ignored
    return ix.Gather(weight, indices, axis=0)


@aten("index_select")
def index_select(x: Op, dim: int, index: Op) -> Op:
    """Slices along an axis."""
    return ix.Gather(x, index, axis=axis(dim, len(x.shape)))


@aten("gather")
def gather(x: Op, dim: int, index: Op, sparse_grad: bool = False) -> Op:
    """One element along an axis for each index."""
    del sparse_grad
    return ix.GatherElements(x, index, axis=axis(dim, len(x.shape)))


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(x: Op, indices: Sequence[Op | None]) -> Op:
    """x[i, j, …] by tensors of subscripts, as numpy's advanced indexing."""
    found, at, adjacent = _subscripts(x, indices)
    if len(at) == 1:
        return ix.Gather(x, found[0], axis=at[0])
    rest = [d for d in range(len(x.shape)) if d not in at]
    turned = transposed(x, (*at, *rest))
    shape = broadcast(*(i.shape for i in found))
    columns = [unsqueeze(expanded(i, shape), -1) for i in found]
    y = ix.GatherNd(turned, joined(columns, len(shape)), batch=0)
    if not adjacent or at[0] == 0:
        return y
    # Adjacent subscripts leave their dimensions where they were.
    n, first = len(shape), at[0]
    perm = (*range(n, n + first), *range(n), *range(n + first, len(y.shape)))
    return transposed(y, perm)


def _subscripts(x: Op, indices: Sequence[Op | None]) -> tuple[list[Op], list[int], bool]:
    """The tensors of subscripts, their axes, and whether these are adjacent."""
    at = [d for d, i in enumerate(indices) if i is not None]
    found = [i for i in indices if i is not None]
    if any(i.dtype == bool_ for i in found):
        raise Unsupported("subscripts by a mask: the size of the result depends on data", "use where")
    if not found:
        raise Unsupported("no subscripts")
    del x
    return [cast(i, i64) for i in found], at, at == list(range(at[0], at[0] + len(at)))


@aten("index_put", "_unsafe_index_put")
def index_put(x: Op, indices: Sequence[Op | None], values: Op, accumulate: bool = False, *ignored: Any) -> Op:
    """x with x[i, j, …] replaced by, or added to, values."""
    del ignored
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == bool_ and not values.shape:
        mask = indices[0]
        mask = reshaped(mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
        new = e.Add(x, cast(values, x.dtype)) if accumulate else cast(values, x.dtype)
        return expanded(e.Where(mask, new, x), x.shape)
    found, at, _ = _subscripts(x, indices)
    rest = [d for d in range(len(x.shape)) if d not in at]
    if at != list(range(len(at))):
        if at != list(range(at[0], at[0] + len(at))):
            raise Unsupported("writing by subscripts of dimensions that are not adjacent")
        # The subscripts' dimensions come first, and the values' likewise.
        perm, width = (*at, *rest), len(broadcast(*(i.shape for i in found)))
        if len(values.shape) != width + len(rest):
            middle = broadcast(*(i.shape for i in found))
            values = expanded(values, (*x.shape[: at[0]], *middle, *x.shape[at[0] + len(at) :]))
        turned_back = (*range(at[0], at[0] + width), *range(at[0]), *range(at[0] + width, width + len(rest)))
        y = _put(transposed(x, perm), found, transposed(values, turned_back), accumulate)
        back = [perm.index(d) for d in range(len(perm))]
        return transposed(y, back)
    return _put(x, found, values, accumulate)


def _put(x: Op, found: Sequence[Op], values: Op, accumulate: bool) -> Op:
    """x with values at subscripts of its first dimensions."""
    shape = broadcast(*(i.shape for i in found))
    places = joined([unsqueeze(expanded(i, shape), -1) for i in found], len(shape))
    updates = expanded(cast(values, x.dtype), (*shape, *x.shape[len(found) :]))
    return ix.ScatterNd(x, places, updates, reduce="add" if accumulate else "")


@aten("scatter")
def scatter(x: Op, dim: int, index: Op, source: Any, reduce: str | None = None) -> Op:
    """x with one element along an axis for each index replaced."""
    if reduce is not None:
        raise Unsupported(f"scatter with reduce={reduce}")
    return _scattered(x, dim, index, source, "")


@aten("scatter_add")
def scatter_add(x: Op, dim: int, index: Op, source: Op) -> Op:
    """x with elements added along an axis."""
    return _scattered(x, dim, index, source, "add")


def _scattered(x: Op, dim: int, index: Op, source: Any, reduce: str) -> Op:
    updates = cast(source, x.dtype) if isinstance(source, Op) else filled(index.shape, source, x.dtype)
    for d, size in enumerate(index.shape):
        updates = cut(updates, d, 0, size)
    return ix.ScatterElements(x, index, updates, axis=axis(dim, len(x.shape)), reduce=reduce)


@aten("tril")
def tril(x: Op, diagonal: int = 0) -> Op:
    """The lower triangle."""
    return _triangle(x, diagonal, upper=False)


@aten("triu")
def triu(x: Op, diagonal: int = 0) -> Op:
    """The upper triangle."""
    return _triangle(x, diagonal, upper=True)


def _triangle(x: Op, k: int, *, upper: bool) -> Op:
    if x.dtype != bool_:
        return ix.Trilu(x, upper=upper, k=k)
    return cast(ix.Trilu(cast(x, i64), upper=upper, k=k), bool_)


@aten("select_scatter")
def select_scatter(x: Op, source: Op, dim: int, index: int) -> Op:
    """x with one slice replaced."""
    d = axis(dim, len(x.shape))
    at = index + x.shape[d] if index < 0 else index
    return _replaced(x, unsqueeze(cast(source, x.dtype), d), d, at, 1)


@aten("slice_scatter")
def slice_scatter(x: Op, source: Op, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Op:
    """x with every step-th slice from start up to end replaced."""
    d = axis(dim, len(x.shape))
    first, size = extent(x.shape[d], start, end, step)
    source = expanded(cast(source, x.dtype), tuple(size if k == d else n for k, n in enumerate(x.shape)))
    if step == 1:
        return _replaced(x, source, d, first, size)
    places = reshaped(Count(size, start=first, step=step), (*(1,) * d, size, *(1,) * (len(x.shape) - d - 1)))
    return ix.ScatterElements(x, expanded(places, source.shape), source, axis=d)


def _replaced(x: Op, part: Op, d: int, first: Any, size: Any) -> Op:
    parts = [cut(x, d, 0, first), part, cut(x, d, first + size, x.shape[d] - first - size)]
    return joined([p for p in parts if p.shape[d] != 0], d)


@aten("topk")
def topk(x: Op, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Op, Op]:
    """The k largest elements along an axis, and their subscripts."""
    del sorted
    d = axis(dim, len(x.shape))
    places = order.FirstOf(x, axis=d, count=k, largest=largest)
    return ix.GatherElements(x, places, axis=d), places


@aten("sort.default", "sort", "sort.stable")
def sort(x: Op, *args: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> tuple[Op, Op]:
    """Sorted elements, and their subscripts; of equal elements the first comes first."""
    del stable
    plain = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    flags = [a for a in args if isinstance(a, bool)]
    d = axis(plain[0] if plain else dim, len(x.shape))
    return topk(x, x.shape[d], d, flags[-1] if flags else descending)


@aten("argsort")
def argsort(x: Op, dim: int = -1, descending: bool = False) -> Op:
    """The subscripts that sort x."""
    return topk(x, x.shape[axis(dim, len(x.shape))], dim, descending)[1]


@aten("one_hot")
def one_hot(x: Op, classes: int = -1) -> Op:
    """1 at the class of each element."""
    if classes < 0:
        raise Unsupported("one_hot without a number of classes")
    return cast(e.Equal(unsqueeze(x, -1), cast(Count(classes), x.dtype)), i64)


@aten("embedding_dense_backward")
def embedding_gradient(g: Op, indices: Op, rows: int, padding_idx: int = -1, by_frequency: bool = False) -> Op:
    """The gradient of a table of which rows were read."""
    if by_frequency:
        raise Unsupported("scale_grad_by_freq")
    width, count = g.shape[-1], indices.type.size
    flat = reshaped(cast(indices, i64), (count, 1))
    updates = reshaped(g, (count, width))
    if padding_idx >= 0:
        kept = e.Not(e.Equal(flat, number(padding_idx, i64)))
        updates = e.Where(kept, updates, number(0.0, g.dtype))
    return ix.ScatterNd(Splat(0.0, g.type.with_shape((rows, width))), flat, updates, reduce="add")
