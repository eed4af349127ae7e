"""Hyper-parameters that an instruction cannot work with."""

from __future__ import annotations

from collections.abc import Iterator

from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.program import Instruction, Program

_LEAST = 2.0**-126
"""The least normal fp32: smaller divisors have infinite quotients."""


def number_problems(program: Program, instruction: Instruction) -> Iterator[str]:
    """What is wrong with the numbers that an instruction uses."""
    if instruction.hyper is None:
        return
    h = program.hypers[instruction.hyper]
    if instruction.updates and not h.scale >= _LEAST:
        yield f"it divides gradients by a loss scale of {h.scale}"
    if Flag.DROPOUT in instruction.flags and not 0 <= h.keep <= 1:
        yield f"dropout keeps with the probability {h.keep}"
    if Flag.PRUNE in instruction.flags and not h.threshold >= 0:
        yield f"it prunes below a threshold of {h.threshold}"
    if Flag.BN_TRAIN in instruction.flags and instruction.stage is Stage.FORWARD and not h.epsilon >= 0:
        yield f"a variance gets an epsilon of {h.epsilon}"
