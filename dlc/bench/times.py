"""Times of repeated calls, of several programs in turn, so that what disturbs a machine disturbs all of them."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

Name = TypeVar("Name")
WARM_UP: Final = 0.1
"""Seconds of calls of each program before the first that is measured."""
_LEAST_WARM, _MOST_WARM = 2, 1000
"""Calls before the first that is measured."""
LEAST_ROUNDS: Final = 5
"""However long one takes."""
MOST_ROUNDS: Final = 100_000
"""However short one is."""
_REST: Final = 0.01
"""Seconds, longer than some systems take to bring the accounts of threads up to date, in which none does much."""
_MOST_REST: Final = 0.2
"""Seconds after which threads that never rest are no longer waited for."""
_AWAKE: Final = 0.003
"""Seconds of calls after a rest before the one that is measured."""
PAUSE: Final = 0.08
"""Seconds between calls of a service that has little to do."""
_MOST_PAUSES: Final = 25
"""Calls of each program after a pause, however many are asked for."""
_BLOCK: Final = 5
"""Calls after pauses before it is another program's turn."""


@dataclass(frozen=True)
class Times:
    """Seconds of calls."""

    seconds: Sequence[float]
    """At least one, in the order of the calls."""

    @property
    def median(self) -> float:
        """Milliseconds."""
        return statistics.median(self.seconds) * 1000

    @property
    def p10(self) -> float:
        """10th percentile in milliseconds."""
        return self._deciles[0]

    @property
    def p90(self) -> float:
        """90th percentile in milliseconds."""
        return self._deciles[-1]

    @property
    def _deciles(self) -> list[float]:
        values = [s * 1000 for s in self.seconds]
        return statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else values

    def json(self) -> dict[str, float]:
        """For programs."""
        return {"calls": len(self.seconds), "median_ms": self.median, "p10_ms": self.p10, "p90_ms": self.p90}


@dataclass(frozen=True)
class Length:
    """How long to measure: a number of rounds, or seconds, in which there are at least a few rounds."""

    rounds: int | None = None
    seconds: float = 2.0

    def is_over(self, done: int, elapsed: float) -> bool:
        """Whether so many rounds, which took so long, are enough."""
        if self.rounds is not None:
            return done >= self.rounds
        return done >= MOST_ROUNDS or (done >= LEAST_ROUNDS and elapsed >= self.seconds)

    def pauses(self, pause: float) -> int:
        """Calls after a pause of so many seconds."""
        wanted = self.seconds / pause if self.rounds is None else self.rounds
        return min(_MOST_PAUSES, max(int(wanted), 1 if self.rounds else LEAST_ROUNDS))


def in_turn(
    calls: Mapping[Name, Callable[[], object]],
    length: Length,
    on_round: Callable[[int], None] = lambda done: None,  # noqa: ARG005
    *,
    rest: bool = False,
) -> dict[Name, Times]:
    """Times of programs that are called in turn, after some calls to warm up.

    In each round in another order, so that each is called after each other one as often: what a program leaves in the
    caches costs the next one time. So do threads that look for more work when a call is over, those of some runtimes
    for tens of milliseconds on a core that the next program needs: with `rest` that one waits for them, and is called
    a few times before it is measured.

    Args:
        calls: Name → what calls the program once.
        length: How long to measure.
        on_round: Told how many rounds are done.
        rest: Whether programs have threads, which are to rest before another program is measured.
    """
    for call in calls.values():
        _warm_up(call)
    order = list(calls)
    drawn = random.Random(0)
    found: dict[Name, list[float]] = {name: [] for name in calls}
    begin, done = time.perf_counter(), 0
    while not length.is_over(done, time.perf_counter() - begin):
        drawn.shuffle(order)
        for name in order:
            if rest:
                _wait_for_rest()
                _warm_up(calls[name], _AWAKE)
            found[name].append(_seconds(calls[name]))
        done += 1
        on_round(done)
    return {name: Times(seconds) for name, seconds in found.items()}


def after_pauses(
    calls: Mapping[Name, Callable[[], object]],
    length: Length,
    pause: float = PAUSE,
    on_call: Callable[[int, int], None] = lambda done, of: None,  # noqa: ARG005
) -> dict[Name, Times]:
    """Times of calls that come some time after the last one of the same program, as those of a service do.

    Threads sleep and caches are cold then. Programs take turns after a few calls: the first call after another
    program's is not measured, so that nothing but the pause lies between two calls.

    Args:
        calls: Name → what calls the program once.
        length: How long to measure each program, at most 25 calls.
        pause: Seconds.
        on_call: Told how many calls are done, and of how many.
    """
    count = length.pauses(pause)
    found: dict[Name, list[float]] = {name: [] for name in calls}
    done = 0
    while done < count:
        block = min(_BLOCK, count - done)
        for number, (name, call) in enumerate(calls.items()):
            call()
            for k in range(block):
                time.sleep(pause)
                found[name].append(_seconds(call))
                on_call(done * len(calls) + number * block + k + 1, count * len(calls))
        done += block
    return {name: Times(seconds) for name, seconds in found.items()}


def _wait_for_rest() -> None:
    begin = time.perf_counter()
    while time.perf_counter() - begin < _MOST_REST:
        before = time.process_time()
        time.sleep(_REST)
        if time.process_time() - before < _REST / 4:
            break


def _warm_up(call: Callable[[], object], seconds: float = WARM_UP) -> None:
    begin, done = time.perf_counter(), 0
    while done < _LEAST_WARM or (done < _MOST_WARM and time.perf_counter() - begin < seconds):
        call()
        done += 1


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
