"""How classes of nests become fast loops: element-wise and movement, reductions, contractions."""

from dlc.kernel.schedules.alternatives import Alternative, alternatives
from dlc.kernel.schedules.candidate import Candidate
from dlc.kernel.schedules.extents import sizes_first
from dlc.kernel.schedules.machine import SCALAR_PANEL, WORDS_PANEL, Machine
from dlc.kernel.schedules.overrun import in_program, lengths, overruns
from dlc.kernel.schedules.schedule import Scheduled, check_transformed, schedule, scheduled, scheduled_by_blocks
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit

__all__ = [
    "SCALAR_PANEL",
    "WORDS_PANEL",
    "Alternative",
    "Candidate",
    "Machine",
    "Scheduled",
    "Unfit",
    "alternatives",
    "check_transformed",
    "in_program",
    "lengths",
    "overruns",
    "parse_choices",
    "print_choices",
    "schedule",
    "scheduled",
    "scheduled_by_blocks",
    "sizes_first",
]
