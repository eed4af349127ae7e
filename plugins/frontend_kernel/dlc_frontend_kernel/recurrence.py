"""Statements that read an element which they write at another iteration, a fixed distance away.

    Y[i,j] = Y[i,j-1] + X[i,j]

A statement reads what was there before it, so this is no running sum. As it reads like one, it is refused. What cannot
be taken for a recurrence, as the permutation A[i,j] = A[j,i], means what it says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dlc.kernel.expr import Expr
from dlc.kernel.simplify import linear
from dlc_frontend_kernel.ranges import Interval

HELP: Final = (
    "a statement reads what was there before it; write a running sum as sum[k](select(k <= j, X[k], 0)), "
    "and read old values from a copy that a statement before makes"
)


def is_recurrence(written: Sequence[Expr], read: Sequence[Expr], spans: Sequence[Interval]) -> bool:
    """Whether what is read lies at a constant distance from what is written, and is written too.

    Args:
        written: The left side's subscripts.
        read: Those of the element that is read.
        spans: Smallest and largest value of each of the left side's.
    """
    distances: list[int] = []
    for to, source, (low, high) in zip(written, read, spans, strict=True):
        difference, form = linear(source - to), linear(to)
        if difference is None or difference.terms or form is None:
            return False
        distance, step = difference.constant, math.gcd(*(c for _, c in form.terms))
        if abs(distance) > high - low or (distance % step if step else distance):
            return False
        distances.append(distance)
    return any(distances)
