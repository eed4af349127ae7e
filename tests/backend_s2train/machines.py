"""Machines of programs that the verifier found right; and of others, to see what the simulator notices by itself."""

from __future__ import annotations

from dlc_backend_s2train.checks import Verified, verified
from dlc_backend_s2train.defaults import LIMIT
from dlc_backend_s2train.program import Program
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Mode


def machine_of(program: Program, mode: Mode = "fast", checked: bool = False, limit: int = LIMIT) -> Machine:
    """A machine of a program that is right; raises DlcError for any other."""
    return Machine(verified(program, limit), mode, checked)


def unverified(program: Program, mode: Mode = "fast", checked: bool = False, limit: int = LIMIT) -> Machine:
    """A machine of a program that nobody verified, which only a forged value gives."""
    forged = object.__new__(Verified)
    for name, value in (("_program", program), ("_limit", limit)):
        object.__setattr__(forged, name, value)
    return Machine(forged, mode, checked)
