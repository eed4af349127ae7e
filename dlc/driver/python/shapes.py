"""Functions of numpy that move elements: other shapes, orders and pieces of traced arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc.base.extents import Dim
from dlc.driver.python.place import at_user_line, refused
from dlc.driver.python.registering import axes_of, common, several, traced_as
from dlc.driver.python.traced import Traced, as_traced, made
from dlc.ops import shape as s
from dlc.ops.pointwise import normalized


@traced_as("reshape")
def reshape(a: Any, shape: Any, order: str = "C") -> Traced:
    """The elements in row-major order, in another shape, of which one size may be -1."""
    x = as_traced(a)
    if order != "C":
        raise refused("no-such-function", f"numpy.reshape with order {order!r} cannot be traced")
    to = list(several(shape))
    free = [k for k, d in enumerate(to) if not isinstance(d, Dim) and d == -1]
    if len(free) == 1:
        rest = math.prod(d for k, d in enumerate(to) if k not in free)
        with at_user_line("reshape"):
            if not isinstance(rest, Dim) and rest == 0:
                raise ValueError(f"{x!r} to {shape}")
            to[free[0]] = x.size // rest
    to = [d if isinstance(d, Dim) else int(d) for d in to]
    return x if tuple(to) == x.shape else made("reshape", s.Reshape, x, to=tuple(to))


@traced_as("ravel")
def ravel(a: Any) -> Traced:
    """The elements in one dimension."""
    return reshape(a, (-1,)) if as_traced(a).ndim != 1 else as_traced(a)


@traced_as("transpose", "permute_dims")
def _transpose(a: Any, axes: Any = None) -> Traced:
    x = as_traced(a)
    with at_user_line("transpose"):
        order = tuple(range(x.ndim))[::-1] if axes is None else tuple(normalized(d, x.ndim) for d in axes)
    return x if order == tuple(range(x.ndim)) else made("transpose", s.Transpose, x, perm=order)


@traced_as()
def _swapaxes(a: Any, axis1: int, axis2: int) -> Traced:
    x = as_traced(a)
    order = list(range(x.ndim))
    (p,), (q,) = axes_of(x, axis1), axes_of(x, axis2)
    order[p], order[q] = q, p
    return _transpose(x, order)


@traced_as()
def _moveaxis(a: Any, source: Any, destination: Any) -> Traced:
    x = as_traced(a)
    pairs = [[axes_of(x, d)[0] for d in several(axes)] for axes in (source, destination)]
    order = [d for d in range(x.ndim) if d not in pairs[0]]
    for to, of in sorted(zip(pairs[1], pairs[0], strict=True)):
        order.insert(to, of)
    return _transpose(x, order)


@traced_as()
def _expand_dims(a: Any, axis: Any) -> Traced:
    x = as_traced(a)
    new = several(axis)
    with at_user_line("expand_dims"):
        places = {normalized(d, x.ndim + len(new)) for d in new}
    rest = iter(x.shape)
    return reshape(x, [1 if d in places else next(rest) for d in range(x.ndim + len(new))])


@traced_as()
def _squeeze(a: Any, axis: Any = None) -> Traced:
    x = as_traced(a)
    gone = axes_of(x, axis) if axis is not None else tuple(d for d, n in enumerate(x.shape) if n == 1)
    if any(x.shape[d] != 1 for d in gone):
        raise refused("bad-operands", f"squeeze: a dimension of {x!r} is not 1")
    return reshape(x, [n for d, n in enumerate(x.shape) if d not in gone])


@traced_as()
def broadcast_to(array: Any, shape: Any) -> Traced:
    """The array repeated along dimensions that it does not have, or that are 1."""
    x = as_traced(array)
    to = tuple(several(shape))
    return x if x.shape == to else made("broadcast_to", s.Expand, x, to=to)


@traced_as("concatenate", "concat")
def _concatenate(arrays: Any, axis: Any = 0) -> Traced:
    parts = common(list(arrays))
    if axis is None:
        parts, axis = [ravel(p) for p in parts], 0
    return made("concatenate", lambda *xs: s.Concat(xs, axis=axes_of(parts[0], axis)[0]), *parts)


@traced_as()
def _stack(arrays: Any, axis: int = 0) -> Traced:
    return _concatenate([_expand_dims(a, axis) for a in common(list(arrays))], axis)


@traced_as("vstack", "row_stack")
def _vstack(tup: Any) -> Traced:
    return _concatenate([reshape(a, (1, -1)) if as_traced(a).ndim < 2 else a for a in tup], 0)


@traced_as()
def _hstack(tup: Any) -> Traced:
    parts = [reshape(a, (1,)) if not as_traced(a).ndim else a for a in tup]
    return _concatenate(parts, 0 if as_traced(parts[0]).ndim == 1 else 1)


@traced_as()
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Traced]:
    x = as_traced(ary)
    (d,) = axes_of(x, axis)
    n = x.shape[d]
    if isinstance(indices_or_sections, int):
        if n % indices_or_sections:
            raise refused("bad-operands", f"split: {n} elements do not make {indices_or_sections} equal parts")
        ends = [n // indices_or_sections * k for k in range(1, indices_or_sections)]
    else:
        ends = list(indices_or_sections)
    whole = (slice(None),) * d
    return [x[(*whole, slice(a, b))] for a, b in zip([0, *ends], [*ends, None], strict=True)]


@traced_as()
def _flip(m: Any, axis: Any = None) -> Traced:
    x = as_traced(m)
    gone = axes_of(x, axis)
    return x[tuple(slice(None, None, -1) if d in gone else slice(None) for d in range(x.ndim))]


@traced_as()
def _tile(A: Any, reps: Any) -> Traced:
    x = as_traced(A)
    times = tuple(several(reps))
    x = reshape(x, (1,) * (len(times) - x.ndim) + x.shape)
    return made("tile", s.Tile, x, repeats=(1,) * (x.ndim - len(times)) + times)


@traced_as()
def _repeat(a: Any, repeats: int, axis: Any = None) -> Traced:
    x, axis = (ravel(a), 0) if axis is None else (as_traced(a), axis)
    (d,) = axes_of(x, axis)
    grown = broadcast_to(_expand_dims(x, d + 1), (*x.shape[: d + 1], repeats, *x.shape[d + 1 :]))
    return reshape(grown, (*x.shape[:d], x.shape[d] * repeats, *x.shape[d + 1 :]))


@traced_as()
def _pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Traced:
    x = as_traced(array)
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    pads = tuple(int(w) for w in (*widths[:, 0], *widths[:, 1]))
    return made("pad", s.Pad, x, pads=pads, value=constant_values, mode=mode)


@traced_as()
def _shape(a: Any) -> tuple[int, ...]:
    return as_traced(a).shape


@traced_as()
def _ndim(a: Any) -> int:
    return as_traced(a).ndim


@traced_as()
def _size(a: Any) -> int:
    return as_traced(a).size


traced_as("copy")(as_traced)
