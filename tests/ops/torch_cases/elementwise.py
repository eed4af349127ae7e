"""Gradients of operators on each element."""

# Parameters of lambdas that a table holds have no place for types, and torch's own functions know few.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch.nn import functional as F

from tests.ops.torch_cases.case import INF, NAN, Array, Case, Tensor, f, normal, positive

FAR: Final = f(-800, -30, -1.5, 0, 0.7, 30, 800)
"""Where what is computed in steps overflows."""
X: Final = normal(2, 3)
ALPHA, GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
"""Defaults of Selu: torch has more digits."""

UNARY: Final[dict[str, tuple[Callable[[Tensor], Tensor], Array]]] = {
    "Abs": (torch.abs, FAR),
    "Acos": (torch.acos, f(-1, -0.5, 0, 0.3, 1)),
    "Acosh": (torch.acosh, f(1, 1.5, 30)),
    "Asin": (torch.asin, f(-1, -0.5, 0, 0.3, 1)),
    "Asinh": (torch.asinh, FAR),
    "Atan": (torch.atan, FAR),
    "Atanh": (torch.atanh, f(-0.9, 0, 0.3)),
    "Cos": (torch.cos, FAR),
    "Cosh": (torch.cosh, f(-30, -1.5, 0, 0.7)),
    "Elu": (F.elu, FAR),
    "Celu": (F.celu, FAR),
    "Selu": (lambda x: GAMMA * F.elu(x, ALPHA), FAR),
    "Erf": (torch.erf, FAR),
    "Exp": (torch.exp, f(-800, -1, 0, 3)),
    "HardSwish": (F.hardswish, f(-800, -3, -1.5, 0, 0.7, 3, 4)),
    "Identity": (torch.clone, FAR),
    "Log": (torch.log, f(0, 0.1, 2)),
    "Mish": (F.mish, FAR),
    "Neg": (torch.neg, FAR),
    "Reciprocal": (torch.reciprocal, f(-2, 0, 0.1)),
    "Relu": (F.relu, FAR),
    "Sigmoid": (torch.sigmoid, FAR),
    "Sin": (torch.sin, FAR),
    "Sinh": (torch.sinh, f(-30, -1.5, 0, 0.7)),
    "Softplus": (lambda x: -F.logsigmoid(-x), FAR),
    "Softsign": (F.softsign, FAR),
    "Sqrt": (torch.sqrt, f(0, 0.1, 2)),
    "Tan": (torch.tan, f(-1.5, 0, 0.7, 30)),
    "Tanh": (torch.tanh, FAR),
}


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """With slopes that broadcast."""
    return torch.where(x > 0, x, slope * x)


def shrink(x: Tensor) -> Tensor:
    """Bias 0.25, limit 0.5."""
    return torch.where(x < -0.5, x + 0.25, torch.where(x > 0.5, x - 0.25, torch.zeros_like(x)))


def swish(alpha: float) -> Callable[[Tensor], Tensor]:
    """x · sigmoid(alpha · x)."""
    return lambda x: x * torch.sigmoid(alpha * x)


ACTIVATIONS: Final = (
    Case("Celu", "alpha", (FAR,), lambda x: F.celu(x, 2.5), {"alpha": 2.5}),
    Case("Elu", "alpha", (FAR,), lambda x: F.elu(x, 2.5), {"alpha": 2.5}),
    Case("Selu", "alpha and gamma", (f(-3, 0.5),), lambda x: 2 * F.elu(x, 0.5), {"alpha": 0.5, "gamma": 2.0}),
    Case("Gelu", "exact", (FAR,), F.gelu),
    Case("Gelu", "by tanh", (FAR,), lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"}),
    Case("HardSigmoid", "corners", (f(-9, -3, 0, 1, 3, 9),), F.hardsigmoid, {"alpha": 1 / 6}, rtol=1e-6),
    Case("LeakyRelu", "both sides", (FAR,), lambda x: F.leaky_relu(x, 0.25), {"alpha": 0.25}),
    Case("PRelu", "one slope", (FAR, f(0.25)), F.prelu),
    Case("PRelu", "a slope for each channel", (normal(2, 3, 4), normal(3, 1)), lambda x, s: F.prelu(x, s.reshape(3))),
    Case("PRelu", "a slope for each element", (X, normal(2, 3)), prelu),
    Case("Shrink", "limits", (f(-2, -0.5, 0, 0.5, 2),), shrink, {"bias": 0.25, "lambd": 0.5}),
    Case("ThresholdedRelu", "threshold", (f(-1, 0.5, 2),), lambda x: F.threshold(x, 0.5, 0.0), {"alpha": 0.5}),
    Case("Swish", "alpha 1", (FAR,), F.silu, opset=24),
    Case("Swish", "alpha", (f(-300, -1, 0, 2),), swish(1.5), {"alpha": 1.5}, opset=24),
    Case("SwiGLU", "two operands", (X, normal(2, 3)), lambda a, b: F.silu(a) * b, opset=28),
    Case("Dropout", "at inference", (X,), torch.clone),
)


def broadcast(op: str, fn: Callable[[Tensor, Tensor], Tensor]) -> list[Case]:
    """A binary operator with each operand as the one that broadcasts."""
    shapes = (((2, 3), (2, 3)), ((2, 1), (3,)), ((), (2, 3)), ((2, 3), ()), ((3, 1, 2), (1, 2, 1)), ((0, 3), (1,)))
    return [Case(op, f"{a} and {b}", (positive(*a), positive(*b)), fn) for a, b in shapes]


def listed(*arrays: Array) -> tuple[Array, ...]:
    """A value that is read twice among others."""
    return (*arrays, arrays[0])


def most(*xs: Tensor) -> Tensor:
    """Pairwise, as ties are shared."""
    return xs[0] if len(xs) == 1 else torch.maximum(most(*xs[:-1]), xs[-1])


def least(*xs: Tensor) -> Tensor:
    """Pairwise, as ties are shared."""
    return xs[0] if len(xs) == 1 else torch.minimum(least(*xs[:-1]), xs[-1])


def clip(low: float | None, high: float | None) -> Callable[..., Tensor]:
    """With bounds that are constants."""
    return lambda x, *_: torch.clamp(x, low, high)


def powers(*pairs: tuple[float, float]) -> tuple[Array, Array]:
    """Bases and exponents."""
    return f(*(a for a, _ in pairs)), f(*(b for _, b in pairs))


def power(exponent: float, *x: float) -> Case:
    """A constant exponent."""
    return Case("Pow", f"exponent {exponent}", (f(*x), np.array(exponent)), torch.pow, fixed=(1,))


def multi(op: str, fn: Callable[..., Tensor]) -> list[Case]:
    """An operator of any number of operands."""
    return [
        Case(op, "one operand", (X,), fn),
        Case(op, "broadcasting", (normal(2, 1), normal(3), normal(1, 1, 1)), fn),
        Case(op, "one value twice", listed(normal(2, 3), normal(2, 3)), fn),
    ]


C: Final = np.array([[True, False, True], [False, False, True]])
ARITHMETIC: Final = (
    *broadcast("Add", torch.add),
    *broadcast("Sub", torch.sub),
    *broadcast("Mul", torch.mul),
    *broadcast("Div", torch.div),
    *broadcast("Pow", torch.pow),
    Case("Mul", "a value with itself", (X, X), torch.mul),
    Case("Sub", "a value from itself", (X, X), torch.sub),
    Case("Div", "by zero", (f(1, 0), f(0, 0)), torch.div),
    Case("Pow", "hard points", powers((0, 0), (0, 0.5), (0, 2), (-2, 2), (-2, 3), (2, -1), (0, 1), (2, 0)), torch.pow),
    power(0, 0, -2, 3),
    power(0.5, 0, 2),
    power(1, 0, -2),
    power(2, 0, -2),
    power(3, 0, -2),
    power(-1, -2, 0),
    power(1.5, 0, 2),
    Case("Mod", "of C", (f(5, -5, 7.5), f(3, 3, -2)), torch.fmod, {"fmod": 1}),
    Case("Mod", "of C, broadcasting", (positive(2, 1), f(0.7, 0.9)), torch.fmod, {"fmod": 1}),
    *multi("Sum", lambda *xs: sum(xs[1:], xs[0])),
    *multi("Mean", lambda *xs: sum(xs[1:], xs[0]) / len(xs)),
    *multi("Max", most),
    *multi("Min", least),
    Case("Max", "equal operands", (f(2, 1), f(2, 5)), most),
    Case("Min", "equal operands", (f(2, 1), f(2, 5)), least),
    Case("Clip", "at its bounds", (f(-2, -1, 0, 1, 3), f(-1)[0], f(1)[0]), clip(-1, 1), fixed=(1, 2)),
    Case("Clip", "only from below", (f(-2, -1, 0), f(-1)[0]), clip(-1, None), fixed=(1,)),
    Case("Clip", "only from above", (f(0, 1, 3), None, f(1)[0]), clip(None, 1), fixed=(2,)),
    Case("Clip", "bounds that are computed", (f(-2, 0.5, 3), np.array(-1.0), np.array(1.0)), torch.clamp),
    Case("Where", "three shapes", (C, normal(3), normal(2, 1)), torch.where),
    Case("Where", "scalars", (C, np.array(2.0), np.array(3.0)), torch.where),
    Case("Where", "one condition", (np.array([[True]]), normal(2, 3), normal(3)), torch.where),
    Case("Where", "what is not chosen is no number", (C[0], f(1, NAN, INF), f(NAN, 2, INF)), torch.where),
    Case("Where", "a value in both branches", (C, X, X), torch.where),
    Case("Cast", "to single precision and back", (X,), lambda x: x.float(), {"to": 1}),
    Case("Cast", "to integers", (X,), lambda x: x.long(), {"to": 7}),
    Case("CastLike", "to single precision", (X, np.zeros(1, np.float32)), lambda x, y: x.float(), fixed=(1,)),
)

CASES: Final[tuple[Case, ...]] = (
    *(Case(op, "hard points", (x,), fn) for op, (fn, x) in UNARY.items()),
    *(Case(op, "a matrix", (positive(2, 3) / 2.5 + (op == "Acosh"),), fn) for op, (fn, _) in UNARY.items()),
    *ACTIVATIONS,
    *ARITHMETIC,
)
