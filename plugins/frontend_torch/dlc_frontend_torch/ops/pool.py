"""Pools."""

# pyright: basic
# Arguments of calls are anything.

from __future__ import annotations

from typing import Any

from dlc.graph import Op
from dlc.ops import pool
from dlc.ops import reduce as r
from dlc.ops.elementwise import Div
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import cut, joined, number, pair, reshaped


def figures(x: Op, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> dict[str, Any]:
    """The fields of a pool over all but the first two dimensions."""
    rank = len(x.shape) - 2
    window = pair(kernel, rank)
    stride = pair(stride, rank) if stride not in ((), [], None) else window
    pads = pair(padding, rank)
    return {
        "window": window,
        "stride": stride,
        "pads": (*pads, *pads),
        "dilation": pair(dilation, rank),
        "ceil": ceil,
    }


def _batched(x: Op, rank: int) -> tuple[Op, bool]:
    return (reshaped(x, (1, *x.shape)), True) if len(x.shape) == rank + 1 else (x, False)


def _max(rank: int) -> Any:
    def rule(x: Op, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Op:
        x, single = _batched(x, rank)
        y = pool.MaxPool(x, **figures(x, kernel, stride, padding, dilation, ceil_mode))
        return reshaped(y, y.shape[1:]) if single else y

    return rule


def _average(rank: int) -> Any:
    def rule(
        x: Op,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Op:
        x, single = _batched(x, rank)
        known = figures(x, kernel, stride, padding, 1, ceil_mode)
        if divisor_override is None:
            y = pool.AveragePool(x, count_pad=count_include_pad, **known)
        else:
            total = pool.SumPool(x, **known)
            y = Div(total, number(float(divisor_override), x.dtype))
        return reshaped(y, y.shape[1:]) if single else y

    return rule


for _rank in (1, 2, 3):
    aten(f"max_pool{_rank}d")(_max(_rank))
    aten(f"avg_pool{_rank}d")(_average(_rank))


@aten("max_pool2d_with_indices", "max_pool1d_with_indices", "max_pool3d_with_indices")
def max_pool_with_places(
    x: Op, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Op, Op]:
    """The largest elements, and where in the plane each is."""
    known = figures(x, kernel, stride, padding, dilation, ceil_mode)
    y = pool.MaxPool(x, **known)
    first = pool.MaxPlace(x, y, **known)
    del known["ceil"]
    # ATen numbers the elements of each plane, dlc those of the whole tensor.
    plane = (1, 1, *x.shape[2:])
    return y, in_plane(pool.TapIndex(first, of=x.shape, **known), plane)


def in_plane(places: Op, plane: Any) -> Op:
    """Numbers of elements of a tensor as numbers in their planes."""
    import math

    from dlc.ops.elementwise import Mod

    return Mod(places, number(math.prod(plane), places.dtype))


@aten("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d")
def adaptive_average(x: Op, size: Any) -> Op:
    """Means over parts of each dimension, as many as `size` says."""
    return _adaptive(x, size, lambda part, axes: r.ReduceMean(part, axes=axes, keep=True))


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max(x: Op, size: Any) -> tuple[Op, None]:
    """Maxima over parts of each dimension."""
    return _adaptive(x, size, lambda part, axes: r.ReduceMax(part, axes=axes, keep=True)), None


def _adaptive(x: Op, size: Any, reduce: Any) -> Op:
    """Part k of n along a dimension of d elements is ⌊k·d/n⌋ to ⌈(k+1)·d/n⌉."""
    wanted = [size] if isinstance(size, int) else list(size)
    rank = len(wanted)
    lead = len(x.shape) - rank
    wanted = [x.shape[lead + k] if w is None else w for k, w in enumerate(wanted)]
    if all(w == 1 for w in wanted):
        return reduce(x, tuple(range(lead, len(x.shape))))
    for k, count in enumerate(wanted):
        d = lead + k
        total = x.shape[d]
        if not isinstance(total, int) or not isinstance(count, int):
            raise Unsupported("an adaptive pool over a dimension that has no size yet")
        if count == total:
            continue
        if total % count == 0:
            parts = reshaped(x, (*x.shape[:d], count, total // count, *x.shape[d + 1 :]))
            y = reduce(parts, (d + 1,))
            x = reshaped(y, (*x.shape[:d], count, *x.shape[d + 1 :]))
            continue
        bounds = [(j * total // count, -(-(j + 1) * total // count)) for j in range(count)]
        x = joined([reduce(cut(x, d, a, b - a), (d,)) for a, b in bounds], d)
    return x
