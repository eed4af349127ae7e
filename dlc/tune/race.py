"""Candidates that are called in turn; those that are much slower than the fastest so far are left behind."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Final

LEAST_ROUNDS: Final = 3
"""Calls of each candidate, however long one takes."""
MOST_ROUNDS: Final = 24
_HOPELESS: Final = ((3, 1.3), (6, 1.12), (12, 1.06))
"""After so many rounds, candidates that take so many times as long as the fastest are left behind."""
WORTH: Final = 0.98
"""Of the default's time: what takes more is as fast, and the default stays."""


def race(
    runs: Sequence[Callable[[], float]],
    over: Callable[[], bool],
    most: int = MOST_ROUNDS,
    hopeless: Sequence[tuple[int, float]] = _HOPELESS,
) -> list[list[float]]:
    """The times of each candidate, of those that were left behind fewer.

    Args:
        runs: What calls a candidate once and tells how long that took; the first one, the default, always goes on.
        over: Whether there is no more time.
        most: Rounds.
        hopeless: See `_HOPELESS`.
    """
    for run in runs:
        run()  # what the first call alone has to do is not measured
    times: list[list[float]] = [[] for _ in runs]
    going = list(range(len(runs)))
    for done in range(most):
        if done >= LEAST_ROUNDS and over():
            break
        first = done % len(going)
        for k in (*going[first:], *going[:first]):
            times[k].append(runs[k]())
        limit = next((factor for rounds, factor in reversed(hopeless) if done + 1 >= rounds), None)
        if limit is not None:
            best = min(statistics.median(times[k]) for k in going)
            going = [k for k in going if k == 0 or statistics.median(times[k]) <= limit * best]
    return times


def winner(times: Sequence[Sequence[float]]) -> int:
    """The candidate of the least median among those that were not left behind."""
    rounds = max(map(len, times))
    return min((k for k, t in enumerate(times) if len(t) == rounds), key=lambda k: statistics.median(times[k]))


def duel(
    default: Callable[[], float], other: Callable[[], float], over: Callable[[], bool], most: int = MOST_ROUNDS
) -> tuple[float, float]:
    """Medians of the default and of the winner of a race, measured anew: who wins among many was lucky, too."""
    first, second = race((default, other), over, most, hopeless=())
    return statistics.median(first), statistics.median(second)
