"""`Swish`: an op, declared once; and an equation about it."""

from dlc import Op, equation
from dlc.define import Comp, Param, ShapeError, apply, comp, grid, same
from dlc.graph import Splat


class Swish(Op):
    """y = x · sigmoid(β·x); β is one number per channel, which is the last dimension of x, or 1.

    Ramachandran, Zoph, Le 2017, "Searching for activation functions".
    """

    x: Op
    beta: Op | None = None

    def define(self, x: Param, beta: Param | None) -> Comp:
        i = grid(x.shape)
        if beta is None:
            scaled = x[i]
        else:
            if len(beta.shape) != 1 or not x.shape:
                raise ShapeError(f"beta must be a vector over the channels of x, not {beta.type} for {x.type}")
            same(beta.shape[0], x.shape[-1], "sizes of beta and of the last dimension of x")
            scaled = x[i] * beta[i[-1]]
        return comp(i, x[i] / (apply("exp", -scaled) + 1.0))


@equation(Swish)
def unit_beta(op: Swish) -> Op | None:
    """swish(x, 1) → swish(x)."""
    match op.beta:
        case Splat(value=1.0):
            return Swish(op.x)
        case _:
            return None
