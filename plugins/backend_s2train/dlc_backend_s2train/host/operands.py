"""Operands of any instruction by name: slots, or, of a call of a host function, that function's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.isa.forms import Way
from dlc_backend_s2train.program import Instruction, Program

MOST: Final = 256
"""Tensors that one host function reads and writes at most."""


def operands_of(program: Program, instruction: Instruction) -> Mapping[str, tuple[Way, int]]:
    """Name of an operand → how the instruction touches it, and its tensor: slots as `access` orders them.

    What a host function reads is called `read 0`, `read 1`…, what it writes `write 0`…

    Raises:
        DlcError: "bad-instruction", as `access`.
    """
    ways = access(instruction)
    if instruction.function is None:
        return {slot: (way, instruction.operands[slot]) for slot, way in ways.items()}
    function = program.functions[instruction.function]
    found: dict[str, tuple[Way, int]] = {f"read {k}": ("read", t) for k, t in enumerate(function.reads)}
    return {**found, **{f"write {k}": ("write", t) for k, t in enumerate(function.writes)}}
