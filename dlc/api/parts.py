"""What plugins offer by name beside what comes with dlc, as whoever chooses among it gets it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Part(Generic[T]):
    """A class that a plugin offers; it is imported when a spec selects it."""

    name: str
    """The word that selects it in a spec."""
    title: str
    """How messages call the plugin: "timer (dlc-timer 1.2)"."""
    packages: tuple[str, ...]
    """Top-level packages whose code it is: part of the cache keys of the steps that use it."""
    load: Callable[[], type[T]]
    """Import the class; raises DlcError (PLUGIN)."""


@dataclass(frozen=True)
class TrainingParts:
    """What plugins add to training steps: of which type each is says `dlc.training.parts`."""

    losses: tuple[Part[Any], ...] = ()
    optimizers: tuple[Part[Any], ...] = ()
    initializers: tuple[Part[Any], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return any(getattr(self, f.name) for f in fields(self))
