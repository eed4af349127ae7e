"""Offsets by OR-Tools' CP-SAT: lifetimes are fixed intervals, offsets variable ones, and no two rectangles overlap."""

from __future__ import annotations

import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final

from dlc.placement.allocator import Allocator, Decision, Instance

_WORK_PER_SECOND: Final = 250_000_000
"""Of its deterministic time, whose seconds are about those of a clock."""


class CpSat(Allocator):
    """NoOverlap2D of OR-Tools, one worker, in deterministic time."""

    name: ClassVar[str] = "cp-sat"

    @classmethod
    def lacks(cls) -> str:
        """The package."""
        return "" if find_spec("ortools") else 'ortools is not installed: pip install "dlc[exact]"'

    def decide(self, instance: Instance, capacity: int, work: int, deadline: float | None) -> Decision:
        """See `Allocator.decide`."""
        cp: Any = import_module("ortools.sat.python.cp_model")
        model: Any = cp.CpModel()
        offsets = [model.new_int_var(0, capacity - size, "") for size in instance.sizes]
        lives = [
            model.new_fixed_size_interval_var(b, d - b, "")
            for b, d in zip(instance.births, instance.deaths, strict=True)
        ]
        spans = [model.new_fixed_size_interval_var(o, s, "") for o, s in zip(offsets, instance.sizes, strict=True)]
        model.add_no_overlap_2d(lives, spans)
        model.add_cumulative(lives, list(instance.sizes), capacity)
        solver: Any = cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = work / _WORK_PER_SECOND
        if deadline is not None:
            solver.parameters.max_time_in_seconds = max(deadline - time.monotonic(), 0.001)
        status = solver.solve(model)
        spent = round(solver.response_proto.deterministic_time * _WORK_PER_SECOND)
        found = status in (cp.OPTIMAL, cp.FEASIBLE)
        placed = tuple(int(solver.value(o)) for o in offsets) if found else None
        return Decision(placed, status == cp.INFEASIBLE, spent)
