"""In which order several tensors are multiplied and added up, two at a time: the one of the fewest steps.

r[i,j] += a[i,k]·b[k,l]·c[l,j]:   (a·b)·c or a·(b·c), for the smaller of the loops that they take
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from dlc.kernel.expr import Axis, Expr, Load, axes_in, substitute
from dlc.kernel.nest import Nest


@dataclass(frozen=True)
class Factor:
    """A factor of a product, or what it is divided by."""

    value: Expr
    divides: bool = False

    @property
    def axes(self) -> frozenset[Axis]:
        return frozenset(axes_in(self.value))


@dataclass(frozen=True)
class Order:
    """How some factors are multiplied and added up.

    Attributes:
        points: Of all loops.
        turned: Products whose last axis is the last one of neither operand, so that no vectors lie there.
        parts: The factors that are multiplied last, as two sets; None for a single one.
        known: What an earlier nest has computed.
    """

    points: int = 0
    turned: int = 0
    parts: tuple[frozenset[int], frozenset[int]] | None = None
    known: Load | None = None


def kept_axes(nest: Nest) -> tuple[Axis, ...]:
    """The axes that are not added up."""
    return tuple(a for a in nest.axes if a not in nest.reduction_axes)


def left_axes(nest: Nest, factors: Sequence[Factor], of: frozenset[int]) -> frozenset[Axis]:
    """The axes of the product of some factors that are not added up before the others are multiplied."""
    inside = frozenset[Axis]().union(*(factors[k].axes for k in of))
    others = frozenset[Axis]().union(*(f.axes for k, f in enumerate(factors) if k not in of))
    return inside & (others | frozenset(kept_axes(nest)))


def named_product(factors: Sequence[Factor], left: frozenset[Axis]) -> tuple[Hashable, tuple[Axis, ...]] | None:
    """What tells a sum of a product of different tensors from others, and its axes in the order that it names them."""
    values = sorted((f.value for f in factors if isinstance(f.value, Load)), key=lambda x: x.param)
    if len({x.param for x in values}) < len(factors) or any(not isinstance(i, Axis) for x in values for i in x.index):
        return None
    axes = tuple(axes_in(*values))
    names = {a: a.named(f"{k}") for k, a in enumerate(axes)}
    return (tuple(substitute(x, names) for x in values), frozenset(names[a] for a in axes if a in left)), axes


def points_at_once(nest: Nest, factors: Sequence[Factor]) -> int:
    """Multiplications without an order: of two operands, each the product of some factors for all of their axes."""

    def points(of: Sequence[Factor]) -> int:
        return math.prod(a.extent for a in frozenset[Axis]().union(*(f.axes for f in of))) * (len(of) - 1)

    first, *rest = factors
    parts = ((p, [f for f in rest if f not in p]) for n in range(len(rest)) for p in combinations(rest, n))
    return nest.points + min(points([first, *one]) + points(other) for one, other in parts)


def best_orders(
    nest: Nest, factors: Sequence[Factor], known: Mapping[frozenset[int], Load]
) -> Mapping[frozenset[int], Order]:
    """The best order of every set of factors, of which some products are known."""
    found: dict[frozenset[int], Order] = {}
    last: dict[frozenset[int], Axis | None] = {}
    everything = range(len(factors))
    for k, f in enumerate(factors):
        alone = frozenset({k})
        summed = f.axes != left_axes(nest, factors, alone)
        found[alone] = Order(math.prod(a.extent for a in f.axes) if summed else 0)
        end = f.value.index[-1] if isinstance(f.value, Load) and f.value.index else None
        last[alone] = end if isinstance(end, Axis) else None
    for size in range(2, len(factors) + 1):
        for members in combinations(everything, size):
            of = frozenset(members)
            if of in known:
                found[of], last[of] = Order(known=known[of]), next(iter(axes_in(known[of].index[-1])), None)
                continue
            best: Order | None = None
            rest = (*nest.reduction_axes, *kept_axes(nest))
            end = [a for a in rest if a in left_axes(nest, factors, of)][-1:]
            for part in (frozenset(p) for n in range(1, size) for p in combinations(members, n)):
                other = of - part
                if min(part) > min(other):
                    continue
                axes = left_axes(nest, factors, part) | left_axes(nest, factors, other)
                points = math.prod(a.extent for a in axes) + found[part].points + found[other].points
                turned = bool(end) and end[0] not in (last[part], last[other])
                order = Order(points, turned + found[part].turned + found[other].turned, (part, other))
                if best is None or (order.points, order.turned) < (best.points, best.turned):
                    best = order
            assert best is not None
            found[of], last[of] = best, end[0] if end else None
    return found
