"""Functions of the host in S2Train files: what a file says of them is checked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.program import Program

from dlc import DlcError
from dlc.ops.normalize import Lrn
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.selected import Model, program, select


def function(text: str, program: Program) -> Program:
    """A program whose first function has another text."""
    first, *others = program.functions
    return replace(program, functions=(replace(first, text=text), *others))


LRN = 'graph(%0 "x0": f32[1,4,2,2]) {\n  %1 = lrn(%0) size=3\n  return %1 "y0"\n}\n'
TEXTS = {
    "no graph": (LRN[:-4], "line 3"),
    "an unknown op": (LRN.replace("lrn", "lrm"), "lrm"),
    "another type": (LRN.replace("4,2,2", "4,2,3"), "value 0 that it reads is f32[1,4,2,3]"),
    "another number of values": (LRN.replace('"y0"', '"y0", %0 "y1"'), "writes 2 values, but it names 1"),
    "an instruction": (LRN.replace("lrn(%0) size=3", 's2_instruction([%0]) opcode="nop"'), "s2_instruction"),
    "a gradient by name": (LRN.replace("lrn(%0) size=3", "cotangent(%0, %0, [%0])"), "cotangent"),
    "much memory": (
        LRN.replace("return", "%2 = splat() value=1.0 of=f32[90000,90000]\n  %3 = exp(%2)\n  return"),
        "bytes; 1,073,741,824 are the most",
    ),
    "a large window": (LRN.replace("size=3", "size=99999999"), "adds up 99,999,999 elements for each result, of 16"),
    "much work": (
        LRN.replace("return", "%2 = rank(%4) axis=0\n  return").replace(
            "  %1", "  %4 = splat() value=1.0 of=f32[140000]\n  %1"
        ),
        "steps; 17,179,869,184 are the most",
    ),
    "a large constant": (LRN.replace("lrn(%0) size=3", f"constant() tensor=f32[1,4,2,3]:{'0' * 32}"), "not at hand"),
    "a weight": (LRN.replace("4,2,2])", "4,2,2] weight = 0.0)"), "plain values"),
}


@pytest.fixture(scope="module")
def called() -> Program:
    model = Model()
    return program(select(model.graph(model.relu(Lrn(model.x(1, 4, 2, 2), 3))), fallback="host"))


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_file_says_is_checked(name: str, called: Program) -> None:
    text, why = TEXTS[name]
    # What nothing reads is no part of a graph.
    for there, output in (("%3 =", "%3"), ("%2 = rank", "%2")):
        text = text.replace('%1 "y0"', f'%1 "y0", {output} "y1"') if there in text else text
    wrong = function(text, called)
    with pytest.raises(DlcError) as refused:
        read(memoryview(write(wrong)), "x.s2t")
    (problem,) = refused.value.diagnostics
    assert problem.code == "bad-s2t" and problem.location and problem.location.byte > 0
    assert why in problem.message
    assert [p.code for p in verify(wrong)] == ["bad-function"]
    with pytest.raises(DlcError, match="function 0"):
        machine_of(wrong)


def test_functions_are_checked_like_instructions(called: Program) -> None:
    (first,) = called.functions
    (call, *rest) = called.instructions
    twice = replace(called, instructions=(call, call, *rest[1:]))
    assert "called by the instructions 0 and 1" in verify(twice)[0].message
    unread = replace(called, instructions=tuple(reversed(called.instructions)))
    assert {"read-before-write"} <= {p.code for p in verify(unread)}
    absent = replace(called, functions=(replace(first, reads=(99,)),))
    assert [p.code for p in verify(absent)] == ["no-such-number"]
    over = replace(called, functions=(replace(first, writes=first.reads),))
    assert "collision" in {p.code for p in verify(over)}
    other = replace(called, instructions=(replace(call, function=1), *rest))
    assert "function 1 does not exist; there are 1" in verify(other)[0].message


def test_room_of_functions_counts(called: Program) -> None:
    with pytest.raises(DlcError, match="the program needs"):
        machine_of(called, limit=200)
