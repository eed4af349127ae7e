"""What a file holds beside its instructions says the same as they do: words of version 1, and frames.

Frames are decoded again and held against the tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from dlc.base.diagnostics import Diagnostic, DlcError, Location
from dlc_backend_s2train.checks.problems import HELP, problem, tensor_title, title
from dlc_backend_s2train.codes import Opcode
from dlc_backend_s2train.frames.convert import receive
from dlc_backend_s2train.frames.frame import Frame, Memory, decode_frame, refusal
from dlc_backend_s2train.frames.stream import Sent, known, operand, sent
from dlc_backend_s2train.isa.forms import spelled
from dlc_backend_s2train.program import Instruction, Program
from dlc_backend_s2train.v1 import encoding as v1
from dlc_backend_s2train.v1.correspondence import SLOTS, Holders, layer_of, layers_of, misread, obstacles, restored

_CODE: Final = "bad-word"


def word_problems(program: Program) -> Iterator[Diagnostic]:
    """Where a file's words, read through its numbering, are not its instructions; nothing where it has no words."""
    if not program.legacy:
        if program.numbering:
            yield problem(
                _CODE, f"{len(program.numbering)} tensors have numbers for words of version 1; there are none"
            )
        return
    layers = layers_of(program)
    every = ((n, layer_of(program, i, layers)) for n, i in enumerate(program.instructions))
    instructions = [(number, layer) for number, layer in every if layer is not None]
    if len(instructions) != len(program.legacy):
        count = f"{len(program.legacy)} words of version 1 for {len(instructions)} instructions that it has"
        yield problem(_CODE, f"there are {count}")
        return
    holders = Holders(program.numbering)
    for one, other in holders.clashes():
        names = f"{tensor_title(program, one.tensor)} and {tensor_title(program, other.tensor)}"
        yield problem(_CODE, f"number {one.number} stands for {names} at instruction {other.begin}")
    for (number, layer), data in zip(instructions, program.legacy, strict=True):
        head = f"{title(number, program.instructions[number])}: its word of version 1"
        yield from (problem(_CODE, f"{head} {message}") for message in _wrong(program, number, layer, data, holders))


def _wrong(program: Program, number: int, layer: Opcode, data: bytes, holders: Holders) -> Iterator[str]:
    instruction = program.instructions[number]
    if reason := "; ".join(obstacles(program, instruction)):
        yield f"cannot say it: {reason}"
        return
    try:
        word = v1.decode(data)
    except DlcError as refused:
        yield f"is none: {refused.diagnostics[0].message}"
        return
    tensors: dict[str, int] = {}
    for name, written in v1.tensors_of(word).items():
        held = holders.at(number, written)
        if held is None:
            yield f"names {name} {written}, which stands for no tensor here"
            return
        tensors[name] = held
    for said in misread(word, program, instruction, layer):
        yield f"says {said}"
    found = restored(word, instruction, tensors)
    if found.operands != instruction.operands:
        yield from _operands(program, instruction, word, tensors)
    for name in ("opcode", "stage", "flags", "splitting"):
        if (one := getattr(found, name)) != (other := getattr(instruction, name)):
            yield f"says {name} {spelled(one)}; the instruction has {spelled(other)}"


def _operands(program: Program, instruction: Instruction, word: v1.Word, tensors: dict[str, int]) -> Iterator[str]:
    """Which operands differ."""
    slots = SLOTS[word.stage]
    other = False
    for name, tensor in tensors.items():
        wanted = instruction.operands.get(slots[name])
        if wanted != tensor:
            other = True
            told = "nothing" if wanted is None else tensor_title(program, wanted)
            yield f"has {tensor_title(program, tensor)} as {name}; the instruction has {told} as {slots[name]}"
    if not other:
        missing = [s for s in instruction.operands if s in slots.values() and s not in (slots[n] for n in tensors)]
        yield f"leaves out {', '.join(missing)}"


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
