"""The link stream of whole programs: which instructions send what, and what of their operands."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dlc_backend_s2train.codes import Role, Stage
from dlc_backend_s2train.frames.convert import conversion, receive
from dlc_backend_s2train.frames.frame import Frame, Memory, decode_frames
from dlc_backend_s2train.frames.sizes import sizes
from dlc_backend_s2train.frames.stream import frames, of_ones, program_frames, sends, stream
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Program
from numpy.typing import NDArray

from dlc.base.diagnostics import DlcError
from tests.backend_s2train.programs import PROGRAMS, Hand


def elements(program: Program) -> list[NDArray[Any]]:
    """Something for every tensor."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal(tensor.shape).astype(np.float16) for tensor in program.tensors]


def received(program: Program, number: int, sent: list[Frame]) -> dict[Memory, NDArray[Any]]:
    instruction = program.instructions[number]
    assert instruction.geometry is not None
    con = conversion(instruction.opcode, instruction.stage, program.geometries[instruction.geometry])
    return {memory: operand.view(np.float16) for memory, operand in receive(con, sent).items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_frames_of_programs(name: str) -> None:
    program = PROGRAMS[name]()
    values = elements(program)
    whole = b"".join(program_frames(program, values.__getitem__))
    left = list(decode_frames(whole))
    assert [frame.head.number for frame in left] == list(range(len(left)))
    for number, instruction in enumerate(program.instructions):
        alone = stream(program, number, values.__getitem__)
        own = list(decode_frames(alone))
        assert bool(own) == sends(instruction)
        if not own or instruction.geometry is None:
            continue
        geometry = program.geometries[instruction.geometry]
        assert {frame.head.stage for frame in own} == {instruction.stage}
        taken, left = left[: len(own)], left[len(own) :]
        assert Counter(frame.size for frame in taken) == Counter(frame.size for frame in own)
        if "src1" not in instruction.operands:
            counted = sizes(instruction.opcode, instruction.stage, of_ones(geometry))
            assert counted.total.bytes == len(alone)
            continue
        found = received(program, number, taken)
        slots = ("src1", "src0") if instruction.stage is Stage.WEIGHT_GRADIENT else ("src0", "src1")
        for memory, slot in zip(Memory, slots, strict=True):
            want = values[instruction.operands[slot]]
            np.testing.assert_array_equal(found[memory].ravel(), want.ravel())
    assert not left


def test_gradient_of_a_bias_meets_ones() -> None:
    hand = Hand()
    dy = hand.tensor("dy", (2, 3, 4, 5), Role.FEATURE_GRADIENT)
    db = hand.tensor("db", (3,), Role.WEIGHT_GRADIENT)
    shape = Geometry(2, 7, 3, 6, 7, 4, 5, 3, 3)
    hand.do(Opcode.CONV, Stage.WEIGHT_GRADIENT, geometry=shape, src0=dy, dst0=db)
    program = hand.program()
    values = elements(program)
    sent = list(decode_frames(stream(program, 0, values.__getitem__)))
    found = receive(conversion(Opcode.CONV, Stage.WEIGHT_GRADIENT, of_ones(shape)), sent)
    assert (found[Memory.FM].view(np.float16) == 1).all()
    np.testing.assert_array_equal(found[Memory.WM].view(np.float16), values[dy])


@pytest.mark.parametrize("stage", [Stage.FORWARD, Stage.BACKWARD, Stage.WEIGHT_GRADIENT])
def test_samples_and_channels(stage: Stage) -> None:
    # Backward, the channels are those of dy, and w has the rows of those alone.
    back = stage is Stage.BACKWARD
    shape = Geometry(5, 6, 6, 4, 4, 4, 4, 3, 3, pads=(1, 1, 1, 1), channels=(2, 4), samples=(1, 4))
    hand = Hand()
    x, dy = hand.tensor("x", (5, 6, 4, 4), Role.INPUT), hand.tensor("dy", (5, 6, 4, 4), Role.INPUT)
    w = hand.tensor("w", (2, 6, 3, 3) if back else (6, 2, 3, 3), Role.WEIGHT)
    first, second = {Stage.FORWARD: (x, w), Stage.BACKWARD: (dy, w), Stage.WEIGHT_GRADIENT: (dy, x)}[stage]
    hand.do(Opcode.CONV, stage, geometry=shape, src0=first, src1=second)
    program = hand.program()
    values = elements(program)
    found = received(program, 0, list(decode_frames(stream(program, 0, values.__getitem__))))
    wanted = {
        Stage.FORWARD: (values[x][1:4, 2:4], values[w]),
        Stage.BACKWARD: (values[dy][1:4, 2:4], values[w]),
        Stage.WEIGHT_GRADIENT: (values[x][1:4, 2:4], values[dy][1:4]),
    }[stage]
    for memory in Memory:
        np.testing.assert_array_equal(found[memory], wanted[memory])


def test_the_link_carries_fp16() -> None:
    hand = Hand()
    x, w = hand.tensor("x", (1, 2), Role.ACTIVATION), hand.tensor("w", (1, 2), Role.WEIGHT)
    hand.do(Opcode.LINEAR, geometry=Geometry(1, 2, 1), src0=x, src1=w)
    program = hand.program()
    # 2049 lies between two numbers, the even one is 2048; 65520 is the first that is infinite.
    values = {x: np.array([[2049.0, 65520.0]], np.float32), w: np.ones((1, 2), np.float32)}
    found = received(program, 0, list(decode_frames(stream(program, 0, values.__getitem__))))
    assert found[Memory.FM].tolist() == [[[[2048.0]], [[np.inf]]]]


def test_operands_that_do_not_go_with_the_geometry() -> None:
    program = PROGRAMS["forward_conv"]()
    with pytest.raises(DlcError, match="7 elements"):
        stream(program, 0, lambda _: np.zeros(7, np.float16))
    missing = replace(program.instructions[0], operands={"src0": 0})
    with pytest.raises(DlcError, match="src1 is missing"):
        list(frames(replace(program, instructions=(missing,)), 0, elements(program).__getitem__))
