"""Calls that move nothing: their result is the argument's memory under another shape."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Load
from dlc.kernel.nest import Kernel

# The test for a view runs the kernel on the numbers 0, 1, 2…; larger tensors are sampled by shrinking nothing, so they
# are simply not views. 2^24 elements are 64 MB of activations.
MAX_ELEMENTS = 1 << 24


def is_view(op: Op) -> bool:
    """Whether an op is a call whose result is its only argument, element for element, in memory order."""
    return isinstance(op, Call) and len(op.args) == 1 and len(op.types) == 1 and _same_order(op.body)


@lru_cache(maxsize=4096)
def _same_order(kernel: Kernel) -> bool:
    source, result = kernel.params[0], kernel.results[0]
    if len(kernel.nests) != 1 or source.dtype != result.dtype or source.type.size != result.type.size:
        return False
    nest = kernel.nests[0]
    if nest.reduce is not None or nest.where is not None or not isinstance(nest.body, Load):
        return False
    if source.type.size > MAX_ELEMENTS:
        return False
    numbers = np.arange(source.type.size, dtype=np.int64).reshape(source.shape)
    (out,) = run_kernel(_on_integers(kernel), (numbers,))
    return bool(np.array_equal(out.reshape(-1), numbers.reshape(-1)))


def _on_integers(kernel: Kernel) -> Kernel:
    from dlc.kernel.nest import Param
    from dlc.types import Type, i64

    def param(p: Param) -> Param:
        return Param(p.name, Type(i64, p.shape))

    return Kernel(tuple(map(param, kernel.params)), tuple(map(param, kernel.results)), (), kernel.nests)
