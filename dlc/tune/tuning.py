"""All kernels of a program in a given time: those that take most of it first, each in its share of what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Final

from dlc.tune.executors import Lane
from dlc.tune.kernels import ProgramKernel
from dlc.tune.place import Failed, Request, Tuned

LEAST_SECONDS: Final = 0.5
"""For a kernel, however small its share is."""


@dataclass
class Progress:
    """What was found so far; an interruption leaves it as it is.

    Attributes:
        tuned: By kernel.
        failed: Kernels of which nothing is known, and why.
        interrupted: Whether the user ended it.
    """

    tuned: dict[str, Tuned] = field(default_factory=dict[str, Tuned])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    interrupted: bool = False


def tune_all(
    kernels: Sequence[ProgramKernel],
    weights: Mapping[str, float],
    lanes: Sequence[Lane],
    asked: Callable[[ProgramKernel, float], Request],
    budget: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    on_start: Callable[[ProgramKernel], None] = lambda kernel: None,  # noqa: ARG005
    on_found: Callable[[ProgramKernel, Tuned], None] = lambda kernel, found: None,  # noqa: ARG005
) -> Progress:
    """Tune kernels until all are done or the time is over; then no further one begins.

    Args:
        kernels: In any order.
        weights: By digest, how much of the program's time they are estimated to take.
        lanes: Where.
        asked: The request for a kernel and so many seconds.
        budget: Seconds for all.
        clock: Tells seconds.
        on_start: Told every kernel that begins.
        on_found: Told every kernel that is done.
    """
    pending = sorted(kernels, key=lambda k: (-weights[k.digest], k.digest))
    begin, progress = clock(), Progress()
    running: dict[Future[Tuned | Failed], tuple[Lane, ProgramKernel]] = {}
    idle = list(lanes)
    try:
        while True:
            left = budget - (clock() - begin)
            if idle and pending and left > 0:
                part = weights[pending[0].digest] / (sum(weights[k.digest] for k in pending) or 1.0)
                kernel, lane = pending.pop(0), idle.pop(0)
                on_start(kernel)
                seconds = max(LEAST_SECONDS, left * min(1.0, part * len(lanes)))
                running[lane.submit(asked(kernel, seconds))] = lane, kernel
            elif running:
                wait(running, return_when=FIRST_COMPLETED)
            else:
                return progress
            idle += [_finished(f, running, progress, on_found) for f in list(running) if f.done()]
    except KeyboardInterrupt:
        progress.interrupted = True
        for future in running:
            future.cancel()
        return progress


def _finished(
    future: Future[Tuned | Failed],
    running: dict[Future[Tuned | Failed], tuple[Lane, ProgramKernel]],
    progress: Progress,
    on_found: Callable[[ProgramKernel, Tuned], None],
) -> Lane:
    """Keep a result; the lane that is free again."""
    lane, kernel = running.pop(future)
    try:
        found = future.result()
    except Exception as problem:  # a worker may be lost, run out of memory, or lack dlc
        if not lane.remote:
            raise
        found = Failed(f"worker {lane.name}: {type(problem).__name__}: {problem}")
    if isinstance(found, Failed):
        progress.failed[kernel.digest] = found.message
    else:
        progress.tuned[kernel.digest] = found
        on_found(kernel, found)
    return lane
