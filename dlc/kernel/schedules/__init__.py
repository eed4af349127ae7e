"""How classes of nests become fast loops: element-wise and movement, reductions, contractions."""

from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.overrun import overruns
from dlc.kernel.schedules.schedule import schedule

__all__ = ["Machine", "overruns", "schedule"]
