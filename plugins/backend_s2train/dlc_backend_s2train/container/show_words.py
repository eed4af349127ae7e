"""Words of version 1 as text: each with the instruction that it is for, and what their numbers stand for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from dlc_backend_s2train.isa.text import print_v1
from dlc_backend_s2train.program import Program
from dlc_backend_s2train.v1 import encoding as v1
from dlc_backend_s2train.v1.correspondence import worded


def shown_words(program: Program) -> str:
    """`HEX  TEXT  # INSTRUCTION`, a word a line."""
    lines = (
        f"{data.hex()}  {print_v1(v1.decode(data))}  # {'no instruction' if at is None else at}"
        for data, at in _beside(program)
    )
    return "\n".join(lines)


def number_rows(program: Program) -> list[tuple[str, ...]]:
    """A row for each time that a number stands for a tensor, below a head; none where numbers are the tensors' own."""
    if all(entry.number == entry.tensor for entry in program.numbering):
        return []
    rows = [(f"%{e.number}", f"%{e.tensor}", f"{e.begin} to {e.end}") for e in program.numbering]
    return [("number", "tensor", "instructions"), *rows]


def words_summary(program: Program) -> str:
    """`82 for 84 instructions, 60 numbers for 135 tensors`."""
    numbers = {entry.number for entry in program.numbering}
    tensors = {entry.tensor for entry in program.numbering}
    words = f"{len(program.legacy):,} for {len(program.instructions):,} instructions"
    return f"{words}, {len(numbers):,} of {v1.TENSORS} numbers for {len(tensors):,} tensors"


def words_data(program: Program) -> dict[str, Any]:
    """The same as a JSON object."""
    return {
        "words": [
            {"instruction": at, "word": data.hex(), "text": print_v1(v1.decode(data))} for data, at in _beside(program)
        ],
        "numbering": [
            {"number": e.number, "tensor": e.tensor, "begin": e.begin, "end": e.end} for e in program.numbering
        ],
    }


def _beside(program: Program) -> Sequence[tuple[bytes, int | None]]:
    """Words with their instructions; a file that is wrong may have more words than those."""
    pairs = zip_longest(program.legacy, worded(program))
    return [(data, at) for data, at in pairs if data is not None]
