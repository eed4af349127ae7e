"""Pieces of work over lanes: each lane has one at a time, and what a lost worker had is done by another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Final

from dlc.driver.executors.lane import Lane, ProcessLost, WorkerLost

TRIES: Final = 3
"""Workers that may be lost with one piece of work, before it is taken for the cause."""


@dataclass(frozen=True)
class Done:
    """What became of a piece of work."""

    number: int
    """Of the piece, from 0."""
    worker: str
    tries: int
    """Workers that had it."""
    text: str = ""
    """What it gave."""
    failure: BaseException | None = None
    """Why it gave nothing."""


def run_all(
    work: str,
    texts: Sequence[str],
    lanes: Sequence[Lane],
    on_start: Callable[[int, Lane], None],
    on_done: Callable[[Done], None],
    on_lost: Callable[[int, Lane, str], None],
) -> None:
    """Do all pieces; each is told to `on_done` once, from this thread, in the order in which they end.

    Args:
        work: Their kind.
        texts: The pieces.
        lanes: At least one.
        on_start: Told (piece, lane) when one begins.
        on_done: Told what became of a piece.
        on_lost: Told (piece, lane, reason) when a worker is lost; its lane is used again if only its process was.
    """
    pending, idle = list(range(len(texts))), list(lanes)
    tries = [0] * len(texts)
    running: dict[Future[str], tuple[Lane, int]] = {}
    last = WorkerLost("no worker is left")
    while pending or running:
        while pending and idle:
            number, lane = pending.pop(0), idle.pop(0)
            tries[number] += 1
            on_start(number, lane)
            running[lane.submit(work, texts[number])] = lane, number
        if not running:
            for number in pending:
                on_done(Done(number, "", tries[number], failure=last))
            return
        # Short waits: an interruption reaches Python between two of them.
        done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
        for future in done:
            lane, number = running.pop(future)
            problem = future.exception()
            if not isinstance(problem, WorkerLost):
                idle.append(lane)
                text = "" if problem is not None else future.result()
                on_done(Done(number, lane.name, tries[number], text, problem))
                continue
            on_lost(number, lane, str(problem))
            if isinstance(problem, ProcessLost):
                idle.append(lane)
            if tries[number] < TRIES:
                pending.insert(0, number)
            else:
                lost = WorkerLost(f"{TRIES} workers were lost while they did it: {problem}")
                on_done(Done(number, lane.name, tries[number], failure=lost))
