"""Kinds of nodes whose subscripts the graph computes, and scatters at places that depend on data."""

from __future__ import annotations

import numpy as np

from tests.fuzz.drawing import Maker
from tests.fuzz.kinds_elementwise import cast_to, clipped
from tests.fuzz.kinds_movement import with_axes
from tests.fuzz.sizes import Refused, largest, least
from tests.fuzz.values import Value


def chosen(m: Maker, x: Value, axis: int, keep: int) -> Value:
    return m.node(
        m.one("ArgMax", "ArgMax", "ArgMin"),
        x,
        axis=axis,
        keepdims=keep,
        **({"select_last_index": 1} if m.opset >= 12 and m.chance(0.2) else {}),
    )


def arg(m: Maker) -> None:
    x = m.any("n", 1)
    if x.shape[m.axis(x)] == 0:
        raise Refused("empty")
    chosen(m, x, m.axis(x), m.one(0, 1))


def top(m: Maker) -> list[Value]:
    x = m.any("f" if m.chance(0.85) else "n", 1)
    axis = m.axis(x)
    k = x.shape[axis] if m.chance(0.1) else m.random.randint(1, max(1, least(x.shape[axis])))
    return m.nodes_of("TopK", 2, x, m.ints(k), axis=axis, largest=m.one(1, 1, 0))


def subscripts(m: Maker, extent: int, shape: tuple[int, ...]) -> Value:
    """Integers below an extent, of a shape: an input, a constant, or computed from floats."""
    below = least(extent)
    if not below:
        raise Refused("empty")
    match m.random.randrange(4):
        case 0:
            return m.constant(m.rng.integers(-below, below, largest(shape)))
        case 1:
            kind = m.one("int64", "int32")
            return m.input(shape=shape, array=m.rng.integers(0, below, largest(shape)).astype(kind))
        case 2:
            x = m.input("float32", shape, m.numbers("float32", shape, plain=True))
            return cast_to(m, clipped(m, m.node("Abs", x), 0.0, below - 1.0), "int64")
        case _:
            found = [v for v in m.values.values() if v.dtype == "int64" and v.shape == shape]
            x = m.random.choice(found) if found else m.input("int64", shape)
            return m.node("Mod", x, m.scalar(extent))


def gather(m: Maker) -> None:
    x = m.any("nb", 1, 4)
    axis = m.axis(x)
    shape = m.one((), (1,), (3,), (2, 2), (x.shape[0],))
    m.node("Gather", x, subscripts(m, x.shape[axis], shape), axis=axis)


def gather_elements(m: Maker) -> None:
    x = m.any("nb", 1, 4)
    axis = m.axis(x)
    if m.chance(0.5) and x.dtype in ("float32", "float64"):
        places = (
            chosen(m, x, axis, 1)
            if m.chance(0.5)
            else m.nodes_of("TopK", 2, x, m.ints(m.random.randint(1, max(1, least(x.shape[axis])))), axis=axis)[1]
        )
    else:
        shape = list(x.shape)
        shape[axis] = m.one(1, 2, 3, shape[axis])
        places = subscripts(m, x.shape[axis], tuple(shape))
    m.node("GatherElements", x, places, axis=axis)


def gather_nd(m: Maker) -> None:
    x = m.any("nb", 1, 4)
    depth = m.random.randint(1, x.rank)
    if 0 in map(least, x.shape[:depth]):
        raise Refused("empty")
    places = [m.rng.integers(0, least(e), (3,)) for e in x.shape[:depth]]
    at = np.stack(places, -1)
    m.node("GatherND", x, m.input(array=at) if m.chance(0.5) else m.constant(at))


def scatter_elements(m: Maker) -> None:
    """At places that the data chooses, one for each row; several in a row are added or compared."""
    x = m.any("f" if m.chance(0.8) else "n", 1, 4)
    axis = m.axis(x)
    reduce = {"reduction": m.one("add", "mul", "max", "min")} if m.opset >= 18 and m.chance(0.5) else {}
    if reduce:
        shape = list(x.shape)
        shape[axis] = m.one(1, 2, 3)
        places = subscripts(m, x.shape[axis], tuple(shape))
    elif m.chance(0.5):
        places = chosen(m, x, axis, 1)
    else:
        places = m.nodes_of("TopK", 2, x, m.ints(m.random.randint(1, max(1, least(x.shape[axis])))), axis=axis)[1]
    fits = [v for v in m.values.values() if v.dtype == x.dtype and v.shape == places.shape]
    updates = m.random.choice(fits) if fits and m.chance(0.6) else m.weight(x.dtype, *places.shape)
    m.node("ScatterElements", x, places, updates, axis=axis, **reduce)


def scatter_nd(m: Maker) -> None:
    x = m.any("f" if m.chance(0.8) else "n", 1, 4)
    extent = least(x.shape[0])
    if not extent:
        raise Refused("empty")
    reduce = {"reduction": m.one("add", "mul", "max", "min")} if m.opset >= 18 and m.chance(0.5) else {}
    count = m.random.randint(1, extent)
    at = m.rng.integers(0, extent, (count, 1)) if reduce else m.rng.permutation(extent)[:count, None]
    places = m.input(array=at) if m.chance(0.5) else m.constant(at)
    m.node("ScatterND", x, places, m.weight(x.dtype, count, *x.shape[1:]), **reduce)


def one_hot(m: Maker) -> None:
    depth = m.one(1, 3, 5, 7)
    x = m.any("i", 1, 3) if m.chance(0.4) else subscripts(m, depth, m.one((3,), (2, 3)))
    values = m.numbers(m.one("float32", m.types[0] if m.types[0] != "bool" else "float32"), (2,), plain=True)
    m.node("OneHot", x, m.constant(np.array(depth)), m.constant(values), axis=m.one(-1, 0))


def hardmax(m: Maker) -> None:
    x = m.any("f", 1)
    m.node("Hardmax", x, axis=m.axis(x))


def detector(m: Maker) -> None:
    """Peaks of a map, the strongest of them, and what lies there: the head of a detector."""
    x = m.any("f", 4, 4)
    if min(x.shape[2:]) < 3:
        raise Refused("small")
    peak = m.node("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    same = m.node("Cast", m.node("Equal", peak, x), to=_CODES[x.dtype])
    flat = m.node("Reshape", m.node("Mul", x, same), m.ints(x.shape[0], -1))
    scores, places = m.nodes_of("TopK", 2, flat, m.ints(min(3, least(flat.shape[1]))), axis=-1)
    m.node("GatherElements", flat, places, axis=1)
    m.node("Mod", places, m.scalar(x.shape[3]))
    m.node("Add", scores, with_axes(m, "ReduceMax", scores, (-1,), keepdims=1))


_CODES = {"float32": 1, "float64": 11, "float16": 10}

KINDS = (
    *((2, arg), (2, top), (3, gather), (3, gather_elements), (1, gather_nd), (3, scatter_elements), (2, scatter_nd)),
    *((1, one_hot), (1, hardmax), (2, detector)),
)
