"""What an operand that decides a shape must be, told from the shapes that the model declares for the results.

    Reshape(x[2,3,4], s) with a result declared as [6,4]   →   s is (6 or -1, 4 or -1)

Every function gives, for each element of the operand, the values that lead to the declared shape, the one that it is
taken to be first, or () for one that may be anything; None where the declared shape does not tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from typing import Final, TypeAlias

Shape: TypeAlias = tuple[int, ...]
Choices: TypeAlias = "list[tuple[int, ...]] | None"
MOST_RANK: Final = 10
"""Dimensions up to which sets of axes are enumerated."""


def new_shape(x: Shape, out: Shape, allow_zero: bool) -> Choices:
    """The new shape: -1 may stand for any size, 0 for that of x."""
    if math.prod(out) != math.prod(x) or (0 in out and not allow_zero):
        return None
    if 0 in out:  # -1 could stand for anything beside it
        return exactly(*out)
    copied = [not allow_zero and d < len(x) and x[d] == size for d, size in enumerate(out)]
    return [(size, -1, 0) if same else (size, -1) for size, same in zip(out, copied, strict=True)]


def broadcast_shape(x: Shape, out: Shape, count: int) -> Choices:
    """The shape to broadcast with, of `count` elements: 1 where x has the size already."""
    if len(out) != max(len(x), count):
        return None
    own = (1,) * (len(out) - len(x)) + x
    first = len(out) - count
    if any(a not in (1, b) for a, b in zip(own, out, strict=True)) or out[:first] != own[:first]:
        return None
    last = list(zip(own, out, strict=True))[first:]
    return [(size, 1) if have == size != 1 else (size,) for have, size in last]


def exactly(*sizes: int) -> Choices:
    """One value for each element."""
    return [(size,) for size in sizes]


def repeat_counts(x: Shape, out: Shape) -> Choices:
    """How often x is repeated along each dimension."""
    if len(x) != len(out) or any(not have or size % have for have, size in zip(x, out, strict=True)):
        return None
    return [(size // have,) for have, size in zip(x, out, strict=True)]


def axis_choices(rank: int, count: int, leads: Callable[[Sequence[int]], bool]) -> Choices:
    """`count` axes of `rank` dimensions with which `leads` holds, in any order, counted from either end."""
    sets = list(axis_sets(rank, count, leads))
    if not sets:
        return None
    every = sorted({d for found in sets for d in found})
    return [(first, *(d for d in every if d != first), *(d - rank for d in every)) for first in sets[0]]


def axis_sets(rank: int, count: int, leads: Callable[[Sequence[int]], bool]) -> Iterator[tuple[int, ...]]:
    """The sets of axes of which that is true."""
    if rank <= MOST_RANK:
        yield from filter(leads, combinations(range(rank), count))


def inserted_axes(x: Shape, out: Shape, count: int) -> Choices:
    """Where dimensions of 1 are inserted into x."""
    if len(out) != len(x) + count:
        return None
    return axis_choices(
        len(out), count, lambda found: without_dims(out, found) == x and all(out[d] == 1 for d in found)
    )


def removed_axes(x: Shape, out: Shape, count: int) -> Choices:
    """Where dimensions of 1 are removed from x."""
    if len(x) != len(out) + count:
        return None
    return axis_choices(len(x), count, lambda found: without_dims(x, found) == out and all(x[d] == 1 for d in found))


def reduced_shape(x: Shape, found: Sequence[int], keep: bool) -> Shape:
    """The shape after reducing these axes."""
    return tuple(1 if d in found else e for d, e in enumerate(x)) if keep else without_dims(x, found)


def without_dims(shape: Shape, found: Sequence[int]) -> Shape:
    """A shape without some dimensions."""
    return tuple(e for d, e in enumerate(shape) if d not in found)


def whole_scales(x: Shape, out: Shape, along: Sequence[int]) -> Choices:
    """How many times as large some dimensions become, where that is a whole number."""
    if len(x) != len(out) or any(not x[a] or out[a] % x[a] for a in along):
        return None
    return [(out[a] // x[a],) for a in along]


def block_sizes(count: int, extents: Sequence[range], windows: Callable[[Sequence[int]], int], total: int) -> Choices:
    """Sizes of a block of `count` elements with which an image has `total` windows, if only one block does."""
    divisors = (tuple(k for k in extent if count % k == 0) for extent in extents)
    found = [sizes for sizes in product(*divisors) if math.prod(sizes) == count and windows(sizes) == total]
    return exactly(*found[0]) if len(found) == 1 else None


def pieces(samples: int, frames: int, lengths: Sequence[int]) -> tuple[int, int] | None:
    """(step, length) of pieces of a signal, of which there are so many, if only one pair gives that."""
    found = [
        (step, length)
        for length in lengths
        for step in range(1, samples + 1)
        if 0 < length <= samples and (samples - length) // step + 1 == frames
    ]
    return found[0] if len(found) == 1 else None
