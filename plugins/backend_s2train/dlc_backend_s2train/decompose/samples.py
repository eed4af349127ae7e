"""Instructions on so many samples that the unit behind the array cannot count them: several, on some samples each.

    y = norm(conv(x, w)), 128 samples of 32 x 32   →   the same on samples 0 to 63, then on samples 64 to 127

The unit goes to the next channel's parameters of a norm, or addends, when N·H·W elements have passed, which it counts
in 16 bits. Both instructions have the same operands and name their samples, so that nobody else sees two. In a graph
they are one: `parts` is for the program. Source: published control words of the S2Train compiler, section 1.4.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from dlc.api.backend import Reason
from dlc_backend_s2train.instruction import S2Instruction, element_of, geometry_of
from dlc_backend_s2train.program import Geometry

COUNTED: Final = 1 << 16
"""Elements of a channel that pass the unit in one instruction."""
_COUNTING: Final = frozenset(("add", "add_single", "bn_forward", "bn_backward", "bn_backward_2"))
_WHOLE: Final = frozenset(("bn_train", "softmax_ce"))
"""Stages that need the whole batch, and that the published unit does not have."""


def parts(op: S2Instruction) -> tuple[Geometry | None, ...] | Reason:
    """The geometries of the instructions that an op becomes: its own, or one for each range of samples.

    A reason instead: the unit cannot count one sample's elements.
    """
    g = geometry_of(op.geometry)
    shape = _counted(op, g)
    if not _COUNTING & set(op.flags) or _WHOLE & set(op.flags) or math.prod(shape[:1] + shape[2:]) <= COUNTED:
        return (g,)
    n, channels, *places = shape
    each = math.prod(places)
    # A sample's bits of a mask have to begin with a byte.
    unit = math.lcm(*(8 // math.gcd(8, bits) for bits in _bits(op, n)))
    most = COUNTED // each // unit * unit
    if not most:
        told = "a sample" if unit == 1 else f"{unit} samples, whose masks fill whole bytes,"
        reason = f"{told} of {each:,} elements in a channel: the unit behind the array counts {COUNTED:,} at once"
        return Reason(reason, "smaller images, or sizes that are multiples of 8")
    if g is None:
        height, width = (*places, 1, 1)[:2]
        g = Geometry(n, channels, channels, height, width, height, width)
    # Parts of nearly equal size: the last one fills the array as well as the others.
    count = -(-n // most)
    step = -(-n // (count * unit)) * unit
    return tuple(replace(g, samples=(first, min(first + step, n))) for first in range(0, n, step))


def _counted(op: S2Instruction, g: Geometry | None) -> tuple[int, ...]:
    """The shape of what passes the unit's norm and addition: forward before it pools, backward behind that."""
    if op.stage == "forward" and op.opcode != "eltwise" and g is not None:
        return g.n, g.co, g.ho, g.wo
    if op.stage == "forward":
        return next((shape for slot, shape, _ in op.reads if slot == "src0"), ())
    return next((shape for slot, _, shape, _, _ in op.writes if slot == "dst0"), ())


def _bits(op: S2Instruction, n: int) -> list[int]:
    """Bits of a sample of all that is stored in less than bytes."""
    small = {"mask": 1, "ptr": 4 if "pool_4" in op.flags else 2, "aux": 1 if "dropout" in op.flags else 32}
    seen = [(small.get(slot, 16), shape) for slot, shape, _ in op.reads]
    seen += [(element_of(element).bits, shape) for _, element, shape, _, _ in op.writes]
    return [bits * math.prod(shape) // n for bits, shape in seen if shape[:1] == (n,)]
