"""Hypothesis strategies: every legal word of version 1, every legal instruction of version 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_backend_s2train.codes import NO_FLAGS, Flag, Need, Slot, Splitting
from dlc_backend_s2train.isa.access import flag_faults, standing
from dlc_backend_s2train.isa.instruction_set import FORM_OF
from dlc_backend_s2train.program import Instruction
from dlc_backend_s2train.v1 import encoding as v1
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

_NUMBERS_1 = st.integers(0, v1.TENSORS - 1)
_NUMBERS_2 = st.integers(0, 0xFFFE)


@st.composite
def v1_words(draw: DrawFn) -> v1.Word:
    """A word of version 1 that has a meaning."""
    word = draw(st.sampled_from(v1.WORDS))
    header: dict[str, Any] = {"stage": word.stage}
    for field in v1.header_fields(word):
        header[field.name] = draw(st.sampled_from([value for value in field.values if value is not None]))
    for rule in v1.RULES:
        if header.get(rule.field) == rule.value and rule.other in header and header[rule.other] not in rule.allowed:
            header[rule.other] = rule.allowed[0]
    del header["stage"]
    for name, condition, values in v1.operands(word):
        if not condition or header[condition] in values:
            header[name] = draw(_NUMBERS_1)
    return word(**header)


def _some(bits: Sequence[Any], none: Any) -> SearchStrategy[Any]:
    def joined(chosen: frozenset[Any]) -> Any:
        whole = none
        for bit in chosen:
            whole |= bit
        return whole

    return st.frozensets(st.sampled_from(bits), max_size=len(bits)).map(joined) if bits else st.just(none)


@st.composite
def instructions(draw: DrawFn) -> Instruction:
    """A legal instruction, with any of its optional operands."""
    opcode, stage = draw(st.sampled_from(sorted(FORM_OF)))
    form = FORM_OF[opcode, stage]
    flags: Flag = draw(_some(list(form.flags), NO_FLAGS))
    splitting: Splitting = draw(_some(list(Splitting), Splitting(0)))
    # Bits leave the combination until it is legal: none is legal everywhere.
    for bit in [*Splitting, *Flag]:
        if not list(flag_faults(form, stage, flags, splitting)):
            break
        if isinstance(bit, Splitting):
            splitting &= ~bit
        else:
            flags &= ~bit
    uses = standing(form, flags, splitting)
    slots: list[Slot] = [slot for slot, use in uses.items() if not use.optional or draw(st.booleans())]
    hyper_needed = form.hyper_always or bool(form.hyper & flags)
    numbers = st.one_of(_NUMBERS_2, st.none())
    operands: dict[Slot, int] = {slot: draw(_NUMBERS_2) for slot in slots}
    return Instruction(
        opcode,
        stage,
        flags,
        splitting,
        geometry={Need.NONE: None}.get(form.geometry, draw(_NUMBERS_2 if form.geometry is Need.REQUIRED else numbers)),
        hyper=None if form.geometry is Need.NONE else draw(_NUMBERS_2 if hyper_needed else numbers),
        operands=operands,
        wait=draw(st.integers(0, 15)),
        signal=draw(st.integers(0, 15)),
        cores=draw(st.integers(1, 255)),
        function=draw(_NUMBERS_2) if form.function else None,
    )
