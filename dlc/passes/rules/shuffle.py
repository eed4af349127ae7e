"""Shuffles of channels sink towards the outputs, to a contraction that reads its channels in any order.

    shuffle(x) = reshape(transpose(reshape(x, [N, g, C/g, …]), swap), [N, C, …])

What works on every channel by itself does so in any order, with its constants in that order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc.api.rules import RewriteContext, rule
from dlc.graph.op import Op
from dlc.ops.linear import Conv
from dlc.ops.normalize import BatchNorm
from dlc.ops.shape import Reshape, Transpose


@dataclass(frozen=True)
class _Shuffle:
    """A permutation of dimension 1 of x[N, C, D…].

    Attributes:
        x: What is shuffled.
        parts: Extents whose product is C.
        perm: How these change places.
    """

    x: Op
    parts: tuple[int, ...]
    perm: tuple[int, ...]

    def __call__(self, x: Op) -> Op:
        """The same shuffle of a value with as many channels."""
        parts = (x.shape[0], *self.parts, math.prod(x.shape[2:]))
        moved = Transpose(Reshape(x, to=parts), perm=_kept(self.perm))
        return Reshape(moved, to=x.shape)

    def undone(self, v: Op) -> Op:
        """A constant v[C, …] in the order that channels have before."""
        after = tuple(self.parts[p] for p in self.perm)
        back = tuple(self.perm.index(k) for k in range(len(self.perm)))
        moved = Transpose(Reshape(v, to=(1, *after, math.prod(v.shape[1:]))), perm=_kept(back))
        return Reshape(moved, to=v.shape)


def _kept(perm: tuple[int, ...]) -> tuple[int, ...]:
    """A permutation with a dimension before and one after that stay."""
    return (0, *(p + 1 for p in perm), len(perm) + 1)


def _shuffle(op: Op, context: RewriteContext) -> _Shuffle | None:
    """A shuffle that nothing else reads."""
    match op:
        case Reshape(x=Transpose(x=Reshape(x=x, to=to) as inner, perm=perm) as moved):
            pass
        case _:
            return None
    if x.shape != op.shape or len(op.shape) < 3 or not math.prod(op.shape):
        return None
    if not all(context.single(o) for o in (op, moved, inner)):
        return None
    # What is before the channels and after them stays where it is.
    first = _dimensions(to, op.shape[0])
    last = _dimensions(to[::-1], math.prod(op.shape[2:]))
    if first is None or last is None or first + last > len(to):
        return None
    stay = (*range(first), *range(len(to) - last, len(to)))
    middle = range(first, len(to) - last)
    if any(perm[d] != d for d in stay):
        return None
    return _Shuffle(x, tuple(to[d] for d in middle), tuple(perm[d] - first for d in middle))


def _dimensions(shape: tuple[int, ...], size: int) -> int | None:
    """How many of the first dimensions hold `size` elements; None where a dimension would have to be cut."""
    count, product = 0, 1
    while product < size and count < len(shape):
        product *= shape[count]
        count += 1
    return count if product == size else None


@rule(Conv)
def shuffle_through_depthwise(op: Conv, context: RewriteContext) -> Op | None:
    """conv(shuffle(x), w, b) → shuffle(conv(x, w', b')) for a filter per channel, w' and b' constants in x's order."""
    shuffle = _shuffle(op.x, context)
    if shuffle is None or not op.group == op.x.shape[1] == op.w.shape[0]:
        return None
    if not context.constant(op.w) or (op.b is not None and not context.constant(op.b)):
        return None
    bias = None if op.b is None else shuffle.undone(op.b)
    return shuffle(Conv(shuffle.x, shuffle.undone(op.w), bias, op.stride, op.pads, op.dilation, op.group))


@rule(BatchNorm)
def shuffle_through_batch_norm(op: BatchNorm, context: RewriteContext) -> Op | None:
    """batch_norm(shuffle(x), s, b, m, v) → shuffle(batch_norm(x, s', b', m', v')), constants in x's order."""
    shuffle = _shuffle(op.x, context)
    vectors = op.operands[1:]
    if shuffle is None or not all(context.constant(v) for v in vectors):
        return None
    return shuffle(op.with_operands((shuffle.x, *map(shuffle.undone, vectors))))


RULES = (
    shuffle_through_depthwise,
    shuffle_through_batch_norm,
)
