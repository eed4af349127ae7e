"""Optimizers with running means of the gradient and of its square: Adam, AdamW, LAMB.

Bias corrections 1 - βᵗ would lose four digits in f32 where β is near 1 and t small. With h = tanh(-t · ln β / 2) they
are 2h / (1 + h), where nothing cancels.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from dlc.base.diagnostics import ExitCode, error
from dlc.base.types import DType
from dlc.graph import Op
from dlc.ops.elementwise import Add, Cast, Div, Equal, Maximum, Mul, Or, Pow, Sqrt, Sub, Tanh, Where
from dlc.ops.pointwise import scalar
from dlc.ops.reduce import ReduceL2
from dlc.spec import option
from dlc.training.step.optimizer import EPS, L2, Optimizer, State, decayed, lerp, times

_BETAS: Final = "decay of the running means of the gradient and of its square"


@dataclass(frozen=True)
class _Moments(Optimizer, ABC):
    """Base of the optimizers that keep running means of the gradient and of its square."""

    betas: tuple[float, float] = option((0.9, 0.999), _BETAS, low=0, high=1)
    eps: float = option(1e-8, EPS, low=0)

    def __post_init__(self) -> None:
        """Refuse means that never change: their bias cannot be corrected."""
        for k, beta in enumerate(self.betas):
            if not 0 <= beta < 1:
                message = f"{self.name}: beta {k + 1} is {beta}, not at least 0 and below 1"
                raise error("bad-option", message, help="write betas=0.9,0.999", exit_code=ExitCode.USAGE)

    def _kept(self) -> Mapping[str, float]:
        return {"mean": 0.0, "square": 0.0}

    def _means(self, g: Op, state: State) -> dict[str, Op]:
        """m ← m + (1 - β₁)·(g - m), v ← β₂·v + (1 - β₂)·g²."""
        first, second = self.betas
        return {
            "mean": lerp(state["mean"], g, 1 - first),
            "square": Add(times(state["square"], second), times(Mul(g, g), 1 - second)),
        }

    def corrections(self, step: Op, dtype: DType) -> tuple[Op, Op]:
        """1 - β₁ᵗ and 1 - β₂ᵗ."""
        first, second = (one_minus_power(beta, step, dtype) for beta in self.betas)
        return first, second


@dataclass(frozen=True)
class Adam(_Moments):
    """Adam; torch.optim.Adam, Kingma and Ba 2015, algorithm 1.

    w ← w - η/(1 - β₁ᵗ) · m / (√v/√(1 - β₂ᵗ) + eps); with `amsgrad` the largest v so far (Reddi et al. 2018).
    """

    name: ClassVar[str] = "adam"
    weight_decay: float = option(0.0, L2, low=0)
    amsgrad: bool = option(False, "divide by the largest mean square so far")

    def _kept(self) -> Mapping[str, float]:
        return {**super()._kept(), "largest": 0.0} if self.amsgrad else super()._kept()

    def _step(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        return self._adam(w, decayed(g, w, self.weight_decay), state, step, rate)

    def _adam(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        """The step without weight decay."""
        first, second = self.corrections(step, w.dtype)
        new = self._means(g, state)
        square = new["square"]
        if self.amsgrad:
            square = new["largest"] = Maximum(state["largest"], square)
        below = Add(Div(Sqrt(square), Sqrt(second)), scalar(self.eps, w.dtype))
        return Sub(w, Mul(Div(rate, first), Div(new["mean"], below))), new


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay apart from the gradient; torch.optim.AdamW, Loshchilov and Hutter 2019.

    w ← w·(1 - η·λ), then the step of Adam.
    """

    name: ClassVar[str] = "adamw"
    weight_decay: float = option(0.01, "part of the weight, times the rate, that each step takes off", low=0)

    def _step(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        if self.weight_decay:
            w = Mul(w, Sub(scalar(1.0, w.dtype), times(rate, self.weight_decay)))
        return self._adam(w, g, state, step, rate)


@dataclass(frozen=True)
class Lamb(_Moments):
    """LAMB: Adam's direction, scaled per weight to the weight's own norm; You et al. 2020, algorithm 2, with φ(z) = z.

    d = m̂ / (√v̂ + eps) + λ·w;  w ← w - η · ‖w‖/‖d‖ · d. The ratio is 1 where a norm is 0, which the paper leaves open.
    """

    name: ClassVar[str] = "lamb"
    eps: float = option(1e-6, EPS, low=0)
    weight_decay: float = option(0.01, "part of the weight that is added to the direction", low=0)

    def _step(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        first, second = self.corrections(step, w.dtype)
        new = self._means(g, state)
        below = Add(Sqrt(Div(new["square"], second)), scalar(self.eps, w.dtype))
        direction = decayed(Div(Div(new["mean"], first), below), w, self.weight_decay)
        axes, zero = tuple(range(len(w.shape))), scalar(0.0, w.dtype)
        own, other = ReduceL2(w, axes=axes), ReduceL2(direction, axes=axes)
        open_ = Or(Equal(own, zero), Equal(other, zero))
        ratio = Where(open_, scalar(1.0, w.dtype), Div(own, other))
        return Sub(w, Mul(direction, Mul(rate, ratio))), new


def one_minus_power(beta: float, step: Op, dtype: DType) -> Op:
    """1 - betaᵗ: dtype[]. Without cancellation for a beta from 0 to 1: 2h / (1 + h), h = tanh(-t · ln(beta) / 2).

    Args:
        beta: The base; the power of 0 is 0 in all steps.
        step: t, i64[], at least 1.
        dtype: Float type of the result.
    """
    one, exponent = scalar(1.0, dtype), Cast(step, to=dtype)
    if beta == 0:
        return one
    if not 0 < beta < 1:
        return Sub(one, Pow(scalar(beta, dtype), exponent))
    half = Tanh(times(exponent, -math.log(beta) / 2))
    return Div(times(half, 2.0), Add(one, half))
