"""Copies of what callers have, which end at the sizes of a call, as parts of what reads them.

    t[i] = x[f(i)] where i < n;  out[e] = g(t[h])   →   out[e] = g(x[f(h)]) where h < n

The guard stays wherever the load goes: `x` has no more elements than the sizes say. So the consumer has to end there
already, and the guard takes nothing from what it writes.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.kernel.expr import Load
from dlc.kernel.fusion.inline import guard_at, is_pointwise_map
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.extents import by_symbol, ended


def is_ended_copy(nest: Nest, kernel: Kernel) -> bool:
    """Whether a nest only copies, each element of its result once, up to where the dimensions of the result end."""
    if nest.where is None or not isinstance(nest.body, Load):
        return False
    return _is_ended_map(nest, kernel)


def _is_ended_map(nest: Nest, kernel: Kernel) -> bool:
    """Whether the guard of a nest only says where the dimensions of its result end, each element written once."""
    bare = replace(nest, where=None)
    return is_pointwise_map(bare, kernel.tensors[nest.out].shape) and ended(nest, kernel) == ended(bare, kernel)


def ended_refusal(copy: Nest, made: Kernel, consumer: Nest, kernel: Kernel, name: str) -> str:
    """Why an ended copy should not be inlined into a nest that reads its result as `name`; "" when it should.

    Args:
        copy: The nest that makes the copy.
        made: Its kernel.
        consumer: The nest that reads it.
        kernel: Its kernel.
        name: What the consumer calls the copy.
    """
    if consumer.reduce is not None:
        return "a reduction reads it, and it ends at a size"
    # A map is inlined itself where it is read, which a guard would prevent.
    if _is_ended_map(consumer, kernel):
        return "its consumer is elementwise, and it ends at a size"
    source = by_symbol(copy, made)
    guards = [part for load in consumer.loads[name] for part in guard_at(source, load.index)]
    if ended(consumer, kernel, *guards) != ended(consumer, kernel):
        return "its consumer does not end at the same sizes"
    return ""
