"""Instruction words of version 1: 128 bits, the encoding of the published S2Train compiler.

Bit 0 is the most significant bit of byte 0. A header of 16 bits says which operands follow, 9 bits each, numbers of
tensors; the rest of the word is zero. Words stand one behind the other without a header.

Source: the published compiler's encoding. What no bit says (shapes, amounts of padding, labels, hyper-parameters, the
addend and the second result of a residual block's backward) is implicit there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Final, Literal

from dlc.base.diagnostics import DlcError, Location, error
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.isa.instruction_set import spelled
from dlc_backend_s2train.isa.words import NOWHERE, Field, Layout, bad_bit, flag, reserved, words_of

BYTES: Final = 16
TENSOR_BITS: Final = 9
TENSORS: Final = 1 << TENSOR_BITS
"""Tensors that words can tell apart."""

Net = Literal["alexnet", "resnet"]
Op = Literal["conv", "linear"]
Padding = Literal["outside", "inner", "none"]

HEADER: Final = Layout(
    "version 1 word",
    (
        Field("net", 1, ("alexnet", "resnet"), "has no known effect"),
        Field("stage", 2, tuple(Stage)),
        Field("op", 1, ("conv", "linear")),
        Field("stride", 1, (1, 2)),
        Field("padding", 2, ("outside", "inner", "none", None)),
        Field("kernel", 2, (1, 3, 16, None), "side of the square kernel; 16: a weight gradient's"),
        flag("relu"),
        flag("add", "residual addend"),
        Field("bn", 2, (0, 1, 2, None), "number of norms"),
        flag("maxpool"),
        flag("part_sum", "the sum starts from the memory of partial sums"),
        flag("softmax", "softmax and cross-entropy: the output is d loss / d logits"),
    ),
    "high",
)

IDLE: Final[Mapping[str, Any]] = {
    **{field.name: field.value(0) for field in HEADER.fields},
    "net": "resnet",
    "padding": "none",
}
"""What a header field holds in words of stages that do not have it; text leaves fields out that hold this."""


def _operand(condition: str = "", *values: object) -> Any:
    """An operand that stands in a word if a header field holds one of `values`; with no condition always."""
    metadata = {"operand": (condition, values)}
    return field(default=None, metadata=metadata) if condition else field(metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Forward:
    """y = x * w, and what the post-processing unit does with it. Operands are numbers of tensors below 512."""

    stage: ClassVar[Stage] = Stage.FORWARD
    net: Net = "resnet"
    op: Op = "conv"
    stride: Literal[1, 2] = 1
    padding: Padding = "none"
    kernel: Literal[1, 3, 16] = 1
    relu: bool = False
    add: bool = False
    bn: Literal[0, 1] = 0
    maxpool: bool = False
    part_sum: bool = False
    softmax: bool = False
    in_feature: int = _operand()
    weight: int = _operand()
    relu_mask: int | None = _operand("relu", True)
    pool_mask: int | None = _operand("maxpool", True)
    bn_use: int | None = _operand("bn", 1)
    """[4, C]: mean, std, scale, shift of each channel."""
    res_add: int | None = _operand("add", True)
    output: int = _operand()


@dataclass(frozen=True, kw_only=True)
class Backward:
    """dx = dy * w, and what the post-processing unit does with it.

    With `add`, the addend is implicit; with two norms, or an addend, so is the second result.
    """

    stage: ClassVar[Stage] = Stage.BACKWARD
    net: Net = "resnet"
    op: Op = "conv"
    stride: Literal[1, 2] = 1
    padding: Padding = "none"
    kernel: Literal[1, 3, 16] = 1
    relu: bool = False
    add: bool = False
    bn: Literal[0, 1, 2] = 0
    maxpool: bool = False
    part_sum: bool = False
    output_grad: int = _operand()
    weight: int = _operand()
    input_grad: int = _operand()
    relu_mask: int | None = _operand("relu", True)
    pool_mask: int | None = _operand("maxpool", True)
    bn_use: int | None = _operand("bn", 1, 2)
    bn_use2: int | None = _operand("bn", 2)


@dataclass(frozen=True, kw_only=True)
class WeightGradient:
    """dw = dy * x."""

    stage: ClassVar[Stage] = Stage.WEIGHT_GRADIENT
    net: Net = "resnet"
    op: Op = "conv"
    stride: Literal[1, 2] = 1
    padding: Padding = "none"
    kernel: Literal[1, 3, 16] = 1
    part_sum: bool = False
    output_grad: int = _operand()
    input: int = _operand()
    weight_grad: int = _operand()


@dataclass(frozen=True, kw_only=True)
class WeightUpdate:
    """w moves along dw; by how much is implicit."""

    stage: ClassVar[Stage] = Stage.WEIGHT_UPDATE
    net: Net = "resnet"
    op: Op = "conv"
    weight_grad: int = _operand()
    weight: int = _operand()


Word = Forward | Backward | WeightGradient | WeightUpdate
WORDS: Final[tuple[type[Word], ...]] = (Forward, Backward, WeightGradient, WeightUpdate)
"""The word of each stage, by the stage's code."""


@dataclass(frozen=True)
class FieldConstraint:
    """Where a field holds a value, another holds one of some."""

    field: str
    value: object
    other: str
    allowed: tuple[object, ...]
    why: str


RULES: Final = (
    FieldConstraint("stage", Stage.FORWARD, "bn", (0, 1), "only a backward has two norms"),
    FieldConstraint("op", "linear", "stride", (1,), "a linear layer has no stride"),
    FieldConstraint("op", "linear", "padding", ("none",), "a linear layer has no padding"),
    FieldConstraint("op", "linear", "kernel", (1,), "a linear layer has no kernel"),
    FieldConstraint("op", "linear", "maxpool", (False,), "a linear layer has nothing to pool"),
    FieldConstraint("op", "conv", "softmax", (False,), "softmax follows a linear layer"),
    FieldConstraint("softmax", True, "relu", (False,), "logits go into softmax as they are"),
    FieldConstraint("softmax", True, "add", (False,), "logits go into softmax as they are"),
)


@cache
def operands(word: type[Word]) -> tuple[tuple[str, str, tuple[object, ...]], ...]:
    """(operand, condition's field or "", its values) of a stage's words, in the order of their bits."""
    found = ((f.name, f.metadata["operand"]) for f in dataclasses.fields(word) if "operand" in f.metadata)
    return tuple((name, condition, values) for name, (condition, values) in found)


@cache
def header_fields(word: type[Word]) -> tuple[Field, ...]:
    """The header fields that words of a stage have, the stage itself aside, in the order of their bits."""
    own = {f.name for f in dataclasses.fields(word)}
    return tuple(place for place in HEADER.fields if place.name in own)


def encode(word: Word) -> bytes:
    """The 16 bytes of a word.

    Raises:
        DlcError: "bad-instruction", if a value has no code, an operand that the header wants is absent, or one is
            there that it has no place for; or fields do not go together.
    """
    values = _values(word)
    present = _present(type(word), values)
    for name, _, _ in operands(type(word)):
        if (values[name] is None) == (name in present):
            state = "is missing" if name in present else "has no place in the word"
            raise error("bad-instruction", f"{_title(word.stage)}: operand {name} {state}")
    for rule in RULES:
        if not _obeyed(rule, values):
            message = f"{_title(word.stage)}: {rule.other} is {_shown(values[rule.other])}, but {rule.why}"
            raise error("bad-instruction", message)
    return _layout(word.stage, present).to_bytes({k: v for k, v in values.items() if v is not None})


def decode(data: bytes, location: Location = NOWHERE) -> Word:
    """The word in 16 bytes, whose first lies at `location`.

    Raises:
        DlcError: "bad-word", at the byte in question and with the number of the bit, if a code is reserved, a field
            or an operand is not zero that the word does not have, or fields do not go together.
    """
    if len(data) != BYTES:
        raise error("truncated-file", f"a version 1 word has {BYTES} bytes, not {len(data)}", location=location)
    header = HEADER.from_bytes(data[: HEADER.width // 8], location)
    stage: Stage = header["stage"]
    word = WORDS[stage]
    for place, at in HEADER.places:
        name = place.name
        if name != "stage" and place not in header_fields(word) and header[name] != IDLE[name]:
            message = f"{_title(stage)}: {name} at bit {at} is {_shown(header[name])}, but the stage has no {name}"
            raise bad_bit(message, at, location, f"it is {_shown(IDLE[name])} there")
    for rule in RULES:
        if not _obeyed(rule, header):
            raise _broken(rule, header, location)
    values = _layout(stage, _present(word, header)).from_bytes(data, location)
    absent = {field.name for field in HEADER.fields if field not in header_fields(word)}
    return word(**{name: value for name, value in values.items() if name not in absent})


def decode_program(data: bytes, source: str = "") -> tuple[Word, ...]:
    """The words that stand one behind the other in `data`.

    Raises:
        DlcError: "truncated-file" or "bad-word", at the byte in question.
    """
    return tuple(decode(word, place) for word, place in words_of(data, BYTES, source, "version 1 words"))


def tensors_of(word: Word) -> dict[str, int]:
    """The operands that a word has."""
    found = {name: getattr(word, name) for name, _, _ in operands(type(word))}
    return {name: number for name, number in found.items() if number is not None}


def used_bits(word: Word) -> int:
    """Bits of header and operands; those behind them are zero."""
    return HEADER.width + TENSOR_BITS * len(_present(type(word), _values(word)))


def _values(word: Word) -> dict[str, Any]:
    return {**IDLE, "stage": word.stage} | {f.name: getattr(word, f.name) for f in dataclasses.fields(word)}


def _present(word: type[Word], header: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, condition, values in operands(word) if not condition or header[condition] in values)


@cache
def _layout(stage: Stage, present: tuple[str, ...]) -> Layout:
    tail = BYTES * 8 - HEADER.width - TENSOR_BITS * len(present)
    numbers = (Field(name, TENSOR_BITS) for name in present)
    return Layout(_title(stage), (*HEADER.fields, *numbers, reserved(tail)), "high")


def _obeyed(rule: FieldConstraint, values: Mapping[str, Any]) -> bool:
    return values[rule.field] != rule.value or values[rule.other] in rule.allowed


def _broken(rule: FieldConstraint, header: Mapping[str, Any], location: Location) -> DlcError:
    at = next(at for place, at in HEADER.places if place.name == rule.other)
    message = f"{_title(header['stage'])}: {rule.other} at bit {at} is {_shown(header[rule.other])}, but {rule.why}"
    return bad_bit(message, at, location, f"with {rule.field} {_shown(rule.value)} it is {_shown(rule.allowed[0])}")


def _title(stage: Stage) -> str:
    return f"version 1 {spelled(stage)} word"


def _shown(value: object) -> str:
    return {True: "set", False: "not set"}[value] if isinstance(value, bool) else str(value)
