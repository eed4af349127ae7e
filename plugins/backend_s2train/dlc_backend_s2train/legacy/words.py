"""Words of version 1 for a program: `s2train{isa=v1}`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dlc.base.diagnostics import Diagnostic, DlcError, Location, quote
from dlc_backend_s2train.isa.forms import spelled
from dlc_backend_s2train.isa.legalize import to_v1, wordless
from dlc_backend_s2train.program import Program

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
    help = next((told for words, told in _HELPS if words in reason), _OTHER)
    node = program.tensors[program.instructions[numbers[0]].operands["dst0"]].name
    message = f"version 1 has no word for {count}: {reason}"
    return Diagnostic("no-word", message, location=Location(node=node), notes=tuple(notes), help=help)


def _named(program: Program, number: int) -> str:
    instruction = program.instructions[number]
    name = quote(program.tensors[instruction.operands["dst0"]].name)
    return f"instruction {number}, {spelled(instruction.opcode)} {spelled(instruction.stage)}: {name}"
