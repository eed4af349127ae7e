"""`Check`, what a check finds, and the two ways in which it finds nothing right."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dlc.plugins.entry import Entry, Kind
    from dlc.verify.kit.subject import Subject

State = Literal["ok", "failed", "skipped"]


class Wrong(Exception):
    """A check failed: what is wrong, with the numbers, and what to do."""

    def __init__(self, text: str, help: str = "") -> None:
        """`help` is what the author of the plugin can do."""
        super().__init__(text)
        self.help = help


class Skipped(Exception):
    """A check has nothing to run on: why, and what it would need."""

    def __init__(self, text: str, help: str = "") -> None:
        """`help` is what would make it run."""
        super().__init__(text)
        self.help = help


@contextmanager
def tried(what: str) -> Generator[None]:
    """Whatever is raised inside, apart from what a check says itself, is told with `what` was tried."""
    try:
        yield
    except (Wrong, Skipped):
        raise
    except Exception as problem:
        problem.add_note(what)
        raise


def _always(*_: object) -> bool:
    return True


@dataclass(frozen=True)
class Check:
    """Something that the kit asks of a plugin, or of each thing of one kind that it offers."""

    name: str
    """As `--only` takes it: "op-gradient"."""
    asks: str
    """What has to hold, in a phrase."""
    run: Callable[[Subject, Any], str]
    """What was found right. Raises Wrong or Skipped; any other exception is a failure of what is tested."""
    kind: Kind | None = None
    """What it is asked of; None: of the plugin as a whole, once, with None in the place of an entry."""
    level: int = 0
    """Of backends: the level of a port from which on it has to hold; 0: always."""
    concerns: Callable[[Subject, Any], bool] = _always
    """Whether it is asked at all of a thing of its kind."""


@dataclass(frozen=True)
class Case:
    """A check of one thing."""

    check: Check
    entry: Entry | None
    plugin: str

    @property
    def subject(self) -> str:
        """What is tested: "op swish"."""
        return self.plugin if self.entry is None else self.entry.name

    def __str__(self) -> str:
        """As pytest names it."""
        return f"{self.check.name}-{self.subject}"


@dataclass(frozen=True)
class Result:
    """What became of a case."""

    check: str
    subject: str
    state: State
    text: str
    """What was found right or wrong, or why nothing was looked at."""
    help: str = ""
    """What to do."""
    level: int = 0
    seconds: float = 0.0
