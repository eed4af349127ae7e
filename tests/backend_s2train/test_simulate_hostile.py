"""Programs with a number changed anywhere run or are refused: no traceback, no memory without end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from dlc_backend_s2train.codes import Arena, Element, Flag, Role, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper, Instruction, Program, Tensor
from dlc_backend_s2train.simulator.operands import Array
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc import DlcError
from tests.backend_s2train.machines import machine_of, unverified
from tests.backend_s2train.numerics_cases import halves, norm_of
from tests.backend_s2train.programs import PROGRAMS, Hand
from tests.backend_s2train.test_simulate import batch

NUMBERS = st.one_of(
    st.integers(-3, 12), st.sampled_from([-(1 << 31), 255, 65535, 1 << 20, (1 << 31) - 1, (1 << 32) - 1])
)
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, 0.5, 1.0, -1.0]))


def pools() -> Program:
    """A pool of each kind with its way back, and a norm in training mode."""
    hand = Hand()
    x = hand.tensor("x", (2, 3, 7, 7), Role.INPUT)
    y, dy = (hand.tensor(name, (2, 3, 4, 4), Role.ACTIVATION) for name in ("y", "dy"))
    ptr = hand.tensor("ptr", (2, 3, 4, 4), Role.POINTER, Element.PTR4)
    dx = hand.tensor("dx", (2, 3, 7, 7), Role.OUTPUT)
    bn = hand.tensor("bn", (4, 3), Role.NORM, Element.FP32, norm_of(3))
    statistics = hand.tensor("statistics", (2, 3), Role.PARTIAL, Element.FP32)
    g = Geometry(2, 3, 3, 7, 7, 4, 4, pool=(3, 2, 1))
    hand.do(Opcode.POOL, Stage.FORWARD, Flag.POINTER_WRITE, g, src0=x, dst0=y, ptr=ptr)
    hand.do(Opcode.POOL, Stage.BACKWARD, Flag.POINTER_READ, g, src0=y, dst0=dx, ptr=ptr)
    hand.do(Opcode.POOL, Stage.FORWARD, geometry=g, src0=x, dst0=y)
    norm: dict[str, Any] = {"dst0": dy, "dst1": statistics, "bn0": bn}
    hand.do(Opcode.ELTWISE, Stage.FORWARD, Flag.BN_TRAIN | Flag.RELU, hyper=Hyper(epsilon=1e-5), src0=y, **norm)
    hand.do(Opcode.POOL, Stage.BACKWARD, geometry=g, src0=dy, dst0=dx)
    hand.entry("run", [("x", x)], outputs=[("dx", dx)])
    return hand.program()


ALL: Mapping[str, Any] = {**PROGRAMS, "pools": pools}


@st.composite
def edited(draw: st.DrawFn, value: Any) -> Any:
    """A record with one of its numbers changed."""
    name = draw(st.sampled_from([f.name for f in fields(value) if f.name != "name"]))
    match getattr(value, name):
        case bool() as old:
            new: Any = not old
        case Flag() | Splitting() as old:
            new = old ^ draw(st.sampled_from(list(type(old))))
        case Opcode() | Stage() | Element() | Role() | Arena() as old:
            new = draw(st.sampled_from(list(type(old))))
        case int() | None:
            new = draw(NUMBERS)
        case float():
            new = draw(FLOATS)
        case tuple():
            numbers: tuple[int, ...] = getattr(value, name)
            place = draw(st.integers(0, len(numbers) - 1))
            new = (*numbers[:place], draw(NUMBERS), *numbers[place + 1 :])
        case old:
            slot = draw(st.sampled_from(sorted(old)))
            new = {**old, slot: draw(st.integers(0, 20))}
    return replace(value, **{name: new})


@st.composite
def hostile(draw: st.DrawFn) -> tuple[Program, dict[str, Array]]:
    """One of the programs with up to three numbers changed, and arrays for the one that it was."""
    program: Program = ALL[draw(st.sampled_from(sorted(ALL)))]()
    arrays = batch(program, 0)
    for _ in range(draw(st.integers(1, 3))):
        tables = ["instructions", "geometries", "hypers", "tensors", "storages"]
        table = draw(st.sampled_from([name for name in tables if getattr(program, name)]))
        records: list[Instruction | Geometry | Hyper | Tensor] = list(getattr(program, table))
        place = draw(st.integers(0, len(records) - 1))
        # An instruction without operands has none to change.
        if isinstance(record := records[place], Instruction) and not record.operands:
            continue
        records[place] = draw(edited(record))
        program = replace(program, **{table: tuple(records)})
    return program, arrays


@settings(max_examples=300)
@given(hostile(), st.booleans(), st.booleans())
def test_a_program_with_numbers_changed_is_refused_or_runs(
    case: tuple[Program, dict[str, Array]], checked: bool, exact: bool
) -> None:
    program, arrays = case
    entry = program.entries[0]
    try:
        machine = machine_of(program, "bit-true" if exact else "fast", checked, limit=1 << 24)
    except DlcError as problem:
        assert problem.diagnostics[0].message
        return
    try:
        machine.run(entry.name, arrays)
    except DlcError as problem:  # of a right program, whose inputs are others
        assert {d.code for d in problem.diagnostics} == {"bad-array"}


@pytest.mark.parametrize("name", ALL)
def test_unchanged_they_run(name: str) -> None:
    program = ALL[name]()
    result = machine_of(program, checked=True, limit=1 << 24).run(program.entries[0].name, batch(program, 0))
    assert all(np.isfinite(value).all() for value in result.values())


def test_a_geometry_takes_no_memory_without_end() -> None:
    hand = Hand()
    x, w = hand.tensor("x", (1, 1, 1, 1), Role.INPUT), hand.tensor("w", (1, 1, 1, 1), Role.WEIGHT, value=halves(0, 1))
    dx = hand.tensor("dx", (1, 1, 1, 1), Role.OUTPUT)
    huge = Geometry(1, 1, 1, 1 << 30, 1 << 30, 1, 1)
    hand.do(Opcode.CONV, Stage.BACKWARD, geometry=huge, src0=x, src1=w, dst0=dx)
    hand.entry("run", [("x", x)])
    with pytest.raises(DlcError, match="of which 536,870,912 may be held"):
        unverified(hand.program()).run("run", {"x": halves(0, 1, 1, 1, 1)})
