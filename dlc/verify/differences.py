"""Gradients against differences of what they are the gradients of, in double precision.

    ⟨g, d⟩  ≈  (L(w + h·d) - L(w - h·d)) / 2h        d: random signs in every element, or one element alone

Two steps, h and h/2, are extrapolated (Richardson), and how far apart they are tells how sure the difference is: at a
corner, as of relu, or where rounding outweighs the change, they disagree, and another step is taken. A direction in
which no step settles decides nothing and is counted. Steps are relative to the size of the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from dlc.base.types import Array
from dlc.graph.op import Op
from dlc.graph.walk import evaluate_ops, toposort

RELATIVE: Final = 1e-6
"""How far a derivative and a difference may be apart, relative to the larger."""
ABSOLUTE: Final = 1e-8
"""The same, relative to the larger of the loss and all of its derivatives: what rounding makes of differences."""
_STEPS: Final = (1e-4, 1e-5, 1e-6, 1e-3)


@dataclass(frozen=True)
class Subject:
    """What is checked: all of it f64."""

    value: Op
    """A scalar, of its inputs."""
    gradients: Mapping[Op, Op]
    """Input → the gradient of the value with respect to it."""
    names: Mapping[Op, str]
    feeds: Mapping[Op, Array]
    """Values of all inputs."""


@dataclass(frozen=True)
class Direction:
    """One difference."""

    where: tuple[int, ...] | None
    """The element that moved; None: all did."""
    derivative: float
    difference: float
    spread: float
    """How far the differences of two steps are apart."""


@dataclass(frozen=True)
class Checked:
    """The gradient of one weight."""

    name: str
    shape: tuple[int, ...]
    directions: tuple[Direction, ...]
    scale: float
    relative: float
    absolute: float

    def limit(self, d: Direction) -> float:
        """How far derivative and difference may be apart."""
        return self.relative * max(abs(d.derivative), abs(d.difference)) + self.absolute * self.scale

    def error(self, d: Direction) -> float:
        """How far they are, in units in which `relative` is the limit."""
        limit, apart = self.limit(d), abs(d.derivative - d.difference)
        return self.relative * apart / limit if limit else (0.0 if apart == 0 else float("inf"))

    @property
    def settled(self) -> tuple[Direction, ...]:
        """Directions that decide."""
        return tuple(d for d in self.directions if d.spread <= self.limit(d))

    @property
    def worst(self) -> Direction | None:
        """The direction with the largest error, of those that decide."""
        return max(self.settled, key=self.error, default=None)

    @property
    def ok(self) -> bool:
        """Whether something decides, and all that does agrees."""
        worst = self.worst
        return worst is not None and self.error(worst) <= self.relative


@dataclass(frozen=True)
class Differences:
    """A value and its gradients at one point.

    Attributes:
        loss: The value; not finite where nothing can be compared.
        arrays: The gradients.
    """

    subject: Subject
    loss: float
    arrays: Mapping[Op, Array]

    @classmethod
    def at(cls, subject: Subject) -> Differences:
        """Evaluate once."""
        found = evaluate_ops((subject.value, *subject.gradients.values()), subject.feeds)
        return cls(subject, float(found[0]), dict(zip(subject.gradients, found[1:], strict=True)))

    def check(
        self,
        samples: int,
        seed: int,
        relative: float = RELATIVE,
        absolute: float = ABSOLUTE,
        on_weight: Callable[[str], object] = lambda name: None,  # noqa: ARG005
    ) -> list[Checked]:
        """Compare every gradient with differences.

        Args:
            samples: For each weight, so many directions in which all elements move, and so many single elements, of
                which the first is the one with the largest gradient.
            seed: Of the directions and elements.
            relative: See `RELATIVE`.
            absolute: See `ABSOLUTE`.
            on_weight: Called with the name of each weight before it is checked.
        """
        subject = self.subject
        order = toposort((subject.value,), subject.feeds)
        values: dict[Op, Array] = {**subject.feeds}
        values |= zip(order, evaluate_ops(order, subject.feeds), strict=True)
        rng = np.random.default_rng(seed)
        raw: list[tuple[Op, list[Direction]]] = []
        for w in subject.gradients:
            on_weight(subject.names[w])
            along = _along(subject.value, w, order, values)
            raw.append((w, [self._direction(w, d, at, along) for d, at in self._directions(w, samples, rng)]))
        scale = max((abs(d.derivative) for _, ds in raw for d in ds), default=0.0)
        scale = max(scale, abs(self.loss))
        return [Checked(subject.names[w], w.shape, tuple(ds), scale, relative, absolute) for w, ds in raw]

    def _directions(
        self, w: Op, samples: int, rng: np.random.Generator
    ) -> Iterator[tuple[Array, tuple[int, ...] | None]]:
        at, size = self.subject.feeds[w], w.type.size
        if not size:
            return
        usual = float(np.sqrt(np.mean(np.square(at)))) or 1.0
        if size > 1:
            for _ in range(samples):
                yield rng.choice((-usual, usual), w.shape), None
        largest = int(np.argmax(np.abs(self.arrays[w])))
        others = [int(k) for k in rng.permutation(size)[:samples] if k != largest]
        for k in (largest, *others[: samples - 1]):
            place = tuple(int(i) for i in np.unravel_index(k, w.shape))
            direction = np.zeros(w.shape)
            direction[place] = max(abs(float(at[place])), usual)
            yield direction, place

    def _direction(self, w: Op, d: Array, where: tuple[int, ...] | None, along: Callable[[Array], float]) -> Direction:
        at, derivative = self.subject.feeds[w], float(np.sum(self.arrays[w] * d))
        best = Direction(where, derivative, float("nan"), float("inf"))
        for h in _STEPS:
            wide, near = ((along(at + s * d) - along(at - s * d)) / (2 * s) for s in (h, h / 2))
            if (spread := abs(wide - near)) < best.spread:
                best = Direction(where, derivative, (4 * near - wide) / 3, spread)
            if best.spread <= RELATIVE / 10 * abs(best.difference):
                break
        return best


def _along(value: Op, w: Op, order: tuple[Op, ...], values: Mapping[Op, Array]) -> Callable[[Array], float]:
    """The value as a function of one weight: only what depends on it is computed again."""
    moved = {w.digest}
    for op in order:
        if any(x.digest in moved for x in op.operands):
            moved.add(op.digest)
    known = {op: v for op, v in values.items() if op.digest not in moved}

    def at(array: Array) -> float:
        (found,) = evaluate_ops((value,), {**known, w: array})
        return float(found)

    return at
