"""How problems name what they are about."""

from __future__ import annotations

import re

from dlc.base.diagnostics import Diagnostic, quote
from dlc_backend_s2train.program import Instruction, Program

HELP = "the program was not made as it should be: build it again, and report this if it stays"


def problem(code: str, message: str, *notes: str) -> Diagnostic:
    """One problem of a program."""
    return Diagnostic(code, message, notes=notes, help=HELP)


def title(number: int, instruction: Instruction) -> str:
    """`instruction 12 (conv weight-gradient)`."""
    stage = instruction.stage.name.lower().replace("_", "-")
    return f"instruction {number} ({instruction.opcode.name.lower()} {stage})"


def instruction_of(message: str) -> int | None:
    """The number of the instruction that a message is about, as `title` writes it; None: it is about another thing."""
    found = re.match(r"instruction (\d+) \(", message)
    return int(found[1]) if found else None


def tensor_title(program: Program, number: int) -> str:
    """`tensor 3 "conv1.w"`."""
    return f"tensor {number} {quote(program.tensors[number].name)}"
