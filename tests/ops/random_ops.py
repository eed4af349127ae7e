"""Random instances of any op: a sample, with sizes, ranks and attributes changed as long as the op takes them.

Nothing here knows an op. What has a sample is varied: an op that refuses a change keeps what it had.
"""

from __future__ import annotations

from random import Random
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from dlc.base.types import Type
from dlc.graph import Input, Op
from dlc.kernel.define import ShapeError
from tests.ops.gradient_checks import SAMPLES, floats

BY_NAME: dict[str, list[Op]] = {}
for _sample in SAMPLES:
    if floats(_sample):
        BY_NAME.setdefault(_sample.text_name, []).append(_sample)

LARGEST = 300
"""Elements of a result or an operand: differences are taken of each."""
_TIED = ("permutation", "places", "tap", "range", "index", "label")
"""Inputs whose values `feed` draws for the sizes that samples have."""


def random_op(name: str, seed: int) -> Op:
    """An instance of an op, the same for equal seeds."""
    random = Random(f"{name}{seed}")
    op = random.choice(BY_NAME[name])
    for _ in range(random.randint(1, 5)):
        op = _changed(op, random) or op
    return op


def _changed(op: Op, random: Random) -> Op | None:
    """The op with one thing other than before; None if that is no op, or too large."""
    attributes = dict(op.attrs)
    shapes = [list(x.shape) for x in op.operands]
    words = [x.name.rstrip("0123456789") if isinstance(x, Input) else "" for x in op.operands]
    if attributes and (any(w in _TIED for w in words) or random.random() < 0.5):
        key = random.choice(sorted(attributes))
        attributes[key] = _other(attributes[key], get_type_hints(type(op)).get(key), random)
    else:
        _reshape(shapes, random)
    operands = [
        Input(x.name, Type(x.dtype, tuple(s))) if isinstance(x, Input) else x
        for x, s in zip(op.operands, shapes, strict=True)
    ]
    try:
        found = op.remade(operands, attributes)
    # An op refuses sizes and attributes that do not fit in whatever way it notices them first.
    except (ShapeError, ValueError, IndexError, TypeError, ZeroDivisionError, KeyError, AssertionError):
        return None
    sizes = [t.size for t in (found.type, *(x.type for x in found.operands))]
    return found if floats(found) and min(sizes) > 0 and max(sizes) <= LARGEST else None


def _reshape(shapes: list[list[int]], random: Random) -> None:
    """Another size wherever there was one size; a size of 1 or a dimension less in one operand: it broadcasts."""
    ranked = [s for s in shapes if s]
    if not ranked:
        return
    one = random.choice(ranked)
    match random.randrange(4):
        case 0 | 1:
            old, new = random.choice(one), random.randint(1, 5)
            for s in shapes:
                s[:] = [new if d == old else d for d in s]
        case 2:
            one[random.randrange(len(one))] = random.randint(1, 4)
        case _:
            if random.random() < 0.5:
                del one[0]
            else:
                one.insert(0, random.randint(1, 3))


def _other(value: Any, hint: Any, random: Random) -> Any:
    """Another value of an attribute's type."""
    match value:
        case bool():
            return not value
        case int():
            return value + random.choice((-1, 1))
        case float():
            return value * random.choice((0.5, 2.0)) or random.choice((0.0, 0.25))
        case str():
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            return random.choice(choices) if choices else value
        case tuple() if value:
            items = list(cast("tuple[Any, ...]", value))
            k = random.randrange(len(items))
            items[k] = _other(items[k], None, random)
            return tuple(items)
        case _:
            return value
