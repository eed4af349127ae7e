"""Kinds of nodes on types for storage: bfloat16, float8 and integers of four bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.drawing import Maker
from tests.fuzz.kinds_elementwise import clipped, scalar
from tests.fuzz.narrow import FLOATS, INTEGERS, code
from tests.fuzz.sizes import Refused, Size
from tests.fuzz.values import Value

FLOAT8 = FLOATS[1:]
LIMITS = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255), "int16": (-999, 999)}
MAPS = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Sqrt")
FOUR_BITS = 21
"""The first version with integers of four bits, blocks of scales, and moves of all these types."""


def _type(m: Maker) -> str:
    if not m.narrow:
        raise Refused("no narrow types")
    return m.one("bfloat16", "bfloat16", *FLOAT8, *(INTEGERS * 2 if m.opset >= FOUR_BITS else ()))


def _values(m: Maker, dtype: str, shape: tuple[int, ...]) -> Any:
    if dtype in LIMITS:
        low, high = LIMITS[dtype]
        return m.rng.integers(low, high, shape, endpoint=True).astype(dtype)
    found = m.rng.standard_normal(shape).astype(np.float32)
    if m.special and found.size:
        found.reshape(-1)[m.random.randrange(found.size)] = m.one(np.nan, np.inf, -np.inf, -0.0, 1e9)
    return found.astype(dtype)


def _narrow(m: Maker, *types: str) -> Value:
    """A value of one of these types."""
    found = [v for v in m.values.values() if v.dtype in types]
    if not found:
        raise Refused("no such value")
    return m.random.choice(found[-4:])


def _cast(m: Maker, x: Value, to: str) -> Value:
    if to in INTEGERS and not x.of("i"):
        if m.special:
            x = m.node("Where", m.node("IsNaN", x), scalar(m, x, 1), x)
        x = clipped(m, x, *LIMITS[to])
        x = m.node("Round", x) if m.chance(0.8) else x
    return m.node("Cast", x, to=code(to), **({"saturate": m.one(0, 1)} if to in FLOAT8 and m.chance(0.5) else {}))


def stored(m: Maker) -> None:
    """A float as one of a narrow type, and often as a float again."""
    to = _type(m)
    x = m.any("f", where=lambda v: v.dtype == "float32" or to == "bfloat16")
    y = _cast(m, x, to)
    if m.chance(0.6):
        m.node("Cast", y, to=code(m.one("float32", "float32", "float16", "float64")))


def given(m: Maker) -> None:
    """An input or a constant of such a type."""
    to = _type(m)
    shape = m.shape()
    if any(isinstance(e, Size) for e in shape) or m.chance(0.5):
        x = m.input(array=_values(m, to, tuple(max(e.at) if isinstance(e, Size) else e for e in shape)), shape=shape)
    else:
        x = m.constant(_values(m, to, shape))
    m.node("Cast", x, to=code("float32"))


def moved(m: Maker) -> None:
    """Elements of such a type in other places."""
    x = _narrow(m, *FLOATS, *INTEGERS)
    if x.dtype in INTEGERS and m.opset < FOUR_BITS:
        raise Refused("no such move")
    match m.random.randrange(5):
        case 0:
            m.node("Transpose", x)
        case 1:
            m.node("Reshape", x, m.ints(x.size))
        case 2:
            m.node("Unsqueeze", x, m.ints(0))
        case 3 if x.dtype == "bfloat16":
            m.node("Concat", x, x, axis=m.axis(x))
        case 4 if x.dtype == "bfloat16" and x.rank and 0 not in x.shape:
            m.node("Gather", x, m.constant(np.array(m.one([0], [-1, 0], 0))), axis=m.axis(x))
        case _:
            m.node("Identity", x)


def computed(m: Maker) -> None:
    """Arithmetic in bfloat16, whose results are rounded once."""
    if not m.narrow:
        raise Refused("no narrow types")
    found = [v for v in m.values.values() if v.dtype == "bfloat16"]
    x = m.random.choice(found[-4:]) if found else m.node("Cast", m.any("f"), to=code("bfloat16"))
    match m.random.randrange(6):
        case 0:
            m.node(
                m.one("Add", "Sub", "Mul", "Max", "Min"),
                x,
                m.random.choice([v for v in found if v.shape == x.shape] or [x]),
            )
        case 1:
            op = m.random.choice(MAPS)
            m.node(op, m.node("Abs", x) if op == "Sqrt" else x)
        case 2 if x.rank > 1 and not isinstance(x.shape[-1], Size):
            m.node("MatMul", x, m.constant(_values(m, "bfloat16", (x.shape[-1], m.one(1, 3, 5, 16)))))
        case 3 if x.rank:
            m.node("Softmax", x, axis=m.axis(x))
        case 4 if x.rank:
            m.node("ReduceSum", x, m.ints(m.axis(x)), keepdims=m.one(0, 1))
        case _:
            m.node("Mul", x, m.constant(_values(m, "bfloat16", ())))


def _scales(m: Maker, shape: tuple[int, ...], dtype: str) -> tuple[Any, dict[str, int], tuple[int, ...]]:
    """Scales of a tensor: one for all, for each row of a dimension, or for each block of some rows."""
    attributes: dict[str, int] = {}
    of: tuple[int, ...] = ()
    if shape and m.chance(0.6):
        axis = m.random.randrange(len(shape))
        if not isinstance(shape[axis], Size):
            attributes, of = {"axis": axis}, (shape[axis],)
            if m.opset >= FOUR_BITS and m.chance(0.4) and not any(isinstance(e, Size) for e in shape) and shape[axis]:
                block = m.one(*(b for b in range(1, shape[axis] + 1) if shape[axis] % b == 0))
                attributes["block_size"] = block
                of = tuple(e // block if d == axis else e for d, e in enumerate(shape))
    return m.rng.uniform(0.05, 0.5, of).astype(dtype), attributes, of


def quantized(m: Maker) -> None:
    """A float in steps of a scale, and a float again."""
    to = m.one(*FLOAT8, *((*INTEGERS, *INTEGERS, "int16") if m.opset >= FOUR_BITS else ("int8", "uint8")))
    if not m.narrow:
        raise Refused("no narrow types")
    x = m.any("f", where=lambda v: v.dtype == "float32")
    array, attributes, of = _scales(m, x.shape, x.dtype)
    scale = m.constant(array)
    zero = m.constant(np.zeros(of, to) if to in FLOAT8 else m.rng.integers(0, 4, of).astype(to))
    if m.special:
        x = m.node("Where", m.node("IsNaN", x), scalar(m, x, 1), x)
    y = m.node("QuantizeLinear", x, scale, zero, **attributes)
    if m.chance(0.3) and not attributes and m.opset >= FOUR_BITS:
        y = m.node("Transpose", y)
    m.node("DequantizeLinear", y, scale, zero, **attributes)


def weights(m: Maker) -> None:
    """A product with weights of few bits."""
    to = _type(m)
    x = m.any("f", 2, where=lambda v: v.dtype == "float32" and not isinstance(v.shape[-1], Size) and v.shape[-1] > 0)
    shape = (x.shape[-1], m.one(1, 2, 3, 8, 17))
    w = m.constant(_values(m, to, shape))
    if to == "bfloat16":
        m.node("MatMul", x, m.node("Cast", w, to=code("float32")))
        return
    array, attributes, of = _scales(m, shape, "float32")
    zero = [m.constant(m.rng.integers(0, 4, of).astype(to))] if to in INTEGERS and m.chance(0.6) else []
    m.node("MatMul", x, m.node("DequantizeLinear", w, m.constant(array), *zero, **attributes))


KINDS = ((12, stored), (6, given), (8, moved), (14, computed), (10, quantized), (8, weights))
