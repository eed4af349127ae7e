"""`Ranks`: the processes that train one program together, each on its part of every batch.

Their numbers begin at 0. What they do together, each of them does in the same order; rank 0 is the one that writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dlc.base.diagnostics import DlcError, ExitCode, error

if TYPE_CHECKING:
    from dlc.base.types import Array


TIMEOUT: Final = 600.0


@dataclass
class Ranks:
    """One process alone; `dlc.training.loop.mpi.MpiRanks` are several."""

    rank: int = 0
    """Of this process."""
    count: int = 1
    hurried: Callable[[], float] = lambda: 0.0
    """For how many seconds this process has been asked to end: it then waits for others a moment, not for ever."""

    timeout: float = TIMEOUT
    """Seconds for which a sum waits for the others: they make the same steps, and are there soon unless one hangs."""

    @property
    def leads(self) -> bool:
        """Whether this process writes files and tells the user."""
        return self.rank == 0

    def add(self, array: Array) -> None:
        """Sum a contiguous array of floats over all ranks, in place. Raises DlcError (`lost-rank`)."""
        del array

    def share(self, content: bytes) -> bytes:
        """What rank 0 gives. Raises DlcError (`lost-rank`)."""
        return content

    def gather(self, content: bytes) -> list[bytes]:
        """What each rank gives, in order. Raises DlcError (`lost-rank`)."""
        return [content]

    def abort(self, code: int) -> None:
        """End all ranks at once; alone there is nobody else to end."""
        del code


def lost_rank(ranks: Ranks, reason: str) -> DlcError:
    """Others do not answer."""
    return error(
        "lost-rank",
        f"rank {ranks.rank} of {ranks.count} ends: {reason}",
        notes=("the last checkpoint that rank 0 wrote is kept",),
        help="start all ranks again with --resume to continue from the checkpoint",
        exit_code=ExitCode.TOOL,
    )
