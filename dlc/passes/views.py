"""Calls that move nothing: their result is the argument's memory under another shape."""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from itertools import accumulate

from dlc.graph.op import Op
from dlc.graph.structure import Call, Copy
from dlc.kernel.expr import Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.solve.zero import is_zero


def is_view(op: Op) -> bool:
    """Whether an op is a call whose result is its only argument, element for element, in memory order."""
    if not isinstance(op, Call) or isinstance(op, Copy) or not op.args or len(op.types) != 1 or len(op.body.nests) != 1:
        return False
    if any(x.type.symbol is None for x in op.args[1:]):  # sizes decide nothing about where elements lie
        return False
    source, result = op.body.params[0], op.body.results[0]
    # Before the look-up, which has to hash the kernel.
    same = source.dtype == result.dtype and source.type.capacity == result.type.capacity
    return same and isinstance(op.body.nests[0].body, Load) and _same_order(op.body)


def seen(op: Op, computed: Container[str]) -> Op:
    """The value that a view shows, through views of views; any other is itself, as are those that are `computed`."""
    while op.digest not in computed and is_view(op):
        op = op.operands[0]
    return op


@lru_cache(maxsize=4096)
def _same_order(kernel: Kernel) -> bool:
    """Whether the only nest of a kernel copies all elements, from the offsets that they are written to."""
    source, result, nest = kernel.params[0], kernel.results[0], kernel.nests[0]
    size = result.type.capacity
    if nest.reduce is not None or nest.where is not None or not isinstance(nest.body, Load):
        return False
    if nest.body.param != source.name or nest.out != result.name:
        return False
    # An assignment writes no element twice, so as many points as elements write all of them.
    if nest.points != size:
        return size == 0
    return size == 0 or is_zero(_offset(nest.body.index, source.shape) - _offset(nest.index, result.shape))


def _offset(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    """The number of an element in memory order."""
    strides = list(accumulate(reversed(shape), lambda a, b: a * b, initial=1))[-2::-1]
    total: Expr = Const(0)
    for i, stride in zip(index, strides, strict=True):
        total = total + i * stride
    return total
