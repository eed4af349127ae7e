"""The link stream that a file holds: frames of all instructions, in their order, with what is known before a run.

Known is what the storages of weights hold at first, and the ones that gradients of biases are made with: their frames
are complete, for the first run of every entry. Activations, gradients and what an update moves are values of a run:
their frames are open, heads with lengths and addresses in the places and order of the whole stream, without data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.base.diagnostics import ExitCode, error
from dlc.base.report import Report
from dlc_backend_s2train.codes import Arena, Element
from dlc_backend_s2train.container.layout import FRAMES
from dlc_backend_s2train.frames.convert import Conversion
from dlc_backend_s2train.frames.head import Memory
from dlc_backend_s2train.frames.sizes import sizes_of
from dlc_backend_s2train.frames.stream import conversion_of, has_ones, program_frames, sends
from dlc_backend_s2train.program import Program


@dataclass(frozen=True)
class Sent:
    """The frames of one instruction."""

    number: int
    """In the program."""
    conversion: Conversion
    frames: int
    begin: int
    """Byte in the section."""
    end: int
    bare: tuple[Memory, ...]
    """Memories whose frames are open."""


def known(program: Program, tensor: int) -> NDArray[Any] | None:
    """What a tensor holds in the first run of an entry, of the tensor's shape; None: a value of the run."""
    view = program.tensors[tensor]
    if not _stays(program, tensor):
        return None
    held = program.weights.get(view.storage)
    if held is None:
        return np.zeros(view.shape, np.float16)
    return np.frombuffer(held, "<f2", view.count, view.offset).reshape(view.shape)


def sent(program: Program) -> Iterator[Sent]:
    """Each instruction of a verified program that sends frames, with the place of its frames in the section.

    Raises:
        DlcError: "bad-geometry", "too-large", "bad-target": an operator that has no frames.
    """
    at = 0
    for number, instruction in enumerate(program.instructions):
        if not sends(instruction):
            continue
        con = conversion_of(program, instruction)
        features, weights = sizes_of(con.layout).sent
        bare = tuple(memory for memory in Memory if not _known(program, number, con, memory))
        size = sum(b.bare if memory in bare else b.bytes for memory, b in zip(Memory, (features, weights), strict=True))
        yield Sent(number, con, features.frames + weights.frames, at, at + size, bare)
        at += size


def stored_frames(program: Program, report: Report) -> bytes:
    """The section's bytes; the report is told their size before they are made.

    Raises:
        DlcError: (USAGE) "too-many-frames", before memory is taken, with the size that they would have.
    """
    every = list(sent(program))
    size = max((each.end for each in every), default=0)
    report.note(f"frames of {len(every)} instructions: {sum(each.frames for each in every):,}, of {size:,} bytes")
    if size > FRAMES:
        raise error(
            "too-many-frames",
            f"emit=frames: the frames come to {size:,} bytes; a file holds {FRAMES:,}",
            help="build fewer functions, -p s2train-step for a step or no --train for prediction, or no frames",
            exit_code=ExitCode.USAGE,
        )
    made = b"".join(program_frames(program, lambda tensor: known(program, tensor)))
    assert len(made) == size, f"{len(made)} bytes of frames, counted were {size}"
    report.count("bytes of frames", size)
    return made


def _known(program: Program, number: int, con: Conversion, memory: Memory) -> bool:
    instruction = program.instructions[number]
    if has_ones(instruction) and memory is Memory.FM:
        return True
    return _stays(program, instruction.operands[con.view(memory).slot])


def _stays(program: Program, tensor: int) -> bool:
    view = program.tensors[tensor]
    return program.storages[view.storage].arena is Arena.WEIGHTS and view.element is Element.FP16
