"""Concatenations, slices and shuffles as copies of the runs of elements that lie side by side on both sides.

    y = concat(a, b) along the channels of one sample   →   copy a to the begin of y, copy b behind it
    y = x with channels in another order                →   a copy of each channel

Behind more than one index in front of the axis there is a run for each of them. All are one op of the graph of
instructions, so that its memory is planned as a whole; the program has an instruction for each run.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Final

from dlc.graph import Op
from dlc.ops.shape import Concat, Slice, Transpose
from dlc_backend_s2train.codes import Element, Opcode, Role, Stage
from dlc_backend_s2train.select.effects import is_row, offset
from dlc_backend_s2train.select.group import Given, Group, Made
from dlc_backend_s2train.select.selection import Selection

MOST: Final = 1024
"""Runs of one op: each is an instruction with two tensors of its own."""
LEAST: Final = 16
"""Elements of a run that a transposition moves: the host is better at moving fewer."""
_HALF: Final = 2
"""Bytes of an fp16."""
Run = tuple[Op, int, tuple[int, ...]]
"""A value, its element at which the run begins, the run's shape."""


def runs_of(op: Op) -> list[Run] | str:
    """The runs that an op puts behind each other; or why it is no such op."""
    if not op.dtype.is_float:
        return f"it moves {op.dtype}: copies move floats"
    match op:
        case Concat(xs=xs, axis=axis):
            outer = math.prod(op.shape[:axis])
            parts = [(x, axis, 0, x.shape[axis:]) for x in xs if x.type.size]
        case Slice(x=x, starts=starts, sizes=sizes):
            cut = [d for d, (size, extent) in enumerate(zip(sizes, x.shape, strict=True)) if size != extent]
            if any(step != 1 for step in op.steps) or len(cut) != 1:
                return f"it takes {list(sizes)} of {x.type}: copies move whole rows of all but one dimension"
            (axis,) = cut
            outer = math.prod(op.shape[:axis])
            parts = [(x, axis, starts[axis] * math.prod(x.shape[axis + 1 :]), (sizes[axis], *x.shape[axis + 1 :]))]
        case Transpose(x=x, perm=perm):
            return _turned(x, perm)
        case _:
            return f"{op.text_name} is no copy"
    if outer * len(parts) > MOST or not op.type.size:
        return f"it would take {outer * len(parts):,} copies of runs of elements; {MOST} are the most"
    # All of one outer index first: that is the order of the result.
    return [
        (x, k * math.prod(x.shape[axis:]) + first, (*x.shape[:axis], *shape) if outer == 1 else shape)
        for k in range(outer)
        for x, axis, first, shape in parts
    ]


def _turned(x: Op, perm: tuple[int, ...]) -> list[Run] | str:
    """The runs of a transposition: what lies behind the last dimension that moves stays together."""
    moved = next((d + 1 for d in reversed(range(len(perm))) if perm[d] != d), 0)
    outer, run = [x.shape[p] for p in perm[:moved]], x.shape[moved:]
    size = math.prod(run)
    if size < LEAST or math.prod(outer) > MOST:
        told = f"{math.prod(outer):,} runs of {size} elements"
        return f"it moves {told}: copies move at most {MOST}, of at least {LEAST}"
    steps = [size * math.prod(x.shape[p + 1 : moved]) for p in perm[:moved]]
    places = (sum(i * step for i, step in zip(index, steps, strict=True)) for index in product(*map(range, outer)))
    return [(x, place, run) for place in places]


def forward(work: Selection, op: Concat | Slice | Transpose) -> None:
    """Copy the runs, in the order of the result."""
    found = runs_of(op)
    if isinstance(found, str):
        work.refuse(op, found)
        return
    if any(is_row(x) for x, _, _ in found):
        work.refuse(op, "gradients of a norm's parameters are fp32: copies of runs move fp16")
        return
    group = Group(Opcode.COPY, Stage.FORWARD, op, origin=[op])
    for x, first, shape in found:
        given = work.given(x)
        group.sources.append(Given(given.value, shape, offset(x) + _HALF * first))
    group.writes["dst0"] = Made(op.digest, Element.FP16, op.shape, Role.ACTIVATION)
    work.groups.append(group)
