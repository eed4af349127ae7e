"""How classes of nests become fast loops: element-wise and movement, reductions, contractions."""

from dlc.kernel.schedules.extents import sizes_first
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.overrun import in_program, lengths, overruns
from dlc.kernel.schedules.schedule import schedule

__all__ = ["Machine", "in_program", "lengths", "overruns", "schedule", "sizes_first"]
