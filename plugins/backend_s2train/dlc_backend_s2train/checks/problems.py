"""How problems name what they are about; and the one problem of a program that is right: it takes too much memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

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


TOO_LARGE: Final = "too-large"
_MEBI: Final = 1 << 20


def needed(program: Program) -> tuple[int, int]:
    """Bytes of the device's memory, from address 0 to the end of the last storage; and of the host's functions, of
    which one runs at a time."""
    device = max((s.address + s.size for s in program.storages), default=0)
    if not program.functions:
        return device, 0
    from dlc_backend_s2train.host_functions import room  # imports all ops; few programs have functions

    return device, room(program)


def limit_problems(program: Program, limit: int) -> Iterator[Diagnostic]:
    """That a program takes more memory than `limit` bytes, with what would do."""
    device, host = needed(program)
    if device + host > limit:
        yield too_large(device + host, limit, f"{device:,} bytes of the device, {host:,} of its host functions")


def too_large(size: int, limit: int, *notes: str) -> Diagnostic:
    """The message that `size` bytes are more than the limit."""
    message = f"the program needs {size:,} bytes of memory, the limit is {limit:,}"
    return Diagnostic(TOO_LARGE, message, notes=notes, help=f"--max-memory {-(-size // _MEBI)}MiB allows it")
