"""What `dlc bench` calls in turn, for each number of threads, and the results of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.cli.terminal import Terminal

if TYPE_CHECKING:
    from dlc.api.artifact import KernelFunction
    from dlc.api.backend import Backend
    from dlc.api.plan import Plan
    from dlc.api.profile import Limits, Profiler
    from dlc.api.program import Program
    from dlc.base.types import Array
    from dlc.bench.peers import Peer
    from dlc.bench.result import Result, Row
    from dlc.bench.times import Length, Times
    from dlc.record.record import Record

_STEPS = "steps"
"""Name of the program that tells the time of its steps, among those that are called in turn."""


@dataclass(frozen=True)
class Opened:
    """What is measured."""

    program: Program
    backend: Backend
    model: Path | None
    """The file that it was built from just now."""
    plan: Plan | None
    profiler: Profiler | None
    profiled: Program | None
    """The same program, which tells the times of its steps."""
    no_steps: str = ""
    """Why these are not measured."""
    record: Callable[[], Record] | None = None
    """Gives the record of its build; None: it was built before."""
    functions: Mapping[str, KernelFunction] = field(default_factory=dict[str, "KernelFunction"])
    """By digest of a kernel, what was counted of it."""


def measure(
    terminal: Terminal,
    opened: Sequence[Opened],
    subject: str,
    files: list[str],
    seed: int,
    names: tuple[str, ...],
    length: Length,
    pause: float,
) -> tuple[Result, ...]:
    """A result for each number of threads; `pause` in seconds, 0: calls after a pause are not measured."""
    from dlc.cli.programs import gather_feeds, tell_random

    feeds, random = gather_feeds(opened[0].program, files, seed)
    tell_random(terminal, random, seed)
    sides = [_side(terminal, each, names, feeds) for each in opened]
    calls = [_calls(side, feeds) for side in sides]
    times, steps = _times(terminal, sides, calls, feeds, length)
    paused = _paused_times(terminal, calls, length, pause)
    made = zip(sides, times, paused, steps, strict=True)
    return tuple(_result(side, names, t, p, s, (subject, seed, random, pause)) for side, t, p, s in made)


@dataclass(frozen=True)
class _Side:
    """What is called with one number of threads."""

    opened: Opened
    found: Mapping[str, Array]
    """Outputs of dlc's program."""
    peers: Mapping[str, Peer]
    absent: Mapping[str, Row]
    limits: Limits | None


def _side(terminal: Terminal, opened: Opened, names: tuple[str, ...], feeds: dict[str, Array]) -> _Side:
    from dlc.cli.programs import call

    found = call(opened.program, feeds)
    peers, absent = _open_peers(terminal, opened, names, feeds)
    limits = None
    if opened.profiler:
        with terminal.progress() as progress:
            progress.at("limits of this machine")
            limits = opened.profiler.limits()
    return _Side(opened, found, peers, absent, limits)


def _result(
    side: _Side,
    names: tuple[str, ...],
    times: Mapping[str, Times],
    paused: Mapping[str, Times],
    steps: Sequence[Any],
    about: tuple[str, int, tuple[str, ...], float],
) -> Result:
    from dlc.bench.result import OWN, Result, Row
    from dlc.bench.steps import measured, works
    from dlc.version import __version__

    opened, limits = side.opened, side.limits
    subject, seed, random, pause = about
    own = works(opened.plan, opened.functions) if opened.plan else ()
    known = [w.operations for w in own if w.operations is not None]
    rows = [Row(OWN, __version__, times[OWN])]
    rows += [side.absent.get(n) or _row(side.peers[n], times[n], side.found, opened.backend) for n in names]
    rows = [replace(row, paused=paused.get(row.name)) for row in rows]
    return Result(
        subject,
        opened.backend.brief,
        seed,
        random,
        tuple(rows),
        sum(known) if own and len(known) == len(own) else None,
        limits,
        measured(own, steps, limits) if limits else (),
        opened.no_steps,
        opened.backend.threads_of_call(),
        pause,
    )


def _open_peers(
    terminal: Terminal, opened: Opened, names: tuple[str, ...], feeds: Mapping[str, Array]
) -> tuple[dict[str, Peer], dict[str, Row]]:
    """(peers that can be measured, rows of the others)."""
    from dlc.bench.peers import Unavailable, open_peer
    from dlc.bench.result import Row

    found: dict[str, Peer] = {}
    absent: dict[str, Row] = {}
    with terminal.progress() as progress:
        for name in names:
            progress.at(name)
            try:
                found[name] = open_peer(name, opened.model, feeds, opened.backend.threads_of_call())
            except Unavailable as problem:
                absent[name] = Row(name, reason=str(problem))
    return found, absent


def _row(peer: Peer, times: Times, own: Mapping[str, Array], backend: Backend) -> Row:
    from dlc.bench.result import Row, differences

    return Row(peer.name, peer.version, times, differences=differences(own, peer.run(), backend.tolerance))


Calls = Mapping[str, Callable[[], object]]
"""What calls each program once, by name."""


def _buffers(side: _Side) -> dict[str, Array]:
    import numpy as np

    return {name: np.empty_like(array) for name, array in side.found.items()}


def _calls(side: _Side, feeds: dict[str, Array]) -> Calls:
    """Calls of dlc's program and the others."""
    from dlc.bench.result import OWN
    from dlc.cli.programs import call

    own = partial(call, side.opened.program, feeds, _buffers(side))
    return {OWN: own, **{name: peer.run for name, peer in side.peers.items()}}


def _paused_times(terminal: Terminal, calls: Sequence[Calls], length: Length, pause: float) -> list[dict[str, Times]]:
    """Of each side times of every program by name, of calls after a pause."""
    from dlc.bench.times import after_pauses

    if not pause:
        return [{} for _ in calls]
    every = {(k, name): one for k, side in enumerate(calls) for name, one in side.items()}
    with terminal.bar(length.pauses(pause) * len(every)) as bar:

        def shown(done: int, of: int) -> None:
            if bar.due:
                bar.at(done, f"call {done:,} of {of:,} after a pause")

        times = after_pauses(every, length, pause, shown)
    return [{name: t for (k, name), t in times.items() if k == n} for n in range(len(calls))]


def _times(
    terminal: Terminal, sides: Sequence[_Side], own: Sequence[Calls], feeds: dict[str, Array], length: Length
) -> tuple[list[dict[str, Times]], list[list[Any]]]:
    """Of each side times of every program by name, back to back, and of every round the seconds of every step."""
    from dlc.bench.result import OWN
    from dlc.bench.times import in_turn

    calls: dict[tuple[int, str], Callable[[], object]] = {}
    steps: list[list[Any]] = [[] for _ in sides]
    for k, side in enumerate(sides):
        profiler, profiled = side.opened.profiler, side.opened.profiled
        calls |= {(k, name): one for name, one in own[k].items()}
        if profiler is not None and profiled is not None:
            calls[k, _STEPS] = partial(_add_steps, steps[k], profiler, profiled, feeds, _buffers(side))
    many = max(side.opened.backend.threads_of_call() for side in sides) > 1
    with terminal.bar(length.rounds) as bar:

        def shown(done: int) -> None:
            if bar.due:
                bar.at(done, f"round {done:,}")

        times = in_turn(calls, length, shown, rest=many and any(side.peers for side in sides))
    found = [{name: t for (k, name), t in times.items() if k == n} for n in range(len(sides))]
    # Without those to warm up.
    return found, [s[-len(t[OWN].seconds) :] for t, s in zip(found, steps, strict=True)]


def _add_steps(
    into: list[Any], profiler: Profiler, program: Program, feeds: dict[str, Array], buffers: dict[str, Array]
) -> None:
    into.append(profiler.seconds(program, feeds, buffers))
