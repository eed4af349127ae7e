"""Learning-rate schedules: the rate of a step, computed in the graph from the step's number.

    constant                              η
    step{every=30 factor=0.1}             η · factor^⌊(t - 1) / every⌋
    cosine{steps=1000 minimum=0}          minimum + (η - minimum) · (1 + cos(π · (t - 1) / steps)) / 2
    warmup{steps=100 then=cosine{…}}      a rising part of η, then another schedule from its own first step on

η is the optimizer's `lr`, t the step, which counts from 1: a schedule of PyTorch that has been stepped t - 1 times.
Rates are accurate to a few units in the last place of their type, also near the end of a cosine, where the sum
1 + cos cancels: sin² is used instead. A step's number is exact up to 2^24 in f32, 2^53 in f64.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from dlc.base.types import DType, Type, f32, i64
from dlc.graph import Op, Splat
from dlc.ops.elementwise import Add, Cast, Div, Equal, Exp, LessOrEqual, Maximum, Minimum, Mul, Sin, Sub, Where
from dlc.ops.pointwise import scalar
from dlc.spec import Configurable, option


@dataclass(frozen=True)
class Schedule(Configurable, ABC):
    """The rate over the steps, as a spec of its own."""

    name: ClassVar[str]

    @abstractmethod
    def rate(self, step: Op, base: float, dtype: DType = f32) -> Op:
        """The learning rate of a step.

        Args:
            step: i64[], counted from 1.
            base: The rate that the schedule scales: the optimizer's `lr`.
            dtype: Float type of the result.

        Returns:
            dtype[].
        """


@dataclass(frozen=True)
class Constant(Schedule):
    """The same rate in every step."""

    name: ClassVar[str] = "constant"

    def rate(self, step: Op, base: float, dtype: DType = f32) -> Op:
        """η."""
        del step
        return Splat(base, Type(dtype, ()))


@dataclass(frozen=True)
class Step(Schedule):
    """A factor every so many steps; torch.optim.lr_scheduler.StepLR."""

    name: ClassVar[str] = "step"
    every: int = option(30, "steps between one change and the next", low=1)
    factor: float = option(0.1, "what the rate is multiplied by at each change", low=0)

    def rate(self, step: Op, base: float, dtype: DType = f32) -> Op:
        """η · factor^⌊(t - 1) / every⌋."""
        changes = Cast(Div(Sub(step, scalar(1, i64)), scalar(self.every, i64)), to=dtype)
        if self.factor == 0:
            return Where(Equal(changes, scalar(0, dtype)), scalar(base, dtype), scalar(0, dtype))
        # Not a power: of the factor rounded to f32 it would be wrong by one more unit with each change.
        return Mul(Exp(Mul(changes, scalar(math.log(self.factor), dtype))), scalar(base, dtype))


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine down to a minimum, where it stays; Loshchilov and Hutter 2017, SGDR, without restarts.

    Up to `steps` it is torch.optim.lr_scheduler.CosineAnnealingLR, which goes up again after them.
    """

    name: ClassVar[str] = "cosine"
    steps: int = option(1000, "steps until the minimum is reached", low=1)
    minimum: float = option(0.0, "rate at the end", low=0)

    def rate(self, step: Op, base: float, dtype: DType = f32) -> Op:
        """minimum + (η - minimum) · sin²(π/2 · left / steps), left = max(steps - (t - 1), 0)."""
        left = Maximum(Sub(scalar(self.steps + 1, i64), step), scalar(0, i64))
        wave = Sin(Mul(Cast(left, to=dtype), scalar(math.pi / 2 / self.steps, dtype)))
        return Add(Mul(Mul(wave, wave), scalar(base - self.minimum, dtype)), scalar(self.minimum, dtype))


@dataclass(frozen=True)
class Warmup(Schedule):
    """A straight line up to the full rate, then another schedule from its first step on.

    torch.optim.lr_scheduler.SequentialLR of LinearLR and the other one, with `steps` as the milestone.
    """

    name: ClassVar[str] = "warmup"
    steps: int = option(5, "steps that the rate rises in; the next one has the full rate", low=1)
    start: float = option(1 / 3, "part of the rate that the first step has", low=0, high=1)
    then: Constant | Step | Cosine = option(Constant(), "schedule of the steps after")

    def rate(self, step: Op, base: float, dtype: DType = f32) -> Op:
        """η · (start + (1 - start) · (t - 1) / steps) while t <= steps, then then(t - steps)."""
        last = scalar(self.steps, i64)
        passed = Cast(Minimum(Sub(step, scalar(1, i64)), last), to=dtype)
        slope = base * (1 - self.start) / self.steps
        rising = Add(Mul(passed, scalar(slope, dtype)), scalar(base * self.start, dtype))
        after = Maximum(Sub(step, last), scalar(1, i64))
        return Where(LessOrEqual(step, last), rising, self.then.rate(after, base, dtype))


AnySchedule = Constant | Step | Cosine | Warmup
"""What the option `schedule` of an optimizer takes."""
