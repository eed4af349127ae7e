"""Programs that are called in turn, and what is told of their times."""

import threading
import time
from collections import Counter
from itertools import pairwise

import pytest

from dlc.bench.times import LEAST_ROUNDS, Length, Times, after_pauses, in_turn


def test_percentiles() -> None:
    times = Times([k / 1000 for k in (3, 1, 2, 5, 4, 11, 9, 10, 6, 8, 7)])
    assert (times.median, times.p10, times.p90) == pytest.approx((6.0, 2.0, 10.0))
    assert times.json() == pytest.approx({"calls": 11, "median_ms": 6.0, "p10_ms": 2.0, "p90_ms": 10.0})


def test_of_one_call_all_are_the_same() -> None:
    times = Times([0.25])
    assert times.median == times.p10 == times.p90 == 250.0


def test_each_is_called_after_each_other_one() -> None:
    called: list[str] = []
    calls = {name: lambda name=name: called.append(name) for name in "abc"}
    found = in_turn(calls, Length(rounds=60))
    assert {name: len(times.seconds) for name, times in found.items()} == {"a": 60, "b": 60, "c": 60}
    rounds = [called[-180:][k : k + 3] for k in range(0, 180, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    after = Counter(pair for r in rounds for pair in pairwise(r))
    assert len(after) == 6
    assert all(count >= 10 for count in after.values())
    warm = called[:-180]
    assert sum(a != b for a, b in pairwise(warm)) == 2, "each is warmed up by itself"
    assert all(warm.count(name) >= 2 for name in "abc")


def test_seconds_are_at_least_a_few_rounds() -> None:
    told: list[int] = []
    found = in_turn({"x": lambda: None}, Length(seconds=0.0), told.append)
    assert len(found["x"].seconds) == LEAST_ROUNDS
    assert told == [1, 2, 3, 4, 5]


def test_calls_after_a_pause() -> None:
    began: list[tuple[str, float]] = []
    calls = {name: lambda name=name: began.append((name, time.perf_counter())) for name in "ab"}
    told: list[tuple[int, int]] = []
    found = after_pauses(calls, Length(rounds=7), 0.004, lambda done, of: told.append((done, of)))
    assert {name: len(times.seconds) for name, times in found.items()} == {"a": 7, "b": 7}
    # Blocks of five and two calls, and before each one that is not measured.
    assert "".join(name for name, _ in began) == "a" * 6 + "b" * 6 + "a" * 3 + "b" * 3
    assert all(t - s >= 0.004 for (a, s), (b, t) in pairwise(began) if a == b)
    assert told == [(k, 14) for k in range(1, 15)]


@pytest.mark.parametrize(
    ("length", "count"),
    [(Length(3), 3), (Length(500), 25), (Length(seconds=0.8), 10), (Length(seconds=0.0), LEAST_ROUNDS)],
)
def test_numbers_of_calls_after_a_pause(length: Length, count: int) -> None:
    assert length.pauses(0.08) == count


def test_threads_that_look_for_work_rest_before_another_is_measured() -> None:
    def look() -> None:
        end = time.thread_time() + 0.03
        while time.thread_time() < end:
            pass

    threads: list[threading.Thread] = []
    awake: list[bool] = []

    def looks() -> None:
        threads.append(threading.Thread(target=look))
        threads[-1].start()

    in_turn({"a": looks, "b": lambda: awake.append(any(t.is_alive() for t in threads))}, Length(rounds=3), rest=True)
    assert not any(awake[-3:])
