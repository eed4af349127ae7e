"""Gradients around residual blocks in one tensor instead of two.

    d = g·scale/std, g   (dst0, dst1)   …   sum + g             →   d alone   …   sum + d·std/scale

The gradient g at the end of a block goes through its last norm and past the block. Where the sum at the block's begin
is made, g comes back out of d: nothing writes it besides. The price is one rounding more. Source: residual addition
with a single line, published control word of the S2Train compiler's post-processing unit.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dlc.graph import Constant
from dlc_backend_s2train.codes import Flag, Slot, Stage
from dlc_backend_s2train.select.effects import Key
from dlc_backend_s2train.select.group import Given, Group
from dlc_backend_s2train.select.selection import Selection

_RANGE: Final = 2.0**6
"""How far scale/std may be from 1, either way: what d loses of fp16's range, g cannot get back."""
_TAKEN: Final = Flag.BN_BACKWARD_2 | Flag.BN_TRAIN
"""With these `dst1` and `bn1` belong to another norm."""


def on_single_lines(work: Selection) -> int:
    """Leave out gradients before norms that only a later sum reads; how many these were."""
    readers: dict[Key, list[tuple[Group, Slot]]] = {}
    for group in work.groups:
        for slot, given in group.reads.items():
            if isinstance(given.value, str):
                readers.setdefault(given.value, []).append((group, slot))
    count = 0
    for group in work.groups:
        before = group.writes.get("dst1")
        if before is None or Flag.BN_BACKWARD not in group.flags or group.flags & _TAKEN:
            continue
        # Its own norm and the sum; an output of the graph would count as well.
        if work.readers[before.key] != 2 or not _divides(norm := group.reads["bn0"]):
            continue
        ((later, slot),) = readers[before.key]
        if slot == "res" and later.stage is Stage.BACKWARD and not later.flags & _TAKEN:
            later.flags ^= Flag.ADD | Flag.ADD_SINGLE
            later.reads["res"] = Given(group.writes["dst0"].key, later.reads["res"].shape)
            later.reads["bn1"] = norm
            del group.writes["dst1"]
            count += 1
    return count


def _divides(norm: Given) -> bool:
    """Whether what a norm's backward gave can be divided by scale/std."""
    if not isinstance(norm.value, Constant):
        return False
    _, rstd, scale, _ = norm.value.tensor.array().astype(np.float32)
    factor = np.abs(rstd * scale)
    return bool(((factor >= 1 / _RANGE) & (factor <= _RANGE)).all())
