"""Whether the frames that a file holds are its instructions', decoded again and held against the tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dlc.base.diagnostics import Diagnostic, DlcError, Location
from dlc_backend_s2train.checks.problems import HELP, title
from dlc_backend_s2train.frames.convert import receive
from dlc_backend_s2train.frames.frame import Frame, Memory, decode_frame, refusal
from dlc_backend_s2train.frames.stream import Sent, known, operand, sent
from dlc_backend_s2train.program import Program


def frame_problems(program: Program) -> Iterator[Diagnostic]:
    """The first thing that is wrong with the frames of a program that is right otherwise; bytes are the section's."""
    try:
        _check(program)
    except DlcError as refused:
        yield from (replace(problem, help=HELP) for problem in refused.diagnostics)


def _check(program: Program) -> None:
    view, end, number = memoryview(program.frames), 0, 0
    for each in sent(program):
        if (end := each.end) > len(view):
            name = title(each.number, program.instructions[each.number])
            raise refusal(f"the frames end at byte {len(view)}, those of {name} at {end}", Location(byte=len(view)))
        _check_instruction(program, each, view[: each.end], number)
        number += each.frames
    if end != len(view):
        raise refusal(f"the instructions' frames end at byte {end}, but there are {len(view)}", Location(byte=end))


def _check_instruction(program: Program, each: Sent, view: memoryview, first: int) -> None:
    """Raises DlcError unless an instruction's frames are in place and hold its operands."""
    at, frames = each.begin, list[Frame]()
    while at < len(view):
        frames.append(decode_frame(view, at))
        if frames[-1].head.number != first + len(frames) - 1:
            message = f"frame {frames[-1].head.number} stands where frame {first + len(frames) - 1} should be"
            raise refusal(message, Location(byte=at))
        at += frames[-1].size
    found = receive(each.conversion, frames, each.bare)
    for memory in Memory:
        if memory in each.bare:
            continue
        want = operand(program, each.number, each.conversion, memory, lambda tensor: known(program, tensor))
        assert want is not None, "what no file knows is open"
        want = want.reshape(found[memory].shape)
        # What no result needs is not sent, and comes back as a zero.
        wrong = (found[memory] != want) & (found[memory] != 0 if memory is Memory.FM else True)
        if wrong.any():
            name = title(each.number, program.instructions[each.number])
            count = int(np.count_nonzero(wrong))
            message = f"frames of {name} for {memory.name}: {count} of {want.size} elements are not the tensor's"
            raise refusal(message, Location(byte=each.begin))
