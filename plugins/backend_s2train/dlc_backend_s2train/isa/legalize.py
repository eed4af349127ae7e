"""Instructions as words of version 1, where those can say them, and the reasons where they cannot.

The bits are those of the published compiler's encoding: padding is always `none` (frames come padded), weight gradients
and updates always have stride 1 and kernel 1. Shapes, pads, hyper-parameters, tokens and cores are implicit. So are
operands that words have no place for: labels and loss, partial sums, velocity and master weights and, in a backward
with `add`, the addend and the gradient of the other branch; the second norm's gradient too. `Legacy.implicit` lists
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dlc_backend_s2train.isa import v1
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.isa.forms import spelled
from dlc_backend_s2train.isa.numbering import Numbered, number_tensors
from dlc_backend_s2train.program import Flag, Geometry, Instruction, Opcode, Program, Slot, Splitting, Stage

_SLOTS: Final[Mapping[Stage, Mapping[str, Slot]]] = {
    Stage.FORWARD: {
        "in_feature": "src0",
        "weight": "src1",
        "relu_mask": "mask",
        "pool_mask": "ptr",
        "bn_use": "bn0",
        "res_add": "res",
        "output": "dst0",
    },
    Stage.BACKWARD: {
        "output_grad": "src0",
        "weight": "src1",
        "input_grad": "dst0",
        "relu_mask": "mask",
        "pool_mask": "ptr",
        "bn_use": "bn0",
        "bn_use2": "bn1",
    },
    Stage.WEIGHT_GRADIENT: {"output_grad": "src0", "input": "src1", "weight_grad": "dst0"},
    Stage.WEIGHT_UPDATE: {"weight_grad": "src0", "weight": "dst0"},
}
"""Where a word's operands come from."""

_BITS: Final = {
    "relu": Flag.RELU | Flag.MASK_READ,
    "add": Flag.ADD | Flag.ADD_SINGLE,
    "maxpool": Flag.POOL_2 | Flag.POOL_4,
    "softmax": Flag.SOFTMAX_CE,
}
"""Header bits, and the flags that any of sets them."""

_NORMS: Final = (Flag.BN_FORWARD | Flag.BN_BACKWARD, Flag.BN_BACKWARD_2)
_UNSAID: Final = Flag.DROPOUT | Flag.BN_TRAIN
"""Flags that no word has a bit for and that change what is computed."""

_IMPLICIT_FLAGS: Final = Flag.POOL_2 | Flag.POOL_4 | Flag.ADD_SINGLE | Flag.PRUNE
"""Flags whose way the configuration of the unit says, not the word."""

_PARTIAL: Final = Splitting.ACCUMULATE_IN | Splitting.ACCUMULATE_OUT
_WITHOUT_WORD: Final = (Opcode.NOP, Opcode.BARRIER, Opcode.END, Opcode.FRAME, Opcode.STORE)
"""Order and link: words stand in order, and frames travel on their own."""


@dataclass(frozen=True)
class Legacy:
    """A program in words of version 1."""

    words: Mapping[int, bytes]
    """Instruction → its word, in order; instructions that only order others have none, and need none."""
    reasons: Mapping[int, str]
    """Instruction → why no word says it."""
    implicit: Mapping[int, str]
    """Instruction → what its word leaves out."""
    numbering: tuple[Numbered, ...]
    """Which tensor a number stands for, and where."""

    @property
    def complete(self) -> bool:
        """Whether the words say all that the program computes."""
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
    multiplying = (i for i in program.instructions if i.opcode in _OPS and i.stage in (Stage.FORWARD, Stage.BACKWARD))
    layers = {i.operands["src1"]: i.opcode for i in multiplying if "src1" in i.operands}
    for at, instruction in enumerate(program.instructions):
        access(instruction)
        if _has_no_word(program, instruction):
            continue
        if obstacles := "; ".join(_obstacles(program, instruction, layers)):
            reasons[at] = obstacles
        else:
            made[at] = _word(program, instruction, layers)
    uses = [(at, tuple(tensors_of(word).values())) for at, word in made.items()]
    numbering = number_tensors(program, uses, v1.TENSORS)
    numbers = {entry.tensor: entry.number for entry in numbering}
    words: dict[int, bytes] = {}
    for at, word in made.items():
        largest = max(numbers[tensor] for tensor in tensors_of(word).values())
        if largest < v1.TENSORS:
            words[at] = _numbered(word, numbers)
        else:
            reasons[at] = f"it needs tensor number {largest}: more than {v1.TENSORS} tensors are in use"
    left_out = {at: _left_out(program.instructions[at]) for at in words}
    implicit = {at: left for at, left in left_out.items() if left}
    return Legacy(words, dict(sorted(reasons.items())), implicit, numbering)


def from_v1(words: Iterable[bytes], source: str = "") -> tuple[v1.Word, ...]:
    """What words of version 1 say; shapes and all that is implicit are not in them.

    Raises:
        DlcError: "bad-word", at the byte in question, counted from the first word's begin.
    """
    return v1.decode_program(b"".join(words), source)


def tensors_of(word: v1.Word) -> dict[str, int]:
    """The operands that a word has."""
    found = {name: getattr(word, name) for name, _, _ in v1.operands(type(word))}
    return {name: number for name, number in found.items() if number is not None}


_OPS: Final = {Opcode.CONV: "conv", Opcode.LINEAR: "linear"}
_RANKS: Final = {4: Opcode.CONV, 2: Opcode.LINEAR}


def _has_no_word(program: Program, instruction: Instruction) -> bool:
    """Whether words are complete without the instruction."""
    if instruction.opcode is Opcode.COPY:
        # The same bytes under another shape: the published compiler's flatten has no word either.
        source, target = (program.tensors[instruction.operands[slot]] for slot in ("src0", "dst0"))
        return (source.storage, source.offset) == (target.storage, target.offset)
    return instruction.opcode in _WITHOUT_WORD


def _layer(program: Program, instruction: Instruction, layers: Mapping[int, Opcode]) -> Opcode | None:
    """Whether the word is a convolution's or a linear layer's; None if neither. `layers` knows who reads a weight."""
    if instruction.opcode is not Opcode.UPDATE:
        return instruction.opcode if instruction.opcode in _OPS else None
    weight = instruction.operands["dst0"]
    return layers.get(weight) or _RANKS.get(len(program.tensors[weight].shape))


def _obstacles(program: Program, instruction: Instruction, layers: Mapping[int, Opcode]) -> Iterator[str]:
    if _layer(program, instruction, layers) is None:
        what = "the update of a vector" if instruction.opcode is Opcode.UPDATE else "such an instruction"
        yield f"no word says {what}"
        return
    if instruction.product is not instruction.stage:
        yield "no word says a gradient that is applied at once"
        return
    for flag in instruction.flags & _UNSAID:
        yield f"no bit says {spelled(flag)}"
    if Flag.RELU in instruction.flags and Flag.MASK_WRITE not in instruction.flags:
        yield "relu always writes its mask"
    if instruction.flags & (Flag.POOL_2 | Flag.POOL_4) and "ptr" not in instruction.operands:
        yield "a pool always writes its pointers"
    if instruction.stage is Stage.WEIGHT_GRADIENT and "src1" not in instruction.operands:
        yield "no word says the gradient of a bias"
    if instruction.opcode is Opcode.CONV and instruction.geometry is not None:
        yield from _shape_obstacles(program.geometries[instruction.geometry])


def _shape_obstacles(geometry: Geometry) -> Iterator[str]:
    kernel, stride = (geometry.kh, geometry.kw), geometry.stride
    if kernel not in ((1, 1), (3, 3), (16, 16)):
        yield f"no code says kernel {kernel[0]} x {kernel[1]}"
    if stride not in ((1, 1), (2, 2)):
        yield f"no code says stride {stride[0]} x {stride[1]}"
    if geometry.dilation != (1, 1):
        yield f"no field says dilation {geometry.dilation[0]} x {geometry.dilation[1]}"
    if geometry.groups != 1:
        yield f"no field says {geometry.groups} groups"


def _word(program: Program, instruction: Instruction, layers: Mapping[int, Opcode]) -> v1.Word:
    """The word with the program's own numbers of tensors."""
    word = v1.WORDS[instruction.stage]
    values: dict[str, Any] = {
        "op": _OPS[_layer(program, instruction, layers) or Opcode.CONV],
        "part_sum": bool(instruction.splitting & _PARTIAL),
        "bn": sum(bool(instruction.flags & flags) for flags in _NORMS),
        **{bit: bool(instruction.flags & flags) for bit, flags in _BITS.items()},
    }
    if instruction.stage in (Stage.FORWARD, Stage.BACKWARD) and instruction.opcode is Opcode.CONV:
        geometry = program.geometries[instruction.geometry or 0]
        values |= {"kernel": geometry.kh, "stride": geometry.stride[0]}
    names = {field.name for field in v1.header_fields(word)}
    fields = {name: value for name, value in values.items() if name in names}
    operands: dict[str, Any] = {
        name: instruction.operands[_SLOTS[instruction.stage][name]]
        for name, condition, allowed in v1.operands(word)
        if not condition or fields[condition] in allowed
    }
    return word(**fields, **operands)


def _left_out(instruction: Instruction) -> str:
    """What the instruction says and its word does not."""
    said = set(_SLOTS[instruction.stage].values())
    two = Flag.BN_BACKWARD_2 in instruction.flags
    slots = [slot for slot in instruction.operands if slot not in said or (slot == "bn1" and not two)]
    flags = [spelled(flag) for flag in instruction.flags & _IMPLICIT_FLAGS]
    if instruction.splitting & _PARTIAL:
        flags += [spelled(bit) for bit in instruction.splitting & _PARTIAL]
    return ", ".join([*slots, *flags])


def _numbered(word: v1.Word, numbers: Mapping[int, int]) -> bytes:
    """The word's bytes, with the numbers that stand for its tensors."""
    operands: dict[str, Any] = {name: numbers[tensor] for name, tensor in tensors_of(word).items()}
    header: dict[str, Any] = {field.name: getattr(word, field.name) for field in v1.header_fields(type(word))}
    return v1.encode(type(word)(**header, **operands))
