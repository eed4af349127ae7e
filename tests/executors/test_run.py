"""Work over lanes: what a lost worker had is done by another, once for every loss; and how workers are compared."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from dlc.driver.executors.lane import WORK, Lane, ProcessLost, WorkerLost, perform
from dlc.driver.executors.run import TRIES, Done, run_all
from dlc.driver.executors.skew import differences


class Fake:
    """A lane that does everything at once, or is lost with what it is told."""

    def __init__(self, name: str, loses: tuple[str, ...] = (), kind: type[WorkerLost] = WorkerLost) -> None:
        self.name, self.had = name, list[str]()
        self._loses, self._kind = loses, kind

    def submit(self, work: str, text: str) -> Future[str]:
        self.had.append(text)
        done: Future[str] = Future()
        if text in self._loses:
            done.set_exception(self._kind("power cut"))
        elif text == "wrong":
            done.set_exception(ValueError("no such thing"))
        else:
            done.set_result(f"{work} {text}")
        return done


def ran(texts: list[str], *lanes: Fake) -> tuple[dict[int, Done], list[int]]:
    found: dict[int, Done] = {}
    lost: list[int] = []

    def done(d: Done) -> None:
        assert d.number not in found
        found[d.number] = d

    def begun(number: int, lane: Lane) -> None:
        del number, lane

    def gone(number: int, lane: Lane, reason: str) -> None:
        del lane
        assert reason == "power cut"
        lost.append(number)

    run_all("build", texts, lanes, begun, done, gone)
    return found, lost


def test_everything_is_done_once() -> None:
    found, lost = ran(["a", "b", "wrong", "c"], Fake("x"), Fake("y"))
    assert [found[k].text for k in range(4)] == ["build a", "build b", "", "build c"]
    assert isinstance(found[2].failure, ValueError)
    assert not lost


def test_a_lost_worker_costs_one_job_which_another_does() -> None:
    bad, good = Fake("bad", loses=("a",)), Fake("good")
    found, lost = ran(["a", "b", "c"], bad, good)
    assert [found[k].text for k in range(3)] == ["build a", "build b", "build c"]
    assert (lost, found[0].tries, found[0].worker) == ([0], 2, "good")
    assert bad.had == ["a"]  # nothing more


def test_a_job_that_kills_workers_is_given_up() -> None:
    lanes = [Fake(f"w{k}", loses=("a",)) for k in range(5)]
    found, lost = ran(["a", "b"], *lanes)
    assert found[1].text == "build b"
    assert (len(lost), found[0].tries) == (TRIES, TRIES)
    assert "3 workers were lost while they did it: power cut" in str(found[0].failure)


def test_a_lost_process_leaves_its_worker() -> None:
    lane = Fake("w", loses=("a",), kind=ProcessLost)
    found, lost = ran(["a", "b"], lane)
    assert found[1].text == "build b"
    assert lost == [0] * TRIES


def test_without_workers_all_else_fails() -> None:
    found, _ = ran(["a", "b"], Fake("w", loses=("a", "b")))
    assert all("no worker is left" in str(d.failure) for d in found.values())


def test_work_is_found_by_its_word() -> None:
    assert '"dlc": ' in perform("facts", "")
    with pytest.raises(KeyError):
        perform("os:system", "true")
    assert all(":" in place for place in WORK.values())


def test_what_differs_is_named() -> None:
    here = {"dlc": "1.0 (ab)", "plugin c": "1.0 (cd)"}
    assert differences(here, dict(here)) == []
    assert differences(here, {"dlc": "0.9 (ff)", "plugin x": "2"}) == [
        "dlc: 1.0 (ab) here, 0.9 (ff) there",
        "plugin c: 1.0 (cd) here, not installed there",
        "plugin x: not installed here, 2 there",
    ]
