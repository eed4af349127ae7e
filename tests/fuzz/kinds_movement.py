"""Kinds of nodes that move elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.drawing import Maker
from tests.fuzz.inference import has_attribute
from tests.fuzz.narrow import code
from tests.fuzz.sizes import Refused, Size, least
from tests.fuzz.values import Value


def with_axes(m: Maker, op: str, x: Value, axes: tuple[int, ...], **attributes: Any) -> Value:
    """A node whose axes are an attribute or an operand, as the version has it."""
    if has_attribute(op, m.opset, "axes"):
        return m.node(op, x, axes=list(axes), **attributes)
    return m.node(op, x, m.ints(*axes), **attributes)


def transposed(m: Maker, x: Value) -> Value:
    perm = m.random.sample(range(x.rank), x.rank)
    return m.node("Transpose", x, **({} if m.chance(0.1) else {"perm": perm}))


def transpose(m: Maker) -> None:
    y = transposed(m, m.any("nb", 2))
    if m.chance(0.2):
        transposed(m, y)


def _parts(m: Maker, size: int) -> list[int]:
    """Factors of a size."""
    found: list[int] = []
    for k in (2, 3, 5, 7):
        while size % k == 0 and size and m.chance(0.7):
            found.append(k)
            size //= k
    return [*found, size]


def reshape(m: Maker) -> None:
    reshaped(m, m.any("nb"))


def reshaped(m: Maker, x: Value) -> Value:
    sizes = list(x.shape)
    match m.random.randrange(5):
        case 0 if x.rank > 1:
            k = m.random.randrange(x.rank - 1)
            sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
        case 1 if x.rank:
            k = m.random.randrange(x.rank)
            sizes[k : k + 1] = _parts(m, sizes[k])
        case 2:
            sizes.insert(m.random.randint(0, x.rank), 1)
        case 3:
            sizes = _parts(m, x.size)
            m.random.shuffle(sizes)
        case _:
            sizes = [x.size]
    if len(sizes) > 6 or 0 in map(least, sizes):  # ONNX reads a 0 as the size of the operand's dimension
        raise Refused("rank, or a size of 0")
    if sizes and m.chance(0.3):
        sizes[m.random.randrange(len(sizes))] = -1
    return m.node("Reshape", x, m.ints(*sizes))


def unsqueeze(m: Maker) -> None:
    x = m.any("nb")
    with_axes(m, "Unsqueeze", x, (m.random.randint(-x.rank - 1, x.rank),))


def squeeze(m: Maker) -> None:
    x = m.any("nb", 1, where=lambda v: 1 in v.shape)
    ones = [d for d, e in enumerate(x.shape) if e == 1]
    with_axes(m, "Squeeze", x, tuple(m.random.sample(ones, m.random.randint(1, len(ones)))))


def flatten(m: Maker) -> None:
    x = m.any("nb")
    m.node("Flatten", x, axis=m.random.randint(-x.rank, x.rank))


def concat(m: Maker) -> None:
    x = m.any("nb", 1)
    axis = m.axis(x)

    def beside(v: Value) -> bool:
        rest = (e for shape in (v.shape, x.shape) for e in (shape[:axis], shape[axis:][1:]))
        a, b, c, d = rest
        return v.dtype == x.dtype and v.rank == x.rank and (a, b) == (c, d)

    others = [v for v in m.values.values() if beside(v)]
    parts = [m.random.choice(others) for _ in range(m.random.randint(0, 2))]
    if not parts and x.dtype != "bool":
        wide = list(x.shape)
        wide[axis] = m.one(1, 2, 3)
        parts = [m.weight(x.dtype, *wide)]
    parts.insert(m.random.randint(0, len(parts)), x)
    m.node("Concat", *parts, axis=axis)


def cut(m: Maker) -> None:
    """A slice, at times backward, with strides, past the end."""
    x = m.any("nb", 1)
    axes = m.random.sample(range(x.rank), m.random.randint(1, x.rank))
    starts, ends, steps = list[int](), list[int](), list[int]()
    for d in axes:
        extent, step = x.shape[d], m.one(1, 1, 1, 2, 3, -1, -2)
        a = m.random.randint(0, max(extent - 1, 0))
        far = m.one(extent, 1 << 40, a + 1, extent - 1) if step > 0 else m.one(-extent - 1, -(1 << 40), a - 1 - extent)
        starts.append(m.one(a - extent, -extent - 2, extent + 3) if m.chance(0.2) else a)
        ends.append(far)
        steps.append(step)
    named = [d - x.rank if m.chance(0.2) else d for d in axes]
    m.node("Slice", x, m.ints(*starts), m.ints(*ends), m.ints(*named), m.ints(*steps))


def split(m: Maker) -> None:
    x = m.any("nb", 1)
    axis = m.axis(x)
    extent = x.shape[axis]
    if extent < 2:
        raise Refused("nothing to split")
    at = m.random.randint(1, extent - 1)
    if has_attribute("Split", m.opset, "split"):
        m.nodes_of("Split", 2, x, axis=axis, split=[at, extent - at])
    else:
        m.nodes_of("Split", 2, x, m.ints(at, extent - at), axis=axis)


def pad(m: Maker) -> None:
    x = m.any("nf" if m.chance(0.9) else "b", 1)
    mode = m.one("constant", "constant", "edge", "reflect", *(("wrap",) if m.opset >= 19 else ()))
    most = [2 if mode == "constant" else max(0, min(2, e - 1)) for e in x.shape] * 2
    pads = [m.random.randint(0, k) if m.chance(0.6) else 0 for k in most]
    if mode == "constant" and m.chance(0.15):
        d = m.random.randrange(x.rank)
        pads[d] = -1 if x.shape[d] > 1 else 0
    value = [m.constant(np.array(m.one(0, 1, 2), x.dtype))] if mode == "constant" and m.chance(0.5) else []
    m.node("Pad", x, m.ints(*pads), *value, mode=mode)


def expand(m: Maker) -> None:
    x = m.any("nb")
    to = [e if e != 1 or m.chance(0.3) else m.one(1, 2, 3, *m.extents) for e in x.shape]
    m.node("Expand", x, m.ints(*([m.one(1, 2, 3)] * m.chance(0.4)), *to))


def tile(m: Maker) -> None:
    x = m.any("nb", 1, 4)
    m.node("Tile", x, m.ints(*(m.one(1, 1, 2, 3) for _ in x.shape)))


def blocks(m: Maker) -> None:
    x = m.any("f", 4, 4)
    _, c, h, w = x.shape
    if m.chance(0.5):
        if c % 4 or not c:
            x = m.node("Concat", x, x, x, x, axis=1)
        m.node("DepthToSpace", x, blocksize=2, mode=m.one("DCR", "CRD"))
    else:
        x = m.node("Pad", x, m.ints(0, 0, 0, 0, 0, 0, h % 2, w % 2)) if h % 2 or w % 2 else x
        m.node("SpaceToDepth", x, blocksize=2)


def triangle(m: Maker) -> None:
    x = m.any("fb", 2)
    m.node("Trilu", x, m.constant(np.array(m.one(-1, 0, 1, 2))), upper=m.one(0, 1))


def backward(m: Maker) -> None:
    x = m.any("n", 2, 4)
    lengths = m.ints(*(m.random.randint(1, max(1, least(x.shape[0]))) for _ in range(x.shape[1])))
    m.node("ReverseSequence", x, lengths, batch_axis=1, time_axis=0)


def resize(m: Maker) -> None:
    x = m.any("f", 3, 4)
    scales = [1.0, 1.0, *(m.one(1.0, 2.0, 2.0, 0.5, 1.5) for _ in x.shape[2:])]
    mode = m.one("nearest", "linear", "linear", "cubic") if x.rank == 4 else m.one("nearest", "linear")
    way = m.one("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    attributes = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attributes |= {"nearest_mode": m.one("round_prefer_floor", "floor", "ceil", "round_prefer_ceil")}
    if any(int(e * s) < 1 for e, s in zip(x.shape, scales, strict=True)):
        raise Refused("nothing left")
    if m.chance(0.3):  # sizes in place of scales
        sizes = m.ints(*(e * int(2 * s) // 2 for e, s in zip(x.shape, scales, strict=True)))
        m.node("Resize", x, None, None, sizes, **attributes)
        return
    m.node("Resize", x, None, m.constant(np.array(scales, np.float32)), **attributes)


def made(m: Maker) -> None:
    """Values of no input, and of shapes."""
    x = m.any("n", 1)
    match m.random.randrange(4):
        case 0:
            m.node("Mul", x, m.node("Cast", m.node("Size", x), to=code(x.dtype)))
        case 1:
            shape = m.node("Shape", x)
            m.node("Reshape", m.any("n", where=lambda v: v.size == x.size), shape)
        case 2:
            x = m.any("f", 2, 2)
            m.node("Add", x, m.node("EyeLike", x, k=m.one(-1, 0, 1)))
        case _:
            n = x.shape[-1]
            if isinstance(n, Size):
                steps = m.node("Range", m.scalar(0), m.scalar(n), m.scalar(1))
            else:
                steps = m.node("Range", *(m.constant(np.array(k, np.float32)) for k in (0, n, 1)))
            m.node("Add", m.node("Cast", steps, to=code(x.dtype)), x)


def compress(m: Maker) -> None:
    x = m.any("nb", 1)
    axis = m.random.randrange(x.rank)
    if not least(x.shape[axis]):
        raise Refused("empty")
    extent = least(x.shape[axis])
    chosen = m.random.sample(range(extent), m.random.randint(1, extent))
    m.node("Gather", x, m.constant(np.array(chosen) - (extent if m.chance(0.3) else 0)), axis=axis)


def around_reduction(m: Maker) -> None:
    """A movement in front of a reduction, another behind it."""
    x = m.any("f", 2, 5)
    y = m.one(transposed, reshaped)(m, x)
    axis = m.axis(y)
    z = with_axes(m, m.one("ReduceMax", "ReduceMean", "ReduceL2"), y, (axis,), keepdims=m.one(0, 1))
    if m.chance(0.5) and z.size and math.prod(z.shape) > 1:
        m.one(transposed, reshaped)(m, z)


KINDS = (
    *((6, transpose), (5, reshape), (2, unsqueeze), (2, squeeze), (2, flatten), (5, concat), (5, cut), (3, split)),
    *((4, pad), (3, expand), (2, tile), (1, blocks), (1, triangle), (1, backward), (2, resize), (1, made)),
    *((2, compress), (4, around_reduction)),
)
