"""The update of a weight, read off the graph: which rate, momentum and decay its new value comes from.

    v' = m·v + g + d·w;   w' = w - r·v'   (with Nesterov's momentum: w' = w - r·(g + d·w + m·v'))

Both are sums of values times constants. So the coefficients of w, v and the gradient g are found by walking through
sums, differences and products, however they are written, and compared with those of the instruction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc.graph import Constant, Input, Op, Splat, evaluate_ops
from dlc.graph.evaluate import is_constant
from dlc.ops.elementwise import Add, Cast, Div, Mul, Neg, Sub
from dlc_backend_s2train.select.effects import is_gradient

_CLOSE = 1e-6
_MORE = "its new value is no SGD step: it depends on more than the weight, its velocity and one gradient"


@dataclass(frozen=True)
class Update:
    """SGD as the instruction does it."""

    gradient: Op
    rate: float
    momentum: float = 0.0
    decay: float = 0.0
    nesterov: bool = False


def linear(op: Op) -> dict[Op, float]:
    """A value as a sum of other values times numbers: value → its factor."""
    factors: dict[Op, float] = {}
    pending: list[tuple[Op, float]] = [(op, 1.0)]
    while pending:
        x, factor = pending.pop()
        match x:
            case Add(a=a, b=b):
                pending += [(a, factor), (b, factor)]
            case Sub(a=a, b=b):
                pending += [(a, factor), (b, -factor)]
            case Neg(x=a) | Cast(x=a):
                pending.append((a, -factor if isinstance(x, Neg) else factor))
            case Mul(a=a, b=b) if (number := _number(b)) is not None:
                pending.append((a, factor * number))
            case Mul(a=b, b=a) if (number := _number(b)) is not None:
                pending.append((a, factor * number))
            case Div(a=a, b=b) if number := _number(b):
                pending.append((a, factor / number))
            case Splat(value=0):
                pass
            case _:
                factors[x] = factors.get(x, 0.0) + factor
    return factors


def _number(op: Op) -> float | None:
    """The number in every element of a constant; None where there is none, or several."""
    if isinstance(op, Splat):
        return float(op.value)
    if not is_constant(op) or op.type.size > 1 or (isinstance(op, Constant) and op.name):
        return None
    (value,) = evaluate_ops((op,), {})
    return float(value.reshape(-1)[0])


def update_of(weight: Input, new: Op, velocity: Input | None, moved: Op | None) -> Update | str:
    """The update that gives `new` for `weight`, and `moved` for its velocity; or why there is none."""
    step = linear(new)
    first = linear(moved) if moved is not None else step
    gradients = [x for x in first if x not in (weight, velocity)]
    if not gradients:
        return "its gradient is zero everywhere"
    if len(gradients) != 1 or any(x not in (weight, velocity, gradients[0]) for x in step):
        return _MORE
    (g,) = gradients
    if not is_gradient(g):
        return f"its new value is no SGD step: it follows the result of {g.text_name}, where a gradient should be"
    if velocity is None:
        rate = -step.get(g, 0.0)
        decay = (1.0 - step.get(weight, 0.0)) / rate if rate else 0.0
        return Update(g, rate, 0.0, decay)
    m, one, decay = first.get(velocity, 0.0), first[g], first.get(weight, 0.0)
    if not math.isclose(one, 1.0, rel_tol=_CLOSE):
        return f"its velocity takes {one:g} times the gradient, where the instruction takes it once (dampening)"
    plain = -step.get(g, 0.0)
    for rate, nesterov in ((plain, False), (plain / (1.0 + m), True)):
        factor = m if not nesterov else m * m
        if math.isclose(-step.get(velocity, 0.0), rate * factor, rel_tol=_CLOSE, abs_tol=1e-12):
            return Update(g, rate, m, decay, nesterov)
    return "its new value is no step along its velocity"
