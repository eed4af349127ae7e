"""Words of version 1 beside the instructions that they are for: they say the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dlc.base.diagnostics import Diagnostic, DlcError
from dlc_backend_s2train.checks.problems import problem, tensor_title, title
from dlc_backend_s2train.codes import Opcode
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
