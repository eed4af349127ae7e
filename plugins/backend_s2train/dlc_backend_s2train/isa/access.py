"""Operands of an instruction, which it reads, writes, or both: by slot (`access`), by name (`operands_of`).

Everything else about an instruction's legality comes with `access`: that it is in the instruction set, and which flags
need and exclude each other. Names are those of slots or, of a call of a host function, of that function's tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dlc_backend_s2train.codes import NO_FLAGS, OPERANDS, Flag, Need, Slot, Splitting, Stage, Way
from dlc_backend_s2train.isa.instruction_set import (
    FORM_OF,
    POOLS,
    THREE_NORMS,
    Form,
    Use,
    spelled,
)
from dlc_backend_s2train.program import Instruction, Program

if TYPE_CHECKING:
    from dlc.base.diagnostics import Location


@dataclass(frozen=True)
class Demand:
    """Flags that mean nothing without one of others, in forms that have those."""

    flags: Flag
    any_of: Flag
    why: str


DEMANDS: Final = (
    Demand(Flag.MASK_WRITE, Flag.RELU, "the mask is relu's"),
    Demand(Flag.POINTER_WRITE, POOLS, "pointers are those of a pool"),
    Demand(Flag.POINTER_READ, POOLS, "pointers are those of a pool"),
    Demand(Flag.BN_BACKWARD_2, Flag.BN_BACKWARD, "the second norm comes after the first"),
)

EXCLUSIONS: Final = (
    (Flag.POOL_2, Flag.POOL_4, "one window at a time"),
    (Flag.ADD, Flag.ADD_SINGLE, "one addend at a time"),
    (Flag.BN_TRAIN, Flag.BN_FORWARD, "one norm at a time"),
    (Flag.BN_TRAIN, Flag.BN_BACKWARD_2, "`bn1` and `dst1` belong to the norm in training mode"),
    (Flag.BN_TRAIN, Flag.ADD_SINGLE, "`bn1` belongs to the norm in training mode"),
    (Flag.SOFTMAX_CE, Flag.DROPOUT, "`aux` is for labels"),
    (Flag.SOFTMAX_CE, Flag.RELU, "logits go into softmax as fp32 sums"),
    (Flag.SOFTMAX_CE, Flag.ADD, "logits go into softmax as fp32 sums"),
)
"""Flags that do not go together."""

BACKWARD_DEMANDS: Final = (
    Demand(POOLS, Flag.POINTER_READ, "a pool is undone by its pointers"),
    Demand(Flag.BN_TRAIN, Flag.BN_BACKWARD, "it is that norm's way"),
)
"""Further demands of the backward stage."""

AUX_FLAGS: Final = Flag.DROPOUT | Flag.SOFTMAX_CE
"""Flags whose operand is `aux`, so that no partial sum comes in."""

MOST_TENSORS: Final = 256
"""Tensors that one host function reads and writes at most."""
_WAITS = range(16)
_CORES = range(256)
_IDS = range(0xFFFF)
"""Numbers of tensors, geometries and hyper-parameters that a word of version 2 holds; 0xFFFF is none."""


def access(instruction: Instruction, location: Location | None = None) -> Mapping[Slot, Way]:
    """How `instruction` touches each of its operands, in the order of a version 2 word.

    Raises:
        DlcError: "bad-instruction", with everything that is wrong: a flag or an operand that the opcode and stage do
            not have, one that is missing, bits that do not go together, numbers that no word holds.
    """
    faults = list(_faults(instruction))
    if faults:
        raise _refusal(instruction, faults, location)
    form = FORM_OF[instruction.opcode, instruction.stage]
    uses = standing(form, instruction.flags, instruction.splitting)
    return {slot: uses[slot].way for slot in OPERANDS if slot in instruction.operands}


def operands_of(program: Program, instruction: Instruction) -> Mapping[str, tuple[Way, int]]:
    """Name of an operand → how the instruction touches it, and its tensor: slots as `access` orders them.

    What a host function reads is called `read 0`, `read 1`…, what it writes `write 0`…

    Raises:
        DlcError: "bad-instruction", as `access`.
    """
    ways = access(instruction)
    if instruction.function is None:
        return {slot: (way, instruction.operands[slot]) for slot, way in ways.items()}
    function = program.functions[instruction.function]
    found: dict[str, tuple[Way, int]] = {f"read {k}": (Way.READ, t) for k, t in enumerate(function.reads)}
    return {**found, **{f"write {k}": (Way.WRITE, t) for k, t in enumerate(function.writes)}}


def standing(form: Form, flags: Flag, splitting: Splitting) -> dict[Slot, Use]:
    """The use of each slot that an instruction with these bits has."""
    uses: dict[Slot, Use] = {}
    for use in form.uses:
        if use.slot not in uses and use.holds(flags, splitting):
            uses[use.slot] = use
    return uses


def flag_faults(form: Form, stage: Stage, flags: Flag, splitting: Splitting) -> Iterator[str]:
    """What is wrong with bits, operands aside."""
    for flag in flags & ~form.flags:
        yield f"it has no flag {spelled(flag)}"
    demands = (*DEMANDS, *(BACKWARD_DEMANDS if stage is Stage.BACKWARD else ()))
    for demand in demands:
        if flags & demand.flags and form.flags & demand.any_of and not flags & demand.any_of:
            yield f"flag {_words(flags & demand.flags)} needs {_words(demand.any_of, ' or ')}: {demand.why}"
    for one, other, why in EXCLUSIONS:
        if one in flags and other in flags:
            yield f"flags {spelled(one)} and {spelled(other)} do not go together: {why}"
    both = splitting & (Splitting.ACCUMULATE_IN | Splitting.ACCUMULATE_OUT)
    if both and not form.accumulates:
        yield f"it has no {_words(both)}"
    else:
        wanting = flags & AUX_FLAGS | (flags & THREE_NORMS if THREE_NORMS in flags else NO_FLAGS)
        if Splitting.ACCUMULATE_IN in both and wanting:
            yield f"accumulate_in and {_words(wanting)} both want operand aux"
        elif THREE_NORMS in flags and Flag.DROPOUT in flags:
            yield f"dropout and {_words(THREE_NORMS)} both want operand aux"
    if Splitting.ACCUMULATE_OUT in both and flags:
        yield f"accumulate_out leaves the post-processing unit out, but {_words(flags)} is set"


def _faults(instruction: Instruction) -> Iterator[str]:
    form = FORM_OF.get((instruction.opcode, instruction.stage))
    if form is None:
        stages = [spelled(stage) for (opcode, stage) in FORM_OF if opcode is instruction.opcode]
        yield f"there is no such stage; {spelled(instruction.opcode)} has {', '.join(stages)}"
        return
    flags, splitting = instruction.flags, instruction.splitting
    yield from flag_faults(form, instruction.stage, flags, splitting)
    uses = standing(form, flags, splitting)
    for slot, use in uses.items():
        if slot not in instruction.operands and not use.optional:
            yield f"operand {slot} is missing" + (f" ({_words(flags & use.flags)})" if flags & use.flags else "")
    for slot in instruction.operands:
        if slot not in OPERANDS:
            yield f"there is no operand {slot}"
        elif slot not in uses:
            yield f"operand {slot} has no use" + _would_use(form, slot)
    yield from _table_faults(instruction, form)
    yield from _range_faults(instruction)


def _table_faults(instruction: Instruction, form: Form) -> Iterator[str]:
    """Geometry and hyper-parameters that are missing or superfluous."""
    if form.geometry is Need.REQUIRED and instruction.geometry is None:
        yield "it needs a geometry"
    if form.geometry is Need.NONE and instruction.geometry is not None:
        yield "it has no geometry"
    wants = instruction.flags & form.hyper
    if instruction.hyper is None and (form.hyper_always or wants):
        yield "it needs hyper-parameters" + (f" ({_words(wants)})" if wants else "")
    if instruction.hyper is not None and form.geometry is Need.NONE:
        yield "it has no hyper-parameters"
    if (instruction.function is None) is form.function:
        yield "it needs a host function" if form.function else "it has no host function"


def _range_faults(instruction: Instruction) -> Iterator[str]:
    numbers = [("geometry", instruction.geometry, _IDS), ("hyper", instruction.hyper, _IDS)]
    numbers += [("function", instruction.function, _IDS)]
    numbers += [(slot, number, _IDS) for slot, number in instruction.operands.items()]
    numbers += [("wait", instruction.wait, _WAITS), ("signal", instruction.signal, _WAITS)]
    numbers += [("cores", instruction.cores, _CORES)]
    for name, number, allowed in numbers:
        if number is not None and number not in allowed:
            yield f"{name} {number} lies outside 0 to {allowed[-1]}"
    if not instruction.cores:
        yield "no core takes part"
    if instruction.flags & ~_ALL_FLAGS or instruction.splitting & ~_ALL_SPLITTING:
        yield "it has bits that no word holds"


_ALL_FLAGS = Flag(0xFFFF)
_ALL_SPLITTING = Splitting(0xF)


def _would_use(form: Form, slot: Slot) -> str:
    """` (it goes with bn_forward)`, if some flag would give the operand a use."""
    flags = NO_FLAGS
    for use in form.uses:
        flags |= use.flags if use.slot == slot else NO_FLAGS
    bits = [spelled(flag) for flag in flags]
    if any(use.splitting for use in form.uses if use.slot == slot):
        bits.append("accumulate_in")
    return f" (it goes with {' or '.join(bits)})" if bits else ""


def _refusal(instruction: Instruction, faults: list[str], location: Location | None) -> Exception:
    from dlc.base.diagnostics import error  # only errors need it

    title = f"{spelled(instruction.opcode)} {spelled(instruction.stage)}"
    form = FORM_OF.get((instruction.opcode, instruction.stage))
    strange = form and instruction.flags & ~form.flags
    return error(
        "bad-instruction",
        f"{title}: {faults[0]}",
        location=location,
        notes=[f"also: {fault}" for fault in faults[1:]],
        help=f"it may have the flags {_words(form.flags) or 'none'}" if form and strange else "",
    )


def _words(bits: Flag | Splitting, joint: str = ", ") -> str:
    return joint.join(spelled(bit) for bit in bits)
