"""Instructions of both versions as text, one a line, and back.

    conv forward [relu, mask_write, bn_forward] (src0 = %0, src1 = %1, dst0 = %4, mask = %3, bn0 = %2) geometry 0
    conv forward [relu] (in_feature = %0, weight = %1, relu_mask = %3, bn_use = %2, output = %4) kernel 3 bn 1

First what the instruction does and its stage (left out where an opcode has only one), then bits, operands and fields
that do not hold what they hold in most instructions. A comment goes from # to the end of its line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from dlc.base.diagnostics import DlcError, did_you_mean
from dlc.base.lexer import Tokens
from dlc_backend_s2train.codes import NO_FLAGS, OPERANDS, Flag, Splitting, Stage
from dlc_backend_s2train.isa import words as v2
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.isa.instruction_set import FORM_OF, NO_SPLITTING, Opcode, spelled
from dlc_backend_s2train.program import Instruction
from dlc_backend_s2train.v1 import encoding as v1

Version = Literal[1, 2]

_OPCODES: Final = {spelled(opcode): opcode for opcode in Opcode}
_STAGES: Final = {spelled(stage): stage for stage in Stage}
_FLAGS: Final = {spelled(flag): flag for flag in Flag}
_SPLITTINGS: Final = {spelled(bit): bit for bit in Splitting}
_STAGES_OF: Final = {opcode: [stage for o, stage in FORM_OF if o is opcode] for opcode in Opcode}
_DEFAULTS: Final = Instruction(Opcode.NOP)
_NUMBERS: Final = ("geometry", "hyper", "function", "wait", "signal", "cores")
"""Fields of version 2 that are numbers."""
_MOST_DIGITS: Final = 9


def assemble(text: str, version: Version, source: str = "<text>") -> bytes:
    """The words of a text, one behind the other.

    Raises:
        DlcError: "syntax" or "bad-instruction", with line, column and the line itself.
    """
    if version == 1:
        return b"".join(map(v1.encode, parse_v1(text, source)))
    return v2.encode_program(parse_v2(text, source))


def disassemble(data: bytes, version: Version, source: str = "") -> str:
    """The canonical text of words that stand one behind the other; `assemble` gives the same bytes again.

    Raises:
        DlcError: "bad-word", "bad-instruction", "checksum" or "truncated-file", at the byte in question.
    """
    if version == 1:
        return format_v1(v1.decode_program(data, source))
    return format_v2(v2.decode_program(data, source))


def format_v1(words: Iterable[v1.Word]) -> str:
    """Words of version 1 as text."""
    return "".join(f"{print_v1(word)}\n" for word in words)


def format_v2(instructions: Iterable[Instruction]) -> str:
    """Instructions as text."""
    return "".join(f"{print_v2(instruction)}\n" for instruction in instructions)


def print_v1(word: v1.Word) -> str:
    """A word of version 1 as its line."""
    held = {field.name: getattr(word, field.name) for field in v1.header_fields(type(word)) if field.name != "op"}
    operands = {name: getattr(word, name) for name, _, _ in v1.operands(type(word))}
    flags = [name for name, value in held.items() if value is True]
    rest = {n: str(value) for n, value in held.items() if not isinstance(value, bool) and value != v1.IDLE[n]}
    return _line([word.op, spelled(word.stage)], flags, operands, rest)


def print_v2(instruction: Instruction) -> str:
    """An instruction as its line."""
    head = [spelled(instruction.opcode)]
    if len(_STAGES_OF[instruction.opcode]) > 1:
        head.append(spelled(instruction.stage))
    operands = {slot: instruction.operands.get(slot) for slot in OPERANDS}
    fields = {name: getattr(instruction, name) for name in _NUMBERS}
    rest = {name: str(value) for name, value in fields.items() if value != getattr(_DEFAULTS, name)}
    if instruction.splitting != _DEFAULTS.splitting:
        rest["splitting"] = f"[{', '.join(spelled(bit) for bit in instruction.splitting)}]"
    return _line(head, [spelled(flag) for flag in instruction.flags], operands, rest)


def _line(head: list[str], flags: list[str], operands: Mapping[Any, int | None], rest: Mapping[str, str]) -> str:
    given = ", ".join(f"{name} = %{number}" for name, number in operands.items() if number is not None)
    parts = [*head]
    parts += [f"[{', '.join(flags)}]"] if flags else []
    parts += [f"({given})"] if given else []
    return " ".join([*parts, *(f"{name} {value}" for name, value in rest.items())])


def parse_v1(text: str, source: str = "<text>") -> tuple[v1.Word, ...]:
    """The words of version 1 that a text says.

    Raises:
        DlcError: "syntax" or "bad-instruction", with line, column and the line itself.
    """
    tokens = Tokens(text, source)
    words: list[v1.Word] = []
    while tokens.current.kind != "end":
        at = tokens.current.offset
        op = _one_of(tokens, ("conv", "linear"), "an operator")
        word = v1.WORDS[_STAGES[_one_of(tokens, _STAGES, "a stage")]]
        fields = {field.name: field.values for field in v1.header_fields(word) if field.name != "op"}
        names = [name for name, _, _ in v1.operands(word)]
        bits = [name for name, values in fields.items() if values == (False, True)]
        clauses = {name: values for name, values in fields.items() if name not in bits}
        line = _Line.read(tokens, v1.TENSORS, bits, names, clauses)
        values: dict[str, Any] = {name: line.operands.get(name) for name in names}
        values |= {"op": op, **line.clauses, **dict.fromkeys(line.flags, True)}
        made = word(**values)
        try:
            v1.encode(made)
        except DlcError as refused:
            raise _placed(tokens, at, refused) from None
        words.append(made)
    return tuple(words)


def parse_v2(text: str, source: str = "<text>") -> tuple[Instruction, ...]:
    """The instructions that a text says.

    Raises:
        DlcError: "syntax" or "bad-instruction", with line, column and the line itself.
    """
    tokens = Tokens(text, source)
    instructions: list[Instruction] = []
    while tokens.current.kind != "end":
        instructions.append(parse_instruction(tokens))
    return tuple(instructions)


def parse_instruction(tokens: Tokens) -> Instruction:
    """Consume an instruction of version 2, up to the end of its line.

    Raises:
        DlcError: as `parse_v2`.
    """
    at = tokens.current.offset
    opcode = _OPCODES[_one_of(tokens, _OPCODES, "an opcode")]
    stages = _STAGES_OF[opcode]
    here = _same_line(tokens) and tokens.current.text in _STAGES
    stage = _STAGES[_one_of(tokens, map(spelled, stages), "a stage")] if here or len(stages) > 1 else stages[0]
    line = _Line.read(tokens, v2.NONE, _FLAGS, OPERANDS, {**dict.fromkeys(_NUMBERS, ()), "splitting": ()})
    flags, splitting = NO_FLAGS, _DEFAULTS.splitting if line.splitting is None else NO_SPLITTING
    for name in line.flags:
        flags |= _FLAGS[name]
    for name in line.splitting or ():
        splitting |= _SPLITTINGS[name]
    operands: dict[Any, int] = line.operands
    made = Instruction(opcode, stage, flags, splitting, operands=operands, **line.clauses)
    try:
        access(made)
    except DlcError as refused:
        raise _placed(tokens, at, refused) from None
    return made


@dataclass
class _Line:
    """What stands behind an instruction's opcode and stage."""

    flags: list[str]
    operands: dict[str, int]
    clauses: dict[str, Any]
    splitting: list[str] | None = None

    @staticmethod
    def read(
        tokens: Tokens,
        tensors: int,
        flags: Collection[str],
        operands: Collection[str],
        clauses: Mapping[str, tuple[Any, ...]],
    ) -> _Line:
        """The rest of an instruction whose operands are numbers below `tensors`.

        `clauses` has the values that a field may hold, or none for any number.
        """
        line = _Line([], {}, {})
        if _same_line(tokens) and tokens.peek("["):
            line.flags = _names(tokens, flags, "flag")
        if _same_line(tokens) and tokens.peek("("):
            for name, number, at in tokens.listed("(", ")", lambda: _operand(tokens, operands, tensors)):
                if name in line.operands:
                    raise tokens.fail(f"operand {name} is given twice", at)
                line.operands[name] = number
        while _same_line(tokens):
            at = tokens.current.offset
            name = _one_of(tokens, clauses, "a field or the end of the line")
            if name in line.clauses or (name == "splitting" and line.splitting is not None):
                raise tokens.fail(f"field {name} is given twice", at)
            if name == "splitting":
                line.splitting = _names(tokens, _SPLITTINGS, "bit")
            else:
                line.clauses[name] = _value(tokens, name, clauses[name])
        return line


def _same_line(tokens: Tokens) -> bool:
    """Whether the next token stands on the line of the one before it."""
    at = tokens.current.offset - 1
    while at >= 0 and tokens.text[at] in " \t\r":
        at -= 1
    return tokens.current.kind != "end" and at >= 0 and tokens.text[at] != "\n"


def _one_of(tokens: Tokens, known: Iterable[str], what: str) -> str:
    """Consume one of the words that are known here."""
    names = list(known)
    if tokens.current.text not in names:
        raise tokens.unexpected(what, did_you_mean(tokens.current.text, names))
    return tokens.take().text


def _names(tokens: Tokens, known: Collection[str], what: str) -> list[str]:
    """Consume words in brackets, each at most once."""
    found: list[str] = []

    def name() -> None:
        at = tokens.current.offset
        word = _one_of(tokens, known, f"a {what}")
        if word in found:
            raise tokens.fail(f"{what} {word} is given twice", at)
        found.append(word)

    tokens.listed("[", "]", name)
    return found


def _operand(tokens: Tokens, known: Collection[str], tensors: int) -> tuple[str, int, int]:
    """Consume `dst0 = %4`: the operand, the tensor's number, the place."""
    at = tokens.current.offset
    name = _one_of(tokens, known, "an operand")
    tokens.expect("=")
    token = tokens.kind("value", "a tensor, as in %4")
    digits = token.text[1:]
    if not digits.isdigit() or len(digits) > _MOST_DIGITS or str(int(digits)) != digits or int(digits) >= tensors:
        help = f"numbers go from %0 to %{tensors - 1}"
        raise tokens.fail(f"expected the number of a tensor, found '{token.text[:40]}'", token.offset, help)
    return name, int(digits), at


def _value(tokens: Tokens, name: str, choices: tuple[Any, ...]) -> Any:
    """Consume what a field holds: one of `choices`, or any number if there are none."""
    if not choices:
        return tokens.extent(f"a number for {name}")
    words = {str(choice): choice for choice in choices if choice is not None}
    return words[_one_of(tokens, words, f"what {name} may be")]


def _placed(tokens: Tokens, at: int, refused: DlcError) -> DlcError:
    """The same errors, with the place and the line that they are about."""
    place = tokens.fail("", at).diagnostics[0]
    moved = (
        dataclasses.replace(d, location=place.location, source_line=place.source_line) for d in refused.diagnostics
    )
    return DlcError(*moved, exit_code=refused.exit_code)
