"""All kernels of a program in a given time, on computers that are made up."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from dlc.api.tuning import Fingerprint, Record
from dlc.kernel.text import parse_kernel
from dlc.tune.kernels import ProgramKernel
from dlc.tune.place import Failed, Request, Tuned
from dlc.tune.tuning import LEAST_SECONDS, tune_all

KERNEL = parse_kernel("kernel(f32[4]) -> (f32[4]) {\n  r0[i] = p0[i]+1.0\n}")
WHERE = Fingerprint("m", "c", "p")
WEIGHTS = {"a": 1.0, "b": 6.0, "c": 3.0}


def kernel(digest: str) -> ProgramKernel:
    return ProgramKernel(digest, (), 1, KERNEL, "", {}, {}, (), 0)


KERNELS = [kernel(d) for d in WEIGHTS]


def asked(kernel: ProgramKernel, seconds: float) -> Request:
    return Request(kernel, "c", "order", 4, 0, seconds)


@dataclass
class Clock:
    """Time passes where work is done."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Lane:
    """A computer on which everything takes a part of the time that it may take."""

    clock: Clock
    part: float = 1.0
    name: str = "made up"
    remote: bool = True
    requests: list[Request] = field(default_factory=list[Request])
    breaks: dict[str, BaseException] = field(default_factory=dict[str, BaseException])

    def submit(self, request: Request) -> Future[Tuned | Failed]:
        self.requests.append(request)
        self.clock.now += self.part * request.seconds
        done: Future[Tuned | Failed] = Future()
        problem = self.breaks.get(request.kernel.digest)
        if isinstance(problem, KeyboardInterrupt):
            raise problem
        if problem:
            done.set_exception(problem)
        else:
            done.set_result(Tuned(Record(request.kernel.digest, WHERE, (), "loops", "loops", 1, 1, 1), 1))
        return done


def test_kernels_share_the_time_by_their_weight() -> None:
    clock = Clock()
    lane = Lane(clock)
    found = tune_all(KERNELS, WEIGHTS, [lane], asked, 20.0, clock=clock)
    assert [(r.kernel.digest, r.seconds) for r in lane.requests] == [("b", 12.0), ("c", 6.0), ("a", 2.0)]
    assert set(found.tuned) == set(WEIGHTS)
    assert clock.now == 120.0


def test_what_is_left_over_goes_to_the_others() -> None:
    clock = Clock()
    lane = Lane(clock, part=0.5)
    tune_all(KERNELS, WEIGHTS, [lane], asked, 20.0, clock=clock)
    assert [r.seconds for r in lane.requests] == [12.0, 14 * 3 / 4, 20 - 6 - 14 * 3 / 8]


def test_nothing_begins_when_the_time_is_over() -> None:
    clock = Clock()
    lane = Lane(clock, part=2.0)
    found = tune_all(KERNELS, WEIGHTS, [lane], asked, 20.0, clock=clock)
    assert list(found.tuned) == ["b"]
    assert not found.interrupted


def test_a_kernel_of_little_weight_gets_a_little_time() -> None:
    clock = Clock()
    lane = Lane(clock, part=0.0)
    tune_all(KERNELS[:2], {"a": 1e-9, "b": 1.0}, [lane], asked, 2.0, clock=clock)
    assert [r.seconds for r in lane.requests] == [pytest.approx(2.0), 2.0]
    lane.requests.clear()
    tune_all(KERNELS, {"a": 1e-9, "b": 1e-9, "c": 1.0}, [lane], asked, 0.7, clock=clock)
    assert lane.requests[-2].seconds == LEAST_SECONDS


def test_an_interruption_keeps_what_was_found() -> None:
    clock = Clock()
    lane = Lane(clock, breaks={"c": KeyboardInterrupt()})
    seen: list[str] = []
    found = tune_all(KERNELS, WEIGHTS, [lane], asked, 20.0, clock=clock, on_found=lambda k, _: seen.append(k.digest))
    assert found.interrupted
    assert list(found.tuned) == seen == ["b"]


def test_a_worker_that_breaks_off_takes_one_kernel_with_it() -> None:
    clock = Clock()
    lane = Lane(clock, breaks={"b": RuntimeError("killed")})
    found = tune_all(KERNELS, WEIGHTS, [lane], asked, 20.0, clock=clock)
    assert found.failed == {"b": "worker made up: RuntimeError: killed"}
    assert set(found.tuned) == {"a", "c"}


def test_a_bug_in_this_process_is_no_failure_of_a_kernel() -> None:
    clock = Clock()
    lane = Lane(clock, remote=False, breaks={"b": RuntimeError("bug")})
    with pytest.raises(RuntimeError, match="bug"):
        tune_all(KERNELS, WEIGHTS, [lane], asked, 20.0, clock=clock)


def test_several_computers_have_a_kernel_each() -> None:
    clock = Clock()
    lanes = [Lane(clock, part=0.0), Lane(clock, part=0.0)]
    found = tune_all(KERNELS, WEIGHTS, lanes, asked, 20.0, clock=clock)
    assert set(found.tuned) == set(WEIGHTS)
    assert sum(len(lane.requests) for lane in lanes) == 3
    assert lanes[0].requests[0].seconds == 20.0 * min(1.0, 0.6 * 2)
