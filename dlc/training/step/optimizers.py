"""Optimizers: how a step changes a weight, given its gradient, as ops on the two and on the optimizer's own state.

    sgd{lr=0.1 momentum=0.9 nesterov=yes}     adam{lr=1e-3 schedule=cosine{steps=1000}}     lamb{weight-decay=0.01}

`sgd`, `adam`, `adamw`, `adagrad` and `rmsprop` are those of torch.optim of the same name, with its defaults, in the
order of its operations; `lamb` follows the paper. Everything is element by element, but for two norms of `lamb`; what
depends on the step's number only is computed once for all weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from dlc.api.parts import Part
from dlc.base.diagnostics import ExitCode, error
from dlc.graph import Op
from dlc.ops.elementwise import Add, Cast, Div, Equal, Mul, Sqrt, Sub, Where
from dlc.ops.pointwise import scalar
from dlc.spec import Spec, option
from dlc.training.step.adam import Adam, AdamW, Lamb
from dlc.training.step.optimizer import EPS, L2, Optimizer, State, decayed, lerp, times
from dlc.training.step.selection import selected

__all__ = [
    "OPTIMIZERS",
    "Adagrad",
    "Adam",
    "AdamW",
    "AnyOptimizer",
    "Lamb",
    "Optimizer",
    "RmsProp",
    "Sgd",
    "State",
    "parse_optimizer",
]


@dataclass(frozen=True)
class Sgd(Optimizer):
    """Stochastic gradient descent with momentum; torch.optim.SGD, Sutskever et al. 2013.

    b ← μ·b + (1 - dampening)·g, in the first step b ← g;  w ← w - η·b, or w - η·(g + μ·b) with `nesterov`.
    """

    name: ClassVar[str] = "sgd"
    momentum: float = option(0.0, "part of the last step's direction that is kept", low=0)
    dampening: float = option(0.0, "part of the gradient that momentum leaves out")
    nesterov: bool = option(False, "look ahead along the new direction")
    weight_decay: float = option(0.0, L2, low=0)

    def __post_init__(self) -> None:
        """Refuse what torch refuses."""
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            found = f"momentum={self.momentum} dampening={self.dampening}"
            raise error(
                "bad-option",
                f"sgd: nesterov needs a momentum above 0 and no dampening, not {found}",
                help="write sgd{momentum=0.9 nesterov=yes}",
                exit_code=ExitCode.USAGE,
            )

    def _kept(self) -> Mapping[str, float]:
        return {"momentum": 0.0} if self.momentum else {}

    def _step(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        g = decayed(g, w, self.weight_decay)
        if not self.momentum:
            return Sub(w, Mul(g, rate)), {}
        fresh = g
        if self.dampening:
            one, rest = scalar(1.0, g.dtype), scalar(1 - self.dampening, g.dtype)
            fresh = Mul(g, Where(Equal(step, scalar(1, step.dtype)), one, rest))
        direction = Add(times(state["momentum"], self.momentum), fresh)
        ahead = Add(g, times(direction, self.momentum)) if self.nesterov else direction
        return Sub(w, Mul(ahead, rate)), {"momentum": direction}


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Adagrad; torch.optim.Adagrad, Duchi et al. 2011.

    s ← s + g²;  w ← w - η/(1 + (t - 1)·lr-decay) · g / (√s + eps).
    """

    name: ClassVar[str] = "adagrad"
    lr: float = option(1e-2, "learning rate", low=0)
    lr_decay: float = option(0.0, "how fast the rate falls with the steps", low=0)
    weight_decay: float = option(0.0, L2, low=0)
    initial: float = option(0.0, "sum of squares before the first step", low=0)
    eps: float = option(1e-10, EPS, low=0)

    def _kept(self) -> Mapping[str, float]:
        return {"sum": self.initial}

    def _step(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        g = decayed(g, w, self.weight_decay)
        if self.lr_decay:
            passed = Cast(Sub(step, scalar(1, step.dtype)), to=w.dtype)
            rate = Div(rate, Add(scalar(1.0, w.dtype), times(passed, self.lr_decay)))
        total = Add(state["sum"], Mul(g, g))
        return Sub(w, Mul(rate, Div(g, Add(Sqrt(total), scalar(self.eps, w.dtype))))), {"sum": total}


@dataclass(frozen=True)
class RmsProp(Optimizer):
    """RMSProp; torch.optim.RMSprop, Tieleman and Hinton 2012, lecture 6.5; `centered`: Graves 2013, equations 38 to 45.

    v ← α·v + (1 - α)·g²;  d = g / (√v + eps), with `centered` √(v - m²);  w ← w - η·d, or b ← μ·b + d, w ← w - η·b.
    """

    name: ClassVar[str] = "rmsprop"
    lr: float = option(1e-2, "learning rate", low=0)
    alpha: float = option(0.99, "decay of the running mean of squares", low=0, high=1)
    eps: float = option(1e-8, EPS, low=0)
    weight_decay: float = option(0.0, L2, low=0)
    momentum: float = option(0.0, "part of the last step's direction that is kept", low=0)
    centered: bool = option(False, "divide by the deviation: the mean's square is taken off the mean square")

    def _kept(self) -> Mapping[str, float]:
        names = ("square", *(("mean",) if self.centered else ()), *(("momentum",) if self.momentum else ()))
        return dict.fromkeys(names, 0.0)

    def _step(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
        del step
        g = decayed(g, w, self.weight_decay)
        new: dict[str, Op] = {}
        spread = new["square"] = Add(times(state["square"], self.alpha), times(Mul(g, g), 1 - self.alpha))
        if self.centered:
            mean = new["mean"] = lerp(state["mean"], g, 1 - self.alpha)
            spread = Sub(spread, Mul(mean, mean))
        direction = Div(g, Add(Sqrt(spread), scalar(self.eps, w.dtype)))
        if self.momentum:
            direction = new["momentum"] = Add(times(state["momentum"], self.momentum), direction)
        return Sub(w, Mul(direction, rate)), new


AnyOptimizer = Sgd | Adam | AdamW | Adagrad | RmsProp | Lamb
"""What an option that chooses an optimizer takes."""
OPTIMIZERS: Final[Mapping[str, type[Optimizer]]] = {
    kind.name: kind for kind in (Sgd, Adam, AdamW, Adagrad, RmsProp, Lamb)
}
"""Name in a spec → class."""


def parse_optimizer(text: str | Spec, source: str = "optimizer", more: Sequence[Part[Optimizer]] = ()) -> Optimizer:
    """The optimizer that a spec describes: `adam{lr=1e-3}`.

    `more` are those of plugins.

    Raises:
        DlcError: (USAGE) with a caret: the text is no spec, or names an optimizer or option that does not exist.
    """
    return selected(text, source, OPTIMIZERS, "optimizer", "optimizers", more)
