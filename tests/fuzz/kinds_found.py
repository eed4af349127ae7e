"""Kinds of nodes whose results have a size that a call finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dlc.base.diagnostics import DlcError, ExitCode
from tests.fuzz.drawing import Maker
from tests.fuzz.found import found, frozen, values_of
from tests.fuzz.kinds_elementwise import scalar
from tests.fuzz.model import Array
from tests.fuzz.sizes import Refused, Size, joined, largest
from tests.fuzz.values import Value


def exact(m: Maker, letters: str, low: int = 0, high: int = 6, where: Callable[[Value], bool] | None = None) -> Value:
    """A value that no rounding went into: what is found in it is the same for everyone."""
    return m.any(letters, low, high, lambda v: v.name not in m.rounded and (where is None or where(v)))


def finding(m: Maker, op: str, *inputs: Value | None, results: int = 1, **attributes: object) -> list[Value]:
    """The results of a new node, whose sizes are those that it has for the inputs of each call."""
    if not m.found:
        raise Refused("sizes are known")
    node = m.new(op, results, inputs, attributes)
    several: list[dict[str, Array]] = []
    for call in m.sizes():
        whole = replace(m.whole(), dims=m.dims).at(call)
        before = frozen(whole)
        try:
            operands = values_of(before, [v.name for v in inputs if v is not None])
            gives = found(node, operands, m.opset)
        except DlcError as refusal:
            if refusal.exit_code is ExitCode.BUG:
                raise
            raise Refused(str(refusal)) from None
        if op == "Compress":
            axis = attributes.get("axis")
            gives = {
                k: np.take(operands[node.inputs[0]], v, axis if isinstance(axis, int) else None)
                for k, v in gives.items()
            }
        several.append(gives)
    values: list[Value] = []
    for name in node.outputs:
        arrays = [gives[name] for gives in several]
        values.append(Value(name, str(arrays[0].dtype), joined([a.shape for a in arrays])))
    return m.kept(node, values)


def nonzero(m: Maker) -> None:
    finding(m, "NonZero", exact(m, "nb", 1, 4))


def compress(m: Maker) -> None:
    x = m.any("nb", 1, 4)
    axis = m.random.randrange(x.rank)
    flags = [v for v in m.values.values() if v.dtype == "bool" and v.shape == x.shape[axis : axis + 1]]
    flags = [v for v in flags if v.name not in m.rounded]
    extent = x.shape[axis]
    chosen = m.random.choice(flags) if flags else m.input("bool", (extent,), m.rng.random(largest((extent,))) < 0.6)
    finding(m, "Compress", x, chosen, axis=axis)


def masked(m: Maker) -> None:
    """x[c], as exporters write a boolean mask; at times what comes of it is put back."""
    x = exact(m, "nf", 1, 3)
    mask = m.node("Greater", x, scalar(m, x, m.one(0, 0, 1)))
    (at,) = finding(m, "NonZero", mask)
    places = m.node("Transpose", at, perm=[1, 0])
    y = m.node("GatherND", x, places)
    if m.chance(0.5):
        y = m.node("Mul", y, scalar(m, x, 2))
        m.node("ScatterND", x, places, y)


def unique(m: Maker) -> None:
    x = exact(m, "n", 1, 3)
    results = m.one(1, 2, 4)
    axis = {} if m.chance(0.6) else {"axis": m.random.randrange(x.rank)}
    finding(m, "Unique", x, results=results, sorted=m.one(0, 1), **axis)


def boxes(m: Maker) -> None:
    """The head of a detector: boxes that overlap little."""
    count = m.one(*m.names.values(), 3, 7, 12)
    room = largest((count,))[0]
    corner = m.rng.uniform(0, 1, (1, room, 2)).astype(np.float32)
    far = corner + m.rng.uniform(0.1, 0.5, (1, room, 2)).astype(np.float32)
    shape = (1, count, 4)
    x = m.input(shape=shape, array=np.concatenate([corner, far], 2))
    classes = m.one(1, 2, 3)
    scores = m.input(shape=(1, classes, count), array=m.rng.uniform(0, 1, (1, classes, room)).astype(np.float32))
    most = m.constant(np.array([m.one(1, 2, 5, 100)]))
    overlap, least = (m.constant(np.array([m.one(*of)], np.float32)) for of in ((0.1, 0.3, 0.5), (0.2, 0.5, 0.9)))
    (chosen,) = finding(m, "NonMaxSuppression", x, scores, most, overlap, least)
    if m.chance(0.5):
        m.node("Gather", x, m.node("Gather", chosen, m.constant(np.array(2)), axis=1), axis=1)


def after(m: Maker) -> None:
    """What reads a result of such a size."""
    x = m.any("nf", 1, 4, lambda v: any(isinstance(e, Size) for e in v.shape))
    axis = next(k for k, e in enumerate(x.shape) if isinstance(e, Size))
    match m.random.randrange(5):
        case 0:
            m.node(m.one("Neg", "Abs"), x)
        case 1:
            m.node("Concat", x, m.any("nf", where=lambda v: v.dtype == x.dtype and v.shape == x.shape), axis=axis)
        case 2:
            m.node("Shape", x)
        case 3:
            m.node("ReduceSum", x, m.ints(axis)) if m.opset >= 13 else m.node("ReduceSum", x, axes=[axis])
        case _:
            m.node("Mul", x, x)


KINDS = ((4, nonzero), (8, compress), (6, masked), (4, unique), (3, boxes), (8, after))
