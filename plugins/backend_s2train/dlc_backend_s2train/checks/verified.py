"""`Verified`: what the verifier found right. A machine is made of nothing else, so no way to one leads around it."""

from __future__ import annotations

from typing import Final, final

from dlc.base.diagnostics import DlcError, ExitCode
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.checks.problems import TOO_LARGE
from dlc_backend_s2train.defaults import LIMIT
from dlc_backend_s2train.program import Program

_SEAL: Final = object()


@final
class Verified:
    """A program without problems that takes at most `limit` bytes of memory; only `verified` makes one."""

    __slots__ = ("_limit", "_program")

    def __init__(self, program: Program, limit: int, seal: object = None) -> None:
        """Refuse everybody but `verified`."""
        if seal is not _SEAL:
            raise TypeError("dlc_backend_s2train.checks.verified.verified makes these, once it has found nothing wrong")
        self._program, self._limit = program, limit

    @property
    def program(self) -> Program:
        """The program."""
        return self._program

    @property
    def limit(self) -> int:
        """Bytes of memory that a machine may take for it."""
        return self._limit


def verified(program: Program, limit: int = LIMIT) -> Verified:
    """The program, once the verifier has found nothing wrong with it.

    Args:
        program: From wherever.
        limit: Bytes of memory that it may take.

    Raises:
        DlcError: everything that `verify` finds; with the exit code LIMIT where that is its memory alone.
    """
    if problems := verify(program, limit):
        large = all(problem.code == TOO_LARGE for problem in problems)
        raise DlcError(*problems, exit_code=ExitCode.LIMIT if large else ExitCode.MODEL)
    return Verified(program, limit, _SEAL)
