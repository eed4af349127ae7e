"""`Lion`: an optimizer that follows the sign of a running mean."""

from collections.abc import Mapping
from dataclasses import dataclass

from dlc import Op, option
from dlc.ops.elementwise import Mul, Sign, Sub
from dlc.training.parts import Optimizer, State, decayed, lerp


@dataclass(frozen=True)
class Lion(Optimizer):
    """Lion; Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2.

    w ← w - η·(sign(β₁·m + (1 - β₁)·g) + λ·w);  m ← β₂·m + (1 - β₂)·g.
    """

    name = "lion"
    lr: float = option(1e-4, "learning rate", low=0)
    betas: tuple[float, float] = option((0.9, 0.99), "decay of the mean for the step and for the state", low=0, high=1)
    weight_decay: float = option(0.0, "part of the weight, times the rate, that each step takes off", low=0)

    def _kept(self) -> Mapping[str, float]:
        return {"mean": 0.0}

    def _step(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        del step
        now, later = self.betas
        direction = decayed(Sign(lerp(state["mean"], g, 1 - now)), w, self.weight_decay)
        return Sub(w, Mul(direction, rate)), {"mean": lerp(state["mean"], g, 1 - later)}
