"""The device as its host sees it: registers, operations, a run that is looked at, and what drives a chip."""

from __future__ import annotations

from pathlib import Path
from typing import Final

C_SOURCES: Final = Path(__file__).parent / "c"
"""What is compiled with a driver: the board's header, and a board that is the simulator."""
