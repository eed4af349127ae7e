"""Inputs of a model that shapes were told from: what each of their elements may be, so that the shapes are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlc.base.allowed import Allowed, Intervals, Part, common, union
from dlc.base.types import bool_
from dlc.graph import Input, Op
from dlc.kernel.define import ShapeError
from dlc_frontend_onnx.node import FIXED
from dlc_frontend_onnx.unsupported import Unsupported

_ANYTHING: Final[Intervals] = ((-(1 << 63), (1 << 63) - 1),)


@dataclass
class Assumed:
    """What was assumed so far."""

    sets: dict[Input, tuple[Intervals, ...]] = field(default_factory=dict[Input, "tuple[Intervals, ...]"])
    """By input, for every element."""

    def add(self, op: Op, choices: Sequence[Sequence[int]]) -> None:
        """Element k of an input is one of `choices[k]`, or anything where these are none.

        Raises:
            Unsupported: the value is computed.
            ShapeError: another number of elements, or what was assumed before does not go with it.
        """
        if not isinstance(op, Input) or op.dtype is bool_:
            raise Unsupported("its shape depends on a value that is computed from the model's inputs", FIXED)
        if op.type.size != len(choices):
            raise ShapeError(f"{op.name} has {op.type.size} elements, and the declared shape asks for {len(choices)}")
        new = [union((v, v) for v in choice) or _ANYTHING for choice in choices]
        old = self.sets.get(op, new)
        self.sets[op] = tuple(common(a, b) for a, b in zip(old, new, strict=True))
        if not all(self.sets[op]):
            raise ShapeError(f"{op.name} would have to lead to two different shapes")

    def restricted(self) -> Mapping[Op, Input]:
        """The inputs, as inputs that are nothing else."""
        found: dict[Op, Input] = {}
        for i, sets in self.sets.items():
            boxes = [tuple((k, k + 1) for k in place) for place in np.ndindex(i.shape)]
            parts = tuple(Part(each, box) for each, box in zip(sets, boxes, strict=True) if each != _ANYTHING)
            if parts:
                found[i] = Input(i.name, i.of, i.role, i.initial, Allowed(parts, "shape").text)
        return found
