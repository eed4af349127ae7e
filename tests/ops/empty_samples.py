"""Every sample of an op with one extent, or all extents of one size or place, made 0, where the op allows it."""

from __future__ import annotations

from collections.abc import Iterator

from dlc.base.types import Type
from dlc.graph import Input, Op
from dlc.kernel.define import ShapeError
from tests.ops.samples import samples

Place = tuple[int, int]
"""(operand, dimension)."""


def empty_samples() -> list[Op]:
    """The ops, each once."""
    found: dict[str, Op] = {}
    for op in samples():
        for places in _choices(op):
            made = _emptied(op, places)
            if made is not None:
                found.setdefault(f"{made.text_name} {[str(x.type) for x in made.operands]} {made.attrs}", made)
    return list(found.values())


def _choices(op: Op) -> Iterator[frozenset[Place]]:
    """Sets of dimensions to be emptied together: one, those of one extent, those in one place from either end."""
    shapes = [x.shape for x in op.operands]
    every = [(k, d) for k, shape in enumerate(shapes) for d in range(len(shape))]
    sets = [{place} for place in every]
    sets += [{(k, d) for k, d in every if shapes[k][d] == size} for size in {n for shape in shapes for n in shape}]
    deepest = max(map(len, shapes), default=0)
    sets += [{(k, d) for k, d in every if d == place} for place in range(deepest)]
    sets += [{(k, d) for k, d in every if len(shapes[k]) - d == place} for place in range(1, deepest + 1)]
    yield from dict.fromkeys(frozenset(s) for s in sets)


def _emptied(op: Op, places: frozenset[Place]) -> Op | None:
    operands: list[Op] = []
    for k, x in enumerate(op.operands):
        shape = tuple(0 if (k, d) in places else n for d, n in enumerate(x.shape))
        operands.append(Input(x.name, Type(x.dtype, shape)) if isinstance(x, Input) else x)
    try:
        return op.remade(operands, op.attrs)
    except ShapeError:
        return None
