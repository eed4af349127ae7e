"""`MpiRanks`: the ranks that mpiexec started, by mpi4py.

Nothing here waits inside of MPI: a process that does is deaf to signals, and the launcher sends one when another rank
is lost, a second before it kills what is left. So every operation is begun, and asked about until it is done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dlc.base.diagnostics import ExitCode, error
from dlc.training.loop.ranks import Ranks, lost_rank

if TYPE_CHECKING:
    from dlc.base.types import Array

PATIENCE: Final = 0.3
"""Seconds that a process waits for others once it was asked to end; launchers kill it after one second."""
_BUSY: Final = 0.002
"""Seconds for which it asks without sleeping: most operations take less."""
_NAP: Final = 2e-4
_MOST: Final = 1 << 28
"""Elements of one operation: counts of MPI are of 32 bits."""


class MpiRanks(Ranks):
    """All ranks of one mpiexec."""

    def __init__(self, communicator: Any, library: Any) -> None:
        """Of a communicator of mpi4py and its module MPI."""
        super().__init__(int(communicator.Get_rank()), int(communicator.Get_size()))
        self._all, self._mpi = communicator, library

    def add(self, array: Array) -> None:
        """See `Ranks.add`; halves are summed as floats."""
        if array.dtype.itemsize < 4:
            wide = array.astype(np.float32)
            self.add(wide)
            array[...] = wide.astype(array.dtype)
            return
        flat = array.reshape(-1)
        for first in range(0, flat.size, _MOST):
            part = flat[first : first + _MOST]
            reduce = lambda part=part: self._all.Iallreduce(self._mpi.IN_PLACE, part, self._mpi.SUM)  # noqa: E731
            self._finish(reduce, self.timeout)

    def share(self, content: bytes) -> bytes:
        """See `Ranks.share`."""
        size = np.array([len(content)], np.int64)
        self._finish(lambda: self._all.Ibcast(size, 0))
        whole = np.frombuffer(content, np.uint8).copy() if self.leads else np.empty(int(size[0]), np.uint8)
        for first in range(0, whole.size, _MOST):
            part = whole[first : first + _MOST]
            self._finish(lambda part=part: self._all.Ibcast(part, 0))
        return whole.tobytes()

    def gather(self, content: bytes) -> list[bytes]:
        """See `Ranks.gather`."""
        sizes = np.empty(self.count, np.int64)
        self._finish(lambda: self._all.Iallgather(np.array([len(content)], np.int64), sizes))
        whole = np.empty(int(sizes.sum()), np.uint8)
        given = np.frombuffer(content, np.uint8)
        self._finish(lambda: self._all.Iallgatherv(given, [whole, sizes.tolist()]))
        ends = np.cumsum(sizes).tolist()
        return [whole[end - int(size) : end].tobytes() for end, size in zip(ends, sizes, strict=True)]

    def abort(self, code: int) -> None:
        """See `Ranks.abort`; does not return."""
        self._all.Abort(code)

    def _finish(self, begin: Callable[[], Any], timeout: float = math.inf) -> None:
        """Begin an operation and wait for its end, `timeout` seconds at most."""
        start = time.monotonic()
        with self._translated():
            request = begin()
            while not request.Test():
                if self.hurried() > PATIENCE:
                    raise lost_rank(self, "it was told to end, and others do not answer: one of them may be lost")
                if time.monotonic() - start > timeout:
                    reason = f"others do not answer within {timeout:g} seconds: one of them hangs, or is stopped"
                    raise lost_rank(self, reason)
                time.sleep(0 if time.monotonic() - start < _BUSY else _NAP)

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except self._mpi.Exception as problem:
            raise lost_rank(self, f"MPI has failed, as when another rank is lost: {problem}") from None


def mpi_ranks(expected: int) -> MpiRanks:
    """The ranks that a launcher started.

    Args:
        expected: How many the launcher says there are.

    Raises:
        DlcError: (USAGE) mpi4py is not installed, or cannot be used; (TOOL) it is for another MPI than the launcher.
    """
    try:
        from mpi4py import MPI  # pyright: ignore
    except ImportError as problem:
        raise error(
            "no-package",
            f"this is one of {expected} ranks, and the Python package mpi4py cannot be imported: {problem}",
            help="pip install 'dlc[mpi]'; it needs the MPI library that mpiexec belongs to",
            exit_code=ExitCode.USAGE,
        ) from None
    library: Any = MPI
    found = MpiRanks(library.COMM_WORLD, library)
    library.COMM_WORLD.Set_errhandler(library.ERRORS_RETURN)
    if found.count != expected:
        name = str(library.Get_library_version()).splitlines()[0].partition(",")[0].strip("\0 ")
        raise error(
            "other-mpi",
            f"the launcher started {expected} ranks, and mpi4py sees {found.count}: it belongs to {name}",
            help="use the mpiexec of that MPI, or install mpi4py for the other one",
            exit_code=ExitCode.TOOL,
        )
    return found
