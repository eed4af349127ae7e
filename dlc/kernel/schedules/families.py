"""The families of schedules of a group of nests that share loops."""

from __future__ import annotations

from dlc.kernel.schedules.choice import Choice
from dlc.kernel.schedules.columns import Columns
from dlc.kernel.schedules.contraction import Tiles
from dlc.kernel.schedules.copies import Copies
from dlc.kernel.schedules.digits import DigitTiles
from dlc.kernel.schedules.pipelined import Pipelined
from dlc.kernel.schedules.plain import Loops
from dlc.kernel.schedules.rows import Rows
from dlc.kernel.schedules.scalar_tiles import ScalarTiles
from dlc.kernel.schedules.scalar_words import ScalarWords
from dlc.kernel.schedules.shuffled import Shuffled
from dlc.kernel.schedules.turned import Turned
from dlc.kernel.schedules.windows import Windows
from dlc.kernel.schedules.words import WordTiles

FAMILIES: tuple[type[Choice], ...] = (
    Copies,
    WordTiles,
    ScalarWords,
    Columns,
    Windows,
    DigitTiles,
    Shuffled,
    Tiles,
    ScalarTiles,
    Rows,
    Turned,
    Pipelined,
    Loops,
)
"""The families of schedules of a group, the one that is expected to be fastest first."""
