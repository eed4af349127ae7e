"""find-swish: models that spell `swish` out get the op.

y = mul(x, sigmoid(x))           →   y = swish(x)
y = mul(x, sigmoid(mul(b, x)))   →   y = swish(x, b)      b constant, one number per channel
"""

from dataclasses import dataclass

from dlc import Graph, Op, Pass, Report, option
from dlc.graph import Constant
from dlc.ops.elementwise import Mul, Sigmoid
from dlc_example.swish import Swish


@dataclass(frozen=True)
class FindSwish(Pass[Graph, Graph]):
    """Recognise x · sigmoid(x): mul(x, sigmoid(x))  →  swish(x)."""

    name = "find-swish"
    level_in = "ops"
    level_out = "ops"
    beta: bool = option(True, "also where the sigmoid's argument is scaled by a constant per channel")

    def run(self, state: Graph, report: Report) -> Graph:
        """An equal graph."""

        def rule(op: Op) -> Op | None:
            match op:
                case Mul(x, Sigmoid(inner)) | Mul(Sigmoid(inner), x):
                    found = self._swish(x, inner)
                case _:
                    return None
            if found is None:
                report.missed(", ".join(state.origin(op)) or repr(op), "the sigmoid is not of the factor beside it")
            else:
                report.count("swish")
            return found

        return state.rewrite(rule)

    def _swish(self, x: Op, inner: Op) -> Swish | None:
        """x · sigmoid(inner) as one op, if it is one."""
        match inner:
            case _ if inner == x:
                return Swish(x)
            case Mul(Constant() as beta, scaled) | Mul(scaled, Constant() as beta) if self.beta and scaled == x:
                return Swish(x, beta) if beta.shape == x.shape[-1:] else None
            case _:
                return None
