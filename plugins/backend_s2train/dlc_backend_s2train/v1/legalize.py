"""Instructions as words of version 1, where those can say them, and the reasons where they cannot: `s2train{isa=v1}`.

The bits are those of the published compiler's encoding: padding is always `none` (frames come padded), weight gradients
and updates always have stride 1 and kernel 1. Shapes, pads, hyper-parameters, tokens and cores are implicit. So are
operands that words have no place for: labels and loss, partial sums, velocity and master weights and, in a backward
with `add`, the addend and the gradient of the other branch; the second norm's gradient too. `Legacy.implicit` lists
them.

Numbers are few and tensors many: a number is given anew once the tensor that it stood for is no longer used.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dlc.base.diagnostics import Diagnostic, DlcError, Location, quote
from dlc_backend_s2train.codes import Arena, Flag, Stage
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.isa.instruction_set import ROW_OF, Opcode, spelled
from dlc_backend_s2train.program import Instruction, Numbered, Program
from dlc_backend_s2train.v1 import encoding as v1
from dlc_backend_s2train.v1.correspondence import NORMS, OPS, PARTIAL, SLOTS, layer_of, layers_of, obstacles

_BITS: Final = {
    "relu": Flag.RELU | Flag.MASK_READ,
    "add": Flag.ADD | Flag.ADD_SINGLE,
    "maxpool": Flag.POOL_2 | Flag.POOL_4,
    "softmax": Flag.SOFTMAX_CE,
}
"""Header bits, and the flags that any of sets them."""

_IMPLICIT_FLAGS: Final = Flag.POOL_2 | Flag.POOL_4 | Flag.ADD_SINGLE | Flag.PRUNE
"""Flags whose way the configuration of the unit says, not the word."""


@dataclass(frozen=True)
class Legacy:
    """A program in words of version 1."""

    words: Mapping[int, bytes]
    """Instruction → its word, in order."""
    reasons: Mapping[int, str]
    """Instruction that version 1 has → why its words do not say this one."""
    implicit: Mapping[int, str]
    """Instruction → what its word leaves out."""
    numbering: tuple[Numbered, ...]
    """Which tensor a number stands for, and where."""
    without: tuple[int, ...] = ()
    """As `wordless` tells."""

    @property
    def complete(self) -> bool:
        """Whether each instruction that version 1 has is said by its word."""
        return not self.reasons

    @property
    def numbers(self) -> int:
        """Numbers of tensors that the words need: the largest one and one."""
        return max((entry.number for entry in self.numbering), default=-1) + 1


def to_v1(program: Program) -> Legacy:
    """`program`, whose structure has been verified, in words of version 1.

    If it has more than 512 tensors, a number stands for another tensor once its own is no longer used.

    Raises:
        DlcError: "bad-instruction", if an instruction is none.
    """
    made: dict[int, v1.Word] = {}
    reasons: dict[int, str] = {}
    layers = layers_of(program)
    for at, instruction in enumerate(program.instructions):
        access(instruction)
        layer = layer_of(program, instruction, layers)
        if layer is None:
            continue
        if reason := "; ".join(obstacles(program, instruction)):
            reasons[at] = reason
        else:
            made[at] = _word(program, instruction, layer)
    uses = [(at, tuple(v1.tensors_of(word).values())) for at, word in made.items()]
    numbering = number_tensors(program, uses, v1.TENSORS)
    numbers = {entry.tensor: entry.number for entry in numbering}
    words: dict[int, bytes] = {}
    for at, word in made.items():
        largest = max(numbers[tensor] for tensor in v1.tensors_of(word).values())
        if largest < v1.TENSORS:
            words[at] = _numbered(word, numbers)
        else:
            reasons[at] = f"more than {v1.TENSORS} tensors are in use: it needs number {largest}"
    left_out = {at: _left_out(program.instructions[at]) for at in words}
    implicit = {at: left for at, left in left_out.items() if left}
    return Legacy(words, dict(sorted(reasons.items())), implicit, numbering, wordless(program))


def from_v1(words: Iterable[bytes], source: str = "") -> tuple[v1.Word, ...]:
    """What words of version 1 say; shapes and all that is implicit are not in them.

    Raises:
        DlcError: "bad-word", at the byte in question, counted from the first word's begin.
    """
    return v1.decode_program(b"".join(words), source)


def wordless(program: Program) -> tuple[int, ...]:
    """Instructions that version 1 does not have, those aside that only order others or name bytes anew."""
    layers = layers_of(program)
    without = ((n, i) for n, i in enumerate(program.instructions) if layer_of(program, i, layers) is None)
    return tuple(n for n, i in without if not _needs_none(program, i))


def _needs_none(program: Program, instruction: Instruction) -> bool:
    """Whether words compute the same without the instruction."""
    if instruction.opcode is Opcode.COPY:
        # The same bytes under another shape.
        source, target = (program.tensors[instruction.operands[slot]] for slot in ("src0", "dst0"))
        return (source.storage, source.offset) == (target.storage, target.offset)
    return ROW_OF[instruction.opcode].orders


def _word(program: Program, instruction: Instruction, layer: Opcode) -> v1.Word:
    """The word with the program's own numbers of tensors."""
    word = v1.WORDS[instruction.stage]
    values: dict[str, Any] = {
        "op": OPS[layer],
        "part_sum": bool(instruction.splitting & PARTIAL),
        "bn": sum(bool(instruction.flags & flags) for flags in NORMS),
        **{bit: bool(instruction.flags & flags) for bit, flags in _BITS.items()},
    }
    if instruction.stage in (Stage.FORWARD, Stage.BACKWARD) and instruction.opcode is Opcode.CONV:
        geometry = program.geometries[instruction.geometry or 0]
        values |= {"kernel": geometry.kh, "stride": geometry.stride[0]}
    names = {field.name for field in v1.header_fields(word)}
    fields = {name: value for name, value in values.items() if name in names}
    operands: dict[str, Any] = {
        name: instruction.operands[SLOTS[instruction.stage][name]]
        for name, condition, allowed in v1.operands(word)
        if not condition or fields[condition] in allowed
    }
    return word(**fields, **operands)


def _left_out(instruction: Instruction) -> str:
    """What the instruction says and its word does not."""
    said = set(SLOTS[instruction.stage].values())
    two = Flag.BN_BACKWARD_2 in instruction.flags
    slots = [slot for slot in instruction.operands if slot not in said or (slot == "bn1" and not two)]
    flags = [spelled(flag) for flag in instruction.flags & _IMPLICIT_FLAGS]
    if instruction.splitting & PARTIAL:
        flags += [spelled(bit) for bit in instruction.splitting & PARTIAL]
    return ", ".join([*slots, *flags])


def _numbered(word: v1.Word, numbers: Mapping[int, int]) -> bytes:
    """The word's bytes, with the numbers that stand for its tensors."""
    operands: dict[str, Any] = {name: numbers[tensor] for name, tensor in v1.tensors_of(word).items()}
    header: dict[str, Any] = {field.name: getattr(word, field.name) for field in v1.header_fields(type(word))}
    return v1.encode(type(word)(**header, **operands))


_LASTING: Final = (Arena.HOST, Arena.WEIGHTS)
"""What the host, or the next run, finds under its number."""


def number_tensors(program: Program, uses: Sequence[tuple[int, Sequence[int]]], limit: int) -> tuple[Numbered, ...]:
    """Numbers for the tensors of `uses`: (instruction, its tensors), in order.

    They are the program's own where all of those are below `limit`. Otherwise each tensor has the lowest number that
    is free from its first use to its last, which takes as few numbers as tensors are in use at once; weights, states
    and what the host reads or writes keep theirs throughout. Numbers may pass `limit`: the caller looks.
    """
    everywhere = len(program.instructions)
    lives: dict[int, tuple[int, int]] = {}
    for at, tensors in uses:
        for tensor in tensors:
            begin, _ = lives.get(tensor, (at, at))
            lives[tensor] = (begin, at + 1)
    if all(tensor < limit for tensor in lives):
        return tuple(Numbered(tensor, tensor, 0, everywhere) for tensor in sorted(lives))
    for tensor in lives:
        if program.storages[program.tensors[tensor].storage].arena in _LASTING:
            lives[tensor] = (0, everywhere)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    given = 0
    numbered: list[Numbered] = []
    # A left-edge colouring of intervals: optimal, since each takes a new number only while all others are in use.
    for tensor, (begin, end) in sorted(lives.items(), key=lambda life: (life[1][0], life[0])):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        number = heapq.heappop(free) if free else given
        given = max(given, number + 1)
        heapq.heappush(busy, (end, number))
        numbered.append(Numbered(tensor, number, begin, end))
    return tuple(numbered)


_NAMED: Final = 4
"""Instructions at most that are named for one reason."""
_OTHER: Final = "build for s2train{isa=v2}, whose words say it"
_HELPS: Final = (
    (" says kernel", _OTHER),
    (" says stride", _OTHER),
    ("no field says", _OTHER),
    ("applied at once", "set s2-select.update=apart, or leave --pipeline out"),
    ("always writes", "set s2-select.masks=yes, or leave --pipeline out"),
    ("says dropout", "leave dropout out of the model"),
)
"""What helps where a reason has these words: the first of them, for some help with a part of it only."""


def with_words(program: Program) -> Program:
    """The program with a word for each instruction that version 1 has, and what the words' numbers stand for.

    Raises:
        DlcError: "no-word", all reasons why instructions have none.
    """
    found = to_v1(program)
    if found.reasons:
        raise DlcError(*_refusals(program, found.reasons))
    return replace(program, legacy=tuple(found.words.values()), numbering=found.numbering)


def word_facts(program: Program) -> dict[str, int | str]:
    """How many words and numbers there are, and which instructions have no word; nothing where there are no words."""
    if not program.legacy:
        return {}
    without = Counter(
        f"{spelled(i.opcode)} {spelled(i.stage)}" for i in (program.instructions[n] for n in wordless(program))
    )
    return {
        "v1_words": len(program.legacy),
        "v1_numbers": len({entry.number for entry in program.numbering}),
        "v1_tensors": len({entry.tensor for entry in program.numbering}),
        "v1_without": ", ".join(f"{count} {what}" for what, count in sorted(without.items())),
    }


def _refusals(program: Program, reasons: Mapping[int, str]) -> Sequence[Diagnostic]:
    """One for each reason, with the first instructions that have it."""
    kinds: dict[str, list[int]] = {}
    for number, reason in reasons.items():
        # Of too many tensors at once each instruction has a number of its own.
        kinds.setdefault(reason.partition(":")[0], []).append(number)
    return [_refusal(program, reason, numbers) for reason, numbers in kinds.items()]


def _refusal(program: Program, reason: str, numbers: Sequence[int]) -> Diagnostic:
    count = "an instruction" if len(numbers) == 1 else f"{len(numbers)} instructions"
    more = len(numbers) - _NAMED
    notes = [_named(program, number) for number in numbers[:_NAMED]] + ([f"and {more} more"] if more > 0 else [])
    help = next((advice for words, advice in _HELPS if words in reason), _OTHER)
    node = program.tensors[program.instructions[numbers[0]].operands["dst0"]].name
    message = f"version 1 has no word for {count}: {reason}"
    return Diagnostic("no-word", message, location=Location(node=node), notes=tuple(notes), help=help)


def _named(program: Program, number: int) -> str:
    instruction = program.instructions[number]
    name = quote(program.tensors[instruction.operands["dst0"]].name)
    return f"instruction {number}, {spelled(instruction.opcode)} {spelled(instruction.stage)}: {name}"
