"""Each instruction by itself: its numbers exist, its operands are what its geometry asks for and do not collide.

Which bytes it touches is found here too (`Bytes`), whether the images that it takes as one lie side by side in a tile,
and whether it can work with its hyper-parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from dlc.base.diagnostics import Diagnostic, DlcError
from dlc_backend_s2train.checks.problems import problem, tensor_title, title
from dlc_backend_s2train.checks.shapes import Misfit, Wanted, fits, wanted
from dlc_backend_s2train.codes import Flag, Slot, Stage, Way
from dlc_backend_s2train.isa.access import operands_of
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Instruction, Program

_BY_SAMPLE: Final = frozenset((Opcode.CONV, Opcode.LINEAR, Opcode.ELTWISE, Opcode.POOL))
"""Opcodes that work on some samples of their operands."""


@dataclass(frozen=True)
class Bytes:
    """`begin` to before `end` of a storage."""

    storage: int
    begin: int
    end: int

    def meets(self, other: Bytes) -> bool:
        """Whether some byte belongs to both."""
        return self.storage == other.storage and self.begin < other.end and other.begin < self.end


def whole(program: Program, number: int) -> Bytes:
    """All bytes of a tensor."""
    tensor = program.tensors[number]
    return Bytes(tensor.storage, tensor.offset, tensor.offset + tensor.nbytes)


def samples_of(program: Program, instruction: Instruction) -> tuple[int, int] | None:
    """The samples that an instruction works on; None: all."""
    if instruction.geometry is None:
        return None
    samples = program.geometries[instruction.geometry].samples
    return None if samples == (0, 0) else samples


def touched(program: Program, instruction: Instruction, slot: Slot, wanted: Mapping[Slot, Wanted]) -> Bytes:
    """The bytes of an operand that the instruction touches."""
    tensor = program.tensors[instruction.operands[slot]]
    begin, end = 0, tensor.nbytes
    samples = samples_of(program, instruction)
    if samples and slot in wanted and wanted[slot].sampled and tensor.shape:
        each = tensor.count // tensor.shape[0] * tensor.element.bits
        begin, end = samples[0] * each // 8, min((samples[1] * each + 7) // 8, end)
    return Bytes(tensor.storage, tensor.offset + begin, tensor.offset + end)


def sample_problems(program: Program, instruction: Instruction, wanted: Mapping[Slot, Wanted]) -> Iterator[str]:
    """What keeps an instruction from working on the samples that its geometry names."""
    samples = samples_of(program, instruction)
    if instruction.geometry is None or samples is None:
        return
    n = program.geometries[instruction.geometry].n
    whole = instruction.flags & (Flag.BN_TRAIN | Flag.SOFTMAX_CE) or _THREE_NORMS in instruction.flags
    if instruction.opcode not in _BY_SAMPLE or whole:
        yield f"it works on whole batches, but its geometry names the samples {samples[0]} to {samples[1]}"
        return
    if not 0 <= samples[0] < samples[1] <= n:
        yield f"its geometry names the samples {samples[0]} to {samples[1]} of {n}"
        return
    for slot, number in instruction.operands.items():
        if slot in wanted and wanted[slot].sampled:
            tensor = program.tensors[number]
            if tensor.shape[:1] != (n,):
                yield f"it works on some of {n} samples, but {slot} has the shape {list(tensor.shape)}"
            elif samples[0] * (tensor.count // n) * tensor.element.bits % 8:
                yield f"sample {samples[0]} of {slot} begins inside a byte"


_LEAST = 2.0**-126
"""The least normal fp32: smaller divisors have infinite quotients."""


def number_problems(program: Program, instruction: Instruction) -> Iterator[str]:
    """What is wrong with the numbers that an instruction uses."""
    if instruction.hyper is None:
        return
    h = program.hypers[instruction.hyper]
    if instruction.updates and not h.scale >= _LEAST:
        yield f"it divides gradients by a loss scale of {h.scale}"
    if Flag.DROPOUT in instruction.flags and not 0 <= h.keep <= 1:
        yield f"dropout keeps with the probability {h.keep}"
    if Flag.PRUNE in instruction.flags and not h.threshold >= 0:
        yield f"it prunes below a threshold of {h.threshold}"
    if Flag.BN_TRAIN in instruction.flags and instruction.stage is Stage.FORWARD and not h.epsilon >= 0:
        yield f"a variance gets an epsilon of {h.epsilon}"


_POINTWISE: Final = frozenset((Opcode.ELTWISE, Opcode.COPY, Opcode.UPDATE, Opcode.LOSS))
"""Opcodes that write an element when they have read what it depends on, so that results may replace operands."""
_THREE_NORMS: Final = Flag.ADD_SINGLE | Flag.BN_BACKWARD_2
"""With both, `aux` is the [4, C] of the addend's norm."""
_STREAMED: Final[frozenset[str]] = frozenset(("res", "aux"))
"""Operands that a result may replace in every opcode: each element is read just before its own is written."""


def instruction_problems(program: Program) -> Iterator[Diagnostic]:
    """What is wrong with instructions by themselves."""
    for number, instruction in enumerate(program.instructions):
        reading = understood(program, instruction)
        for code, message in reading.wrong:
            yield problem(code, f"{title(number, instruction)}: {message}")
        if not reading.wrong:
            for message in _collisions(program, instruction, reading):
                yield problem("collision", f"{title(number, instruction)}: {message}")


@dataclass(frozen=True)
class Reading:
    """What an instruction means."""

    ways: Mapping[str, Way]
    """Operand → read, write or update; empty where the instruction is wrong."""
    spans: Mapping[str, Bytes]
    """The bytes behind it."""
    wrong: Sequence[tuple[str, str]] = ()
    """(code, message) of all that is wrong with it."""
    tensors: Mapping[str, int] = field(default_factory=dict[str, int])
    """The tensor behind it."""


def understood(program: Program, instruction: Instruction) -> Reading:
    """What an instruction does with which bytes, or what is wrong with it."""
    if absent := list(_absent(program, instruction)):
        return Reading({}, {}, [("no-such-number", message) for message in absent])
    try:
        operands = operands_of(program, instruction)
        expected = wanted(program, instruction)
    except DlcError as refused:
        first = refused.diagnostics[0]
        return Reading({}, {}, [("bad-instruction", "; ".join([first.message, *first.notes]))])
    except Misfit as misfit:
        return Reading({}, {}, [("bad-geometry", str(misfit))])
    wrong = [
        ("bad-operand", f"{slot}, {tensor_title(program, operand)}, {message}")
        for slot, operand in instruction.operands.items()
        for message in _operand(program, operand, expected.get(slot))
    ]
    wrong += [("bad-geometry", message) for message in sample_problems(program, instruction, expected)]
    wrong += [("bad-number", message) for message in number_problems(program, instruction)]
    if wrong:
        return Reading({}, {}, wrong)
    if instruction.function is None:
        spans: dict[str, Bytes] = {slot: touched(program, instruction, slot, expected) for slot in instruction.operands}
    else:
        spans = {name: whole(program, tensor) for name, (_, tensor) in operands.items()}
    ways = {name: way for name, (way, _) in operands.items()}
    return Reading(ways, {name: spans[name] for name in ways}, (), {name: t for name, (_, t) in operands.items()})


def _absent(program: Program, instruction: Instruction) -> Iterator[str]:
    """What an instruction names and the program's tables do not have."""
    tables = [
        ("geometry", instruction.geometry, len(program.geometries)),
        ("hyper-parameters", instruction.hyper, len(program.hypers)),
        ("function", instruction.function, len(program.functions)),
        *((f"{slot} is tensor", n, len(program.tensors)) for slot, n in instruction.operands.items()),
    ]
    for what, number, count in tables:
        if number is not None and not 0 <= number < count:
            yield f"{what} {number} does not exist; there are {count}"


def _operand(program: Program, operand: int, expected: Wanted | None) -> Iterator[str]:
    """Why a tensor is not what is wanted."""
    if expected is None:
        return
    tensor = program.tensors[operand]
    if tensor.element not in expected.elements:
        elements = " or ".join(e.name.lower() for e in expected.elements)
        yield f"holds {tensor.element.name.lower()}; it should be {elements}"
    if not fits(tensor.shape, expected.shape):
        yield f"has the shape {list(tensor.shape)}; it should be {list(expected.shape)}"


def _collisions(program: Program, instruction: Instruction, reading: Reading) -> Iterator[str]:
    """Operands that share bytes although one of them is written.

    A result may replace an operand where it takes exactly its bytes and elements are worked off one by one.
    """
    ways, spans = reading.ways, reading.spans
    for one, other in combinations(ways, 2):
        written = [slot for slot in (one, other) if ways[slot].writes]
        if not written or not spans[one].meets(spans[other]):
            continue
        first, second = (_place(program, reading, slot) for slot in (one, other))
        if len(written) > 1:
            yield f"{first} and {second}, share bytes, and both are written"
            continue
        read = other if written == [one] else one
        elements = {program.tensors[reading.tensors[slot]].element for slot in (one, other)}
        alike = spans[one] == spans[other] and len(elements) == 1
        streamed = read in _STREAMED and not (read == "aux" and _THREE_NORMS in instruction.flags)
        if not (alike and (instruction.opcode in _POINTWISE or streamed)):
            yield f"{first} and {second}, share bytes, and {written[0]} is written while {read} is read"


def _place(program: Program, reading: Reading, slot: str) -> str:
    tensor, span = tensor_title(program, reading.tensors[slot]), reading.spans[slot]
    return f"{slot}, {tensor}, bytes {span.begin} to {span.end} of storage {span.storage}"
