"""Kinds of nodes that work element by element."""

from __future__ import annotations

import numpy as np

from tests.fuzz.drawing import Maker
from tests.fuzz.narrow import code
from tests.fuzz.sizes import Refused
from tests.fuzz.values import FLOATS, INTEGERS, UNSIGNED, Value

SMOOTH = ("Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Softplus", "Softsign", "Atan", "Asinh", "Neg", "Abs", "Relu")
ACTIVATIONS = ("Elu", "Selu", "LeakyRelu", "HardSigmoid", "HardSwish", "Celu", "ThresholdedRelu", "Mish", "Gelu")
STEPS = ("Floor", "Ceil", "Round", "Sign")
BOUNDED = {
    "Exp": (-4.0, 4.0),
    "Sinh": (-4.0, 4.0),
    "Cosh": (-4.0, 4.0),
    "Tan": (-1.4, 1.4),
    "Asin": (-1.0, 1.0),
    "Acos": (-1.0, 1.0),
    "Atanh": (-0.9, 0.9),
    "Acosh": (1.0, 9.0),
    "Sqrt": (0.0, 9.0),
    "Log": (0.1, 9.0),
}


def scalar(m: Maker, x: Value, value: float) -> Value:
    """A constant of x's element type."""
    return m.constant(np.array(value, x.dtype))


def clipped(m: Maker, x: Value, low: float, high: float) -> Value:
    return m.node("Clip", x, scalar(m, x, low), scalar(m, x, high))


def smooth(m: Maker) -> None:
    m.node(m.random.choice(SMOOTH), m.any("f"))


def activation(m: Maker) -> None:
    x, op = m.any("f"), m.random.choice(ACTIVATIONS)
    alpha = {"alpha": m.one(0.1, 0.5, 1.5)} if op in ("Elu", "LeakyRelu", "Celu", "ThresholdedRelu") else {}
    if op == "Gelu" and m.chance(0.5):
        alpha = {"approximate": "tanh"}
    m.node(op, x, **({} if m.chance(0.4) else alpha))


def bounded(m: Maker) -> None:
    """A function of a part of the numbers, mostly on that part."""
    op = m.random.choice(tuple(BOUNDED))
    x = m.any("f")
    m.node(op, clipped(m, x, *BOUNDED[op]) if m.chance(0.9) else x)


def step(m: Maker) -> None:
    m.node(m.random.choice(STEPS), m.any("f"))


def rare_unary(m: Maker) -> None:
    x = m.any("n")
    match m.random.randrange(5):
        case 0:
            m.node("Neg", m.any("fs"))
        case 1:
            m.node("Abs", x)
        case 2:
            m.node("Sign", x)
        case 3:
            m.node("Shrink", x, lambd=m.one(0.5, 1.0), bias=m.one(0.0, 0.5))
        case _:
            m.node(m.one("IsNaN", "IsInf"), m.any("f"))


def binary(m: Maker) -> None:
    a = m.any("n")
    b = m.like(a)
    a, b = (b, a) if m.chance(0.3) else (a, b)
    m.node(m.one("Add", "Add", "Sub", "Mul", "Mul", "Min", "Max"), a, b)


def residual(m: Maker) -> None:
    """x used twice and more: x + f(x), f(x) * x."""
    x = m.any("f")
    y = m.node(m.one("Tanh", "Sigmoid", "Relu", "Neg"), x)
    z = m.node(m.one("Add", "Mul", "Sub"), x, y)
    if m.chance(0.5):
        m.node(m.one("Add", "Sub"), z, m.one(x, y))


def divide(m: Maker) -> None:
    a = m.any("n")
    if a.dtype in INTEGERS:
        b = m.constant(m.rng.integers(1, 5, a.shape[m.random.randint(0, a.rank) :]), a.dtype)
        m.node(m.one("Div", "Mod"), a, b)
        return
    b = m.like(a)
    if m.chance(0.85):
        b = m.node("Add", m.node("Abs", b), scalar(m, b, 0.5))
    if m.chance(0.2):
        m.node("Mod", a, b, fmod=1)
    elif m.chance(0.2):
        m.node("Reciprocal", b)
    else:
        m.node("Div", a, b)


def power(m: Maker) -> None:
    x = m.any("n")
    if x.dtype in FLOATS:
        m.node(
            "Pow",
            x,
            scalar(m, x, m.one(2, 2, 3, 1, 0, -1, -2))
            if m.chance(0.7)
            else m.constant(np.array(2, m.one("int64", "int32", "float32"))),
        )
        if m.chance(0.3):
            m.node("Pow", clipped(m, x, 0.1, 4.0), scalar(m, x, m.one(0.5, 1.5, -0.5)))
    else:
        low = 0 if x.dtype in UNSIGNED else -2
        m.node("Pow", x, m.constant(m.rng.integers(low, 3, x.shape[-1:]), x.dtype))


def compare(m: Maker) -> None:
    a = m.any("n")
    m.node(m.one("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"), a, m.like(a))


def logical(m: Maker) -> None:
    a = m.any("b")
    if m.chance(0.3):
        m.node("Not", a)
    else:
        m.node(m.one("And", "Or", "Xor"), a, m.like(a))


def where(m: Maker) -> None:
    a = m.any("nb")
    b = m.like(a)
    condition = (
        m.node("Less", b, a) if a.dtype != "bool" and m.chance(0.5) else m.any("b", where=lambda v: v.dtype == "bool")
    )
    m.node("Where", condition, a, b)


def cast(m: Maker) -> None:
    """To another type; floats are made finite and small first, because the standard defines nothing else."""
    x = m.any("nb")
    to = m.random.choice((*FLOATS, *INTEGERS, "bool", *m.types))
    cast_to(m, x, to)


def cast_to(m: Maker, x: Value, to: str) -> Value:
    if x.dtype in FLOATS and to in INTEGERS:
        if m.special:
            x = m.node("Where", m.node("IsNaN", x), scalar(m, x, 1), x)
        x = clipped(m, x, 0.0 if to in UNSIGNED else -100.0, 100.0)
    return m.node("Cast", x, to=code(to))


def clip(m: Maker) -> None:
    x = m.any("n")
    low, high = scalar(m, x, m.one(0, 1)), scalar(m, x, m.one(2, 6))
    m.node("Clip", x, *m.one((low,), (low, high), (None, high), (low, high)))


def variadic(m: Maker) -> None:
    x = m.any("f")
    m.node(m.one("Sum", "Mean", "Max", "Min"), *(m.like(x) for _ in range(m.random.randint(0, 3))), x)


def prelu(m: Maker) -> None:
    x = m.any("f", 1)
    slope = m.one((1,), x.shape[-1:], (*x.shape[1:2], *(1,) * (x.rank - 2)))
    m.node("PRelu", x, m.weight(x.dtype, *slope))


def shift(m: Maker) -> None:
    x = m.any("i", where=lambda v: v.dtype in UNSIGNED)
    m.node(
        "BitShift",
        x,
        m.constant(m.rng.integers(0, 8, x.shape[m.random.randint(0, x.rank) :]), x.dtype),
        direction=m.one("LEFT", "RIGHT"),
    )


def same(m: Maker) -> None:
    """What changes nothing, or looks like that."""
    x = m.any("nb")
    match m.random.randrange(5):
        case 0:
            m.node("Identity", x)
        case 1:
            m.node("Dropout", m.any("f"))
        case 2:
            m.node("Cast", x, to=code(x.dtype))
        case 3 if x.dtype != "bool":
            m.node(m.one("Mul", "Div"), x, scalar(m, x, 1))
        case _ if x.dtype != "bool":
            m.node(m.one("Add", "Sub"), x, scalar(m, x, 0))
        case _:
            raise Refused("no number")


KINDS = (
    *((6, smooth), (4, activation), (3, bounded), (1, step), (1, rare_unary), (10, binary), (5, residual), (3, divide)),
    *((1, power), (2, compare), (1, logical), (2, where), (3, cast), (2, clip), (2, variadic), (1, prelu), (1, shift)),
    (2, same),
)
