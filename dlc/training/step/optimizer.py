"""`Optimizer`: what every optimizer declares, and the arithmetic that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Final

import numpy as np

from dlc.base.narrowing import narrowed, recording
from dlc.base.report import Report
from dlc.base.types import DType, Type, f32
from dlc.graph import Op
from dlc.ops.elementwise import Add, Cast, Mul, Sub
from dlc.ops.pointwise import scalar
from dlc.spec import Configurable, option
from dlc.training.step.schedules import AnySchedule, Constant

L2: Final = "L2 penalty: this much of the weight is added to its gradient"
EPS: Final = "added to the denominator, which may be 0"
"""Meanings of options that several optimizers have."""

State = Mapping[str, Op]
"""Per-weight state by name."""


@dataclass(frozen=True)
class Optimizer(Configurable, ABC):
    """How a weight follows its gradient."""

    name: ClassVar[str]
    lr: float = option(1e-3, "learning rate", low=0)
    schedule: AnySchedule = option(Constant(), "how the learning rate changes over the steps")

    def rate(self, step: Op, dtype: DType = f32) -> Op:
        """The learning rate of step `step` (i64[], counted from 1): dtype[]."""
        return self.schedule.rate(step, self.lr, dtype)

    def state(self, weight: Type) -> Mapping[str, tuple[Type, float]]:
        """What is kept of a weight of this type between steps: name → (type, value before the first step)."""
        return {name: (Type(_work(weight.dtype), weight.shape), start) for name, start in self._kept().items()}

    def update(self, weight: Op, gradient: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        """One step.

        Args:
            weight: The weight: float, of any shape.
            gradient: Its gradient, of its type.
            state: What `state` declares, by name.
            step: i64[], counted from 1.
            rate: Learning rate of this step, a float scalar.

        Returns:
            The new weight, of its type, and the new state.
        """
        work = _work(weight.dtype)
        new, kept = self._step(_as(weight, work), _as(gradient, work), state, step, _as(rate, work))
        return _as(new, weight.dtype), kept

    def _kept(self) -> Mapping[str, float]:
        """Initial values of the state, each of the weight's shape, by name."""
        return {}

    @abstractmethod
    def _step(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        """`update`, all in one type."""


def tell_numbers(optimizer: Optimizer, weights: Iterable[DType], report: Report) -> None:
    """Warn of numbers of an optimizer, as `lr` and `eps`, that the type in which it updates weights cannot hold."""
    work = min(map(_work, weights), key=lambda dtype: dtype.itemsize, default=f32)
    parts = ((optimizer.name, optimizer), (f"{optimizer.name}, {optimizer.schedule.name}", optimizer.schedule))
    with recording() as record:
        for name, part in parts:
            found = {f.name: v for f in fields(part) if isinstance(v := getattr(part, f.name), float)}
            narrowed(np.array(list(found.values())), work, name, (key.replace("_", "-") for key in found))
    record.tell(report, lambda name: (name, ()))


def _work(dtype: DType) -> DType:
    """The type that a weight of this type is updated in."""
    return f32 if dtype.itemsize < f32.itemsize else dtype


def _as(x: Op, dtype: DType) -> Op:
    return x if x.dtype == dtype else Cast(x, to=dtype)


def times(x: Op, factor: float) -> Op:
    """factor · x."""
    return Mul(x, scalar(factor, x.dtype))


def decayed(gradient: Op, weight: Op, decay: float) -> Op:
    """gradient + decay · weight."""
    return Add(gradient, times(weight, decay)) if decay else gradient


def lerp(start: Op, end: Op, part: float) -> Op:
    """start + part · (end - start), from the nearer end as torch.lerp does."""
    if part < 0.5:
        return Add(start, times(Sub(end, start), part))
    return Sub(end, times(Sub(end, start), 1 - part))
