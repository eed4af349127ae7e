"""Vector lanes across a reduced axis, placeholder until the vector schedules follow."""

from __future__ import annotations

from dlc.kernel.expr import Axis
from dlc.kernel.loops import Local, Stmt
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.machine import Machine


def folded(nest: Nest, reduced: tuple[Axis, ...], sum: Local, machine: Machine) -> tuple[Stmt, ...] | None:
    """None: the scalar loop it is."""
    del nest, reduced, sum, machine
    return None
