"""Whether a program makes sense, found out without running it, and without a line of any planner's or reader's code.

A machine is made of nothing else than what the verifier found right (`Verified`), so no way to one leads around it.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Final, final

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode
from dlc_backend_s2train.checks.problems import TOO_LARGE, limit_problems
from dlc_backend_s2train.defaults import LIMIT
from dlc_backend_s2train.program import Program

MOST = 100
"""Problems that are reported; a hostile program could have billions."""
_SEAL: Final = object()
_BASIC = ("no-such-number", "bad-tensor", "bad-function")


def verify(program: Program, limit: int | None = None) -> list[Diagnostic]:
    """Everything that is wrong with `program`, `MOST` problems at most; none where it may be run.

    Storages do not share bytes while both live; tensors lie inside their storages, aligned to their elements; operands
    exist, have the elements and shapes of the instruction's geometry, and live; every read follows a write of the entry
    unless the host or the weights give the value; host functions are understood, and on tensors of their types; no
    weight is read behind its update; no instruction writes over what it still reads; tokens are paired; entries lie
    inside the instructions, and their outputs are written; a loss scale that the host may change is everywhere the
    same; what changes nothing is as in every other program; the program takes at most `limit` bytes of memory, if there
    is one; words of version 1 and registers, where there are some, say what the instructions say; frames, where there
    are some, are those of the instructions, and decoded again they are the tensors.
    """
    from dlc_backend_s2train.checks.canonical import canonical_problems, word_problems
    from dlc_backend_s2train.checks.declarations import (
        function_problems,
        scale_problems,
        storage_problems,
        tensor_problems,
    )
    from dlc_backend_s2train.checks.flow import entry_problems
    from dlc_backend_s2train.checks.instructions import instruction_problems
    from dlc_backend_s2train.checks.setups import setup_problems

    first = chain(storage_problems(program), tensor_problems(program), function_problems(program))
    found = list(islice(first, MOST))
    if any(problem.code in _BASIC for problem in found) or len(found) == MOST:
        return found  # what follows looks tensors' storages and rows up
    if limit is not None:
        found += limit_problems(program, limit)
    found += islice(chain(instruction_problems(program), entry_problems(program)), MOST - len(found))
    if not any(problem.code == "no-such-number" for problem in found):
        found += islice(scale_problems(program), MOST - len(found))
    if not any(problem.code in ("no-such-number", "bad-instruction") for problem in found):
        found += islice(word_problems(program), MOST - len(found))
    if not found:
        found += islice(chain(canonical_problems(program), setup_problems(program)), MOST)
    if program.frames and not found:
        from dlc_backend_s2train.checks.frames import frame_problems  # few programs have frames

        found += frame_problems(program)
    return found


@final
class Verified:
    """A program without problems that takes at most `limit` bytes of memory; only `verified` makes one."""

    __slots__ = ("_limit", "_program")

    def __init__(self, program: Program, limit: int, seal: object = None) -> None:
        """Refuse everybody but `verified`."""
        if seal is not _SEAL:
            raise TypeError("dlc_backend_s2train.checks.verified makes these, once it has found nothing wrong")
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
