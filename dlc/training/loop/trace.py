"""`Trace`: a curve of bounded size, however many points it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

LIMIT: Final = 600
"""Points that are kept: more than a drawing has room for."""


@dataclass
class Trace:
    """Means of `width` successive values each; when there are too many, neighbours are joined."""

    width: int = 1
    points: list[float] = field(default_factory=list[float])
    pending: list[float] = field(default_factory=list[float])
    """Values that do not make a point yet."""

    def add(self, value: float) -> None:
        """The next value."""
        self.pending.append(value)
        if len(self.pending) < self.width:
            return
        self.points.append(sum(self.pending) / self.width)
        self.pending.clear()
        if len(self.points) >= LIMIT:
            self.points = [(a + b) / 2 for a, b in zip(self.points[::2], self.points[1::2], strict=True)]
            self.width *= 2

    def drawn(self) -> Sequence[tuple[float, float]]:
        """(how many values lie before its middle, mean), in order."""
        found = [((k + 0.5) * self.width, mean) for k, mean in enumerate(self.points)]
        if self.pending:
            at = len(self.points) * self.width + len(self.pending) / 2
            found.append((at, sum(self.pending) / len(self.pending)))
        return found

    def json(self) -> Mapping[str, Any]:
        """For a checkpoint."""
        return {"width": self.width, "points": self.points, "pending": self.pending}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Trace:
        """The inverse of `json`; raises what wrong types raise."""
        return cls(int(values["width"]), [float(x) for x in values["points"]], [float(x) for x in values["pending"]])
