"""The frames that a file holds, as text and as data: a line for each instruction that sends some."""

from __future__ import annotations

from typing import Any

from dlc.base.diagnostics import DlcError
from dlc_backend_s2train.frames.head import Memory
from dlc_backend_s2train.frames.stored import Sent, sent
from dlc_backend_s2train.isa.forms import spelled
from dlc_backend_s2train.program import Program

HEAD = ("#", "instruction", "frames", "bytes", "features", "weights")
RIGHT = (0, 2, 3)
"""Columns of numbers."""


def frame_rows(program: Program) -> list[tuple[str, ...]]:
    """`HEAD` and a row for each instruction; nothing where the file holds no frames, or none that fit."""
    rows: list[tuple[str, ...]] = [HEAD]
    for each in _sent(program):
        instruction = program.instructions[each.number]
        title = f"{spelled(instruction.opcode)} {spelled(instruction.stage)}"
        held = ("open" if memory in each.bare else "full" for memory in Memory)
        rows.append((str(each.number), title, f"{each.frames:,}", f"{each.end - each.begin:,}", *held))
    return rows if len(rows) > 1 else []


def frames_data(program: Program) -> list[dict[str, Any]]:
    """The same as plain data; `begin` is the byte in the section."""
    return [
        {
            "instruction": each.number,
            "frames": each.frames,
            "begin": each.begin,
            "bytes": each.end - each.begin,
            "open": [memory.name.lower() for memory in each.bare],
        }
        for each in _sent(program)
    ]


def _sent(program: Program) -> list[Sent]:
    try:
        return list(sent(program)) if program.frames else []
    except DlcError:
        return []  # `dlc verify` tells why
