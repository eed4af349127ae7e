"""What losses, optimizers and initializers of plugins are written with.

    from dlc import Op, option
    from dlc.training.parts import Optimizer, State, times

    @dataclass(frozen=True)
    class SignDescent(Optimizer):
        \"""w ← w - η · sign(g).\"""

        name = "sign-descent"

        def _step(self, w: Op, g: Op, state: State, step: Op, rate: Op) -> tuple[Op, State]:
            return Sub(w, Mul(Sign(g), rate)), {}

They build graphs of ops (`dlc.ops`), except for initializers, which compute arrays.
"""

from dlc.api.training import Classes
from dlc.kernel.define import ShapeError
from dlc.ops.pointwise import scalar
from dlc.training.step.fans import Fans
from dlc.training.step.initializers import Draw, Drawn
from dlc.training.step.loss import Loss, Reduction
from dlc.training.step.optimizer import Optimizer, State, decayed, lerp, times

__all__ = [
    "Classes",
    "Draw",
    "Drawn",
    "Fans",
    "Loss",
    "Optimizer",
    "Reduction",
    "ShapeError",
    "State",
    "decayed",
    "lerp",
    "scalar",
    "times",
]
