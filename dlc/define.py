"""The vocabulary that op definitions are written in, for plugins and their tests.

    from dlc import Op
    from dlc.define import comp, grid, select

    class LeakyRelu6(Op):
        \"""y = min(x, 6) where x > 0, else alpha·x.\"""

        x: Op
        alpha: float = 0.01

        def define(self, x: Param) -> Comp:
            i = grid(x.shape)
            return comp(i, select(x[i] > 0, apply("min", x[i], 6.0), x[i] * self.alpha))

The ops of the core, for `expand` and for patterns, are in `dlc.ops.elementwise`, `dlc.ops.linear` and so on.
"""

from dlc.kernel.define import Comp, ShapeError, axes, comp, grid, inside, same
from dlc.kernel.expr import Axis, Expr, apply, select
from dlc.kernel.nest import Param
from dlc.kernel.scalar import SCALARS
from dlc.ops.pointwise import Pointwise, at, broadcast, literal, normalized, scalar

__all__ = [
    "SCALARS",
    "Axis",
    "Comp",
    "Expr",
    "Param",
    "Pointwise",
    "ShapeError",
    "apply",
    "at",
    "axes",
    "broadcast",
    "comp",
    "grid",
    "inside",
    "literal",
    "normalized",
    "same",
    "scalar",
    "select",
]
