"""Candidates called in turn: who is left behind, who wins, and what a second measurement is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

from dlc.tune.race import LEAST_ROUNDS, MOST_ROUNDS, duel, race, winner


def runner(*times: float) -> Callable[[], float]:
    """Takes so long, in turn; the call to warm up takes the last of them."""
    found: Iterator[float] = cycle((times[-1], *times[:-1]))
    return lambda: next(found)


def never() -> bool:
    return False


def test_what_is_much_slower_is_left_behind_early() -> None:
    times = race([runner(1.0), runner(2.0), runner(1.1), runner(0.9)], never)
    assert [len(t) for t in times] == [MOST_ROUNDS, LEAST_ROUNDS, 6, MOST_ROUNDS]
    assert winner(times) == 3


def test_the_default_goes_on_however_slow_it_is() -> None:
    times = race([runner(9.0), runner(1.0)], never)
    assert [len(t) for t in times] == [MOST_ROUNDS, MOST_ROUNDS]
    assert winner(times) == 1


def test_all_are_called_a_few_times_although_there_is_no_time() -> None:
    times = race([runner(1.0), runner(1.01), runner(50.0)], lambda: True)
    assert [len(t) for t in times] == [LEAST_ROUNDS] * 3


def test_one_slow_call_decides_nothing() -> None:
    times = race([runner(1.0), runner(100.0, 0.8, 0.8, 0.8)], never)
    assert winner(times) == 1


def test_candidates_take_turns_in_coming_first() -> None:
    order: list[int] = []

    def logged(k: int) -> Callable[[], float]:
        return lambda: order.append(k) or 1.0

    race([logged(k) for k in range(3)], never, most=3)
    assert order == [0, 1, 2, 0, 1, 2, 1, 2, 0, 2, 0, 1]


def test_who_was_only_lucky_is_found_out() -> None:
    lucky = runner(*[0.5] * (MOST_ROUNDS - 1), 1.0, *[1.2] * (MOST_ROUNDS + 1))
    default = runner(1.0)
    assert winner(race([default, lucky], never)) == 1
    before, after = duel(default, lucky, never)
    assert (before, after) == (1.0, 1.2)
