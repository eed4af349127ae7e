"""What a build may cost. A small file can describe more work than there is time and memory for; the build then ends
with exit code 4, and names the pass, the node of the model and the limit.

    with spending(Budget.parse("seconds=60").for_input(4096)) as spent:
        with spent.at("simplify"):
            charge("elements", 1 << 20, "the constant w")     counted over the whole build
            limit("memory", 1 << 33, "the constant w")        each alone
            tick()                                            cheap: looks at the clock now and then

Outside of `spending` nothing is limited: a program that evaluates a model, or trains it, may take as long as it likes.
Whoever makes something whose size a file decides charges it before it is made.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Final

from dlc.base.diagnostics import DlcError, ExitCode, error, nearest, quote

CODE: Final = "over-budget"
FLAG: Final = "--build-budget"
_UNIT: Final = 4096
"""Bytes of input to which the limits of work belong: a larger file may cost more in proportion."""
_SCALED: Final = ("seconds", "elements")
_TICKS: Final = 63
"""Ticks between two looks at the clock, some milliseconds: a mask of bits."""


@dataclass(frozen=True)
class Budget:
    """Limits of one build. 0 stands for no limit."""

    seconds: float = 20.0
    """Processor time of dlc, without compilers, for every 4 KiB of the model's file."""
    elements: int = 1 << 29
    """Elements of constants that are computed, for every 4 KiB of the model's file."""
    memory: int = 1 << 30
    """Bytes of a single array that is made, or the size of the model's file if that is larger."""
    nodes: int = 1 << 18
    """Ops of a graph, after any pass."""
    kernels: int = 1 << 16
    """Kernels, or steps, of a program."""
    passes: int = 4096
    """Passes of a pipeline."""

    @classmethod
    def parse(cls, text: str, source: str = FLAG) -> Budget:
        """Of `seconds=60,nodes=1000000`; what it does not name stays. Raises DlcError (USAGE)."""
        found: dict[str, float] = {}
        for part in filter(None, (p.strip() for p in text.replace(" ", ",").split(","))):
            key, _, value = part.partition("=")
            kinds = {f.name for f in fields(cls)}
            if key not in kinds:
                help = (
                    f"did you mean {near}?" if (near := nearest(key, kinds)) else f"kinds: {', '.join(sorted(kinds))}"
                )
                raise _bad(f"{source}: a budget has no {quote(key)}", help)
            if not value.replace(".", "", key == "seconds").isdecimal() or len(value) > 18:
                raise _bad(f"{source}: {key} needs a number, not {quote(value)}", f"as {key}=1000; 0 for no limit")
            found[key] = float(value) if key == "seconds" else int(value)
        return replace(cls(), **found)  # type: ignore[arg-type]

    @classmethod
    def unlimited(cls) -> Budget:
        """No limits."""
        return cls(*(0 for _ in fields(cls)))

    def above(self, other: Budget) -> list[str]:
        """The kinds of which it allows more."""
        return [
            f.name for f in fields(self) if (most := getattr(other, f.name)) and not 0 < getattr(self, f.name) <= most
        ]

    def for_input(self, size: int) -> Budget:
        """The limits for a model of so many bytes."""
        times = max(1, -(-size // _UNIT))
        return replace(
            self,
            seconds=self.seconds * times,
            elements=self.elements * times,
            memory=max(self.memory, size) if self.memory else 0,
        )


@dataclass
class Spent:
    """What a build has cost so far."""

    budget: Budget
    step: str = ""
    """What runs: the title of a step."""
    start: float = field(default_factory=time.process_time)
    elements: int = 0

    @contextmanager
    def at(self, step: str) -> Generator[None]:
        """Name what runs inside."""
        before, self.step = self.step, step
        try:
            yield
        finally:
            self.step = before

    def check_clock(self) -> None:
        """Raise DlcError (LIMIT) when the time is used up."""
        most = self.budget.seconds
        if most and time.process_time() - self.start > most:
            raise self.over("seconds", f"the build has taken {most:g} seconds of processor time", most)

    def over(self, kind: str, what: str, most: float) -> DlcError:
        """The error for something above its limit."""
        place = f"{self.step.partition('{')[0]}: " if self.step else ""
        return over_budget(kind, place + what, most)


def over_budget(kind: str, what: str, most: float) -> DlcError:
    """The error for `what`, which takes more than `most` of a kind."""
    return error(
        CODE,
        f"{what}; the budget is {most:,.15g} {'bytes' if kind == 'memory' else kind}",
        notes=(f"it grows with the model's file: {_UNIT >> 10} KiB are a unit",) if kind in _SCALED else (),
        help=f"if this is meant, {FLAG} {kind}=N raises the limit, and {FLAG} {kind}=0 removes it",
        exit_code=ExitCode.LIMIT,
    )


_SPENT: Final[ContextVar[Spent | None]] = ContextVar("spent", default=None)
_counted: Final = count(1).__next__


@contextmanager
def spending(budget: Budget) -> Generator[Spent]:
    """Limit what is charged inside; inside of another one, that one goes on."""
    outer = _SPENT.get()
    if outer is not None:
        yield outer
        return
    spent = Spent(budget)
    token = _SPENT.set(spent)
    try:
        yield spent
    finally:
        _SPENT.reset(token)


@contextmanager
def at(step: str) -> Generator[None]:
    """Name the step that runs inside, for messages."""
    spent = _SPENT.get()
    if spent is None:
        yield
        return
    with spent.at(step):
        yield


def charge_elements(number: int, what: str) -> None:
    """Count elements that are about to be computed. Raises DlcError (LIMIT): together they are too many."""
    spent = _SPENT.get()
    if spent is None:
        return
    spent.elements += number
    most = spent.budget.elements
    if most and spent.elements > most:
        raise spent.over("elements", f"{what} and what was computed before have {spent.elements:,} elements", most)
    spent.check_clock()


def limit(kind: str, number: int, what: str) -> None:
    """Raise DlcError (LIMIT) when `what` has more of a kind than the budget allows one thing to have."""
    spent = _SPENT.get()
    most = getattr(spent.budget, kind) if spent is not None else 0
    if spent is not None and most and number > most:
        unit = "bytes" if kind == "memory" else kind
        raise spent.over(kind, f"{what} has {number:,} {unit}", most)


def check() -> None:
    """Look at the clock, before a piece of work of a millisecond or more. Raises DlcError (LIMIT)."""
    if (spent := _SPENT.get()) is not None:
        spent.check_clock()


def tick() -> None:
    """Count a piece of work of a few microseconds to a millisecond. Raises DlcError (LIMIT): the time is used up."""
    if not _counted() & _TICKS:
        check()


def _bad(message: str, help: str) -> DlcError:
    return error("bad-option", message, help=help, exit_code=ExitCode.USAGE)
