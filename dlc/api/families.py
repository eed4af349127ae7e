"""Families of schedules that plugins offer, as backends that schedule kernels get them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc.kernel.schedules.choice import Choice


@dataclass(frozen=True)
class Family:
    """A family of schedules, as the hook `dlc_schedules` offers it. It is imported when a kernel is scheduled."""

    name: str
    """The word that selects it in the text of a schedule."""
    title: str
    """How messages call the plugin: "timer (dlc-timer 1.2)"."""
    packages: tuple[str, ...]
    """Top-level packages whose code it is: part of the cache keys of the steps that choose schedules."""
    load: Callable[[], type[Choice]]
    """Import the class; raises DlcError (PLUGIN)."""
