"""A loss scale that the host changes: one for the whole program, and a power of two."""

from __future__ import annotations

from collections.abc import Iterator

from dlc.base.diagnostics import Diagnostic
from dlc_backend_s2train.checks.problems import problem, title
from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.program import LOSS_SCALES, Program


def scale_problems(program: Program) -> Iterator[Diagnostic]:
    """Losses, updates and prunings whose gradients would be scaled in different ways once the host doubles the scale.

    A number that is no power of two would change more than the range of gradients.
    """
    growing = {h.scale for h in program.hypers if h.growth}
    if not growing:
        return
    common = min(growing)
    if common not in LOSS_SCALES:
        yield problem("bad-scale", f"the host may change a loss scale of {common:g}, no power of two from 1 to 2^24")
    for number, i in enumerate(program.instructions):
        if not (i.flags & (Flag.SOFTMAX_CE | Flag.PRUNE) or i.stage is Stage.WEIGHT_UPDATE):
            continue
        if i.hyper is not None and program.hypers[i.hyper].scale != common:
            has = program.hypers[i.hyper].scale
            yield problem("bad-scale", f"{title(number, i)} has the loss scale {has:g}, others {common:g}")
        if i.hyper is None and Flag.SOFTMAX_CE in i.flags:
            yield problem("bad-scale", f"{title(number, i)} has no loss scale, and others {common:g}, which may change")
