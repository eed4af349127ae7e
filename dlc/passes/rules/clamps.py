"""Lower and upper bounds: min, max, relu and clip are one family, and a chain of them is one clip."""

from __future__ import annotations

import math

from dlc.api.rules import equation
from dlc.graph.constants import number
from dlc.graph.op import Op
from dlc.ops.elementwise import Clip, Maximum, Minimum, Relu

Bound = float | int | None


@equation(Minimum, Maximum)
def bound(op: Minimum | Maximum) -> Op | None:
    """max(x, c) → clip(x, low=c); min(x, c) → clip(x, high=c) for a single number c."""
    value = number(op.b)
    if value is None or isinstance(value, bool) or math.isnan(value) or op.a.shape != op.shape:
        return None
    return Clip(op.a, low=value) if isinstance(op, Maximum) else Clip(op.a, high=value)


@equation(Clip)
def clip_alone(op: Clip) -> Op | None:
    """clip(x) → x; clip(x, low=0) → relu(x)."""
    if op.high is not None:
        return None
    if op.low is None:
        return op.x
    return Relu(op.x) if op.low == 0 else None


@equation(Clip, Relu)
def clip_of_clip(op: Clip | Relu) -> Op | None:
    """clip(clip(x, a, b), c, d) → clip(x, clip(a, c, d), clip(b, c, d)); relu is clip(·, 0)."""
    inner = op.x
    if not isinstance(inner, (Clip, Relu)) or (isinstance(op, Relu) and isinstance(inner, Relu)):
        return None
    low, high = _limits(op)
    first, last = (_clamped(v, low, high) for v in _limits(inner))
    low = first if first is not None else low
    high = last if last is not None else high
    # The outer bounds rule where they contradict the inner: then everything is one number, and high is applied last.
    return Clip(inner.x, low=low, high=high)


def _limits(op: Clip | Relu) -> tuple[Bound, Bound]:
    if isinstance(op, Clip):
        return op.low, op.high
    return (0.0 if op.dtype.is_float else 0), None


def _clamped(value: Bound, low: Bound, high: Bound) -> Bound:
    if value is None:
        return None
    value = value if low is None else max(value, low)
    return value if high is None else min(value, high)


RULES = (bound, clip_alone, clip_of_clip)
