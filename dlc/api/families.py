"""Families of schedules that plugins offer, as backends that schedule kernels get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlc.api.parts import Part


@dataclass(frozen=True)
class Family(Part[Any]):
    """A family of schedules, a `Choice`, as the hook `dlc_schedules` offers it; imported when a kernel is scheduled."""
