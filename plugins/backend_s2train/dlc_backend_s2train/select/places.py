"""Where a weight of the graph lies in the device's memory: a tensor of its own, or rows of a norm's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dlc.base.types import Array
from dlc.graph import Cotangent, Input, Op
from dlc.ops.normalize import BatchNormTraining
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.biases import bias_of
from dlc_backend_s2train.select.products import product_of

_HALF = 2
"""Bytes of an fp16."""


@dataclass(frozen=True)
class Place:
    """A part of a tensor that the device holds."""

    held: Input
    start: Array
    """What the weight begins with, fp32, in the shape that it has there."""
    row: int | None = None
    """First row of a norm's tensor [4, C]; None for a tensor of its own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return self.start.shape

    @property
    def offset(self) -> int:
        """Bytes before the part."""
        return 0 if self.row is None else self.row * self.held.shape[1] * _HALF


def readers_of(ops: Iterable[Op]) -> dict[str, list[Op]]:
    """Digest of an input → those of the ops that read it forward, in order."""
    found: dict[str, list[Op]] = {}
    for op in ops:
        if not isinstance(op, Cotangent):
            for digest in dict.fromkeys(x.digest for x in op.operands if isinstance(x, Input)):
                found.setdefault(digest, []).append(op)
    return found


def place_of(readers: Iterable[Op], weight: Input) -> Place | str:
    """Where a weight lies; or why it lies nowhere.

    Args:
        readers: Those of the ops that instructions are for that read it forward.
        weight: An input that begins with something.
    """
    values = parameters.known_value(weight)
    if values is None:
        return "nobody knows what it begins with"
    found: dict[tuple[str, int | None], Place] = {}
    for op in readers:
        if (place := _read_by(op, weight, values.astype(np.float32))) is None:
            return f"{op.text_name} reads it, which takes no weights"
        found[place.held.digest, place.row] = place
    if len(found) != 1:
        return f"it would have to lie in {len(found)} ways" if found else "no product and no norm reads it"
    (place,) = found.values()
    return place


def _read_by(op: Op, weight: Input, values: Array) -> Place | None:
    if isinstance(op, BatchNormTraining):
        held = parameters.batch_norm_input(op)
        row = parameters.SCALE if weight == op.scale else parameters.SHIFT
        if isinstance(held, Input) and weight != op.x and op.scale != op.bias:
            return Place(held, values, row)
        return None
    if (bias := bias_of(op)) is not None:
        return Place(bias.held, values.reshape(-1), parameters.SHIFT) if isinstance(bias.held, Input) else None
    product = product_of(op)
    if isinstance(product, str) or weight == product.x:
        return None
    if weight == product.w and isinstance(held := product.weight, Input):
        return Place(held, values.T if product.transposed else values)
    channels = product.geometry.co
    if weight == product.bias and values.size == channels and isinstance(held := product.bias_norm, Input):
        return Place(held, values.reshape(channels), parameters.SHIFT)
    return None
