"""`Cotangent`: a gradient that stays named, for targets that have an instruction for it.

    y = f(x, w), dy   →   dx = cotangent(y, dy, x, w) operand=0

It computes nothing of its own: its expansion is what `vjp` of the op, or the derivative of its kernel, gives.
"""

from __future__ import annotations

from dlc.base.diagnostics import error
from dlc.base.types import Type
from dlc.graph.op import Op


class Cotangent(Op):
    """What the cotangent `seed` of the op `of` adds to the cotangent of one of its operands.

    `of` is there for what it is, more than for its value; `xs` are its operands, because a derivative may read them.
    `name` is the name of that op: when a pass has rewritten that op, the expansion is refused.
    """

    of: Op
    seed: Op
    xs: tuple[Op, ...] = ()
    operand: int = 0
    name: str = ""

    @classmethod
    def make(cls, of: Op, seed: Op, operand: int) -> Cotangent:
        """The cotangent of operand number `operand` of an op with a single result."""
        return cls(of, seed, of.operands, operand, of.text_name)

    def derive_types(self) -> tuple[Type, ...]:
        return self.xs[self.operand].types

    def expand(self) -> Op | None:
        from dlc.graph.gradient import cotangent_of

        if self.of.text_name != self.name or self.of.operands != self.xs:
            raise error(
                "lost-op",
                f"a gradient of {self.name} is left, but the op itself has become {self.of.text_name}",
                help="run passes that rewrite ops before autodiff, or leave `named` out",
            )
        return cotangent_of(self.of, self.seed, self.operand)
