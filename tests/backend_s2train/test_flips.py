"""A flipped bit of a header, an instruction or its geometry is refused, or the program means something else."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Flag, Role, Splitting, Stage
from dlc_backend_s2train.container import read
from dlc_backend_s2train.cost.report import data as costs
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper, Program, Target
from dlc_backend_s2train.simulator.operands import Array

from dlc import DlcError
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.mutations import COUNT, ENTRY, HEADER, NAME, WORD, repaired, sections, seeds
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.programs import PROGRAMS, Hand
from tests.backend_s2train.test_simulate import batch

MINOR = range(6, 8)
"""Bytes of the minor version, of which readers take any."""
SAMPLE = 400
"""Bits of a file that one test flips."""
_CRC = 30
"""Where an instruction has its checksum."""


def meaning(program: Program) -> list[Any]:
    """What a program does: results and weights of two runs of each entry, what they cost, and where everything lies."""
    machine = machine_of(program, "bit-true", limit=1 << 26)
    found: list[Any] = [program.storages]
    for entry in program.entries:
        for seed in range(2):
            arrays: dict[str, Array] = batch(replace(program, entries=(entry,)), seed)
            results = machine.run(entry.name, arrays)
            found.append([(name, value.shape, value.tobytes()) for name, value in results.items()])
            found.append((machine.overflow, machine.snapshot().weights))
    try:
        found.append(costs(program))
    except DlcError as refused:
        found.append(str(refused))
    # Two tensors may see the same bytes: which of them an instruction names is a part of what it says.
    return [
        *found,
        [dict(i.operands) for i in program.instructions],
        [(i.wait, i.signal) for i in program.instructions],
    ]


def places(data: bytes) -> Iterator[int]:
    """Bytes of the header, the table's entries of sections that are known, instructions and geometries."""
    yield from (at for at in range(HEADER) if at not in MINOR)
    for entry, name, offset, size in sections(bytearray(data)):
        if name not in (b"PERF", b"ABCD"):
            yield from range(entry, entry + ENTRY)
        if name == b"INS2":
            yield from (at for at in range(offset, offset + size) if (at - offset) % WORD < _CRC)
        if name == b"GEOM":
            yield from range(offset, offset + size)


def flipped(data: bytes, at: int, bit: int) -> Program | None:
    """The program with one bit flipped under checksums that are right; None: it is refused."""
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    if bytes(changed := repaired(changed)) == data:
        return None  # a checksum
    try:
        program = read(memoryview(bytes(changed)), NAME)
    except DlcError:
        return None
    return None if verify(program) else program


@pytest.mark.parametrize("number", range(len(seeds())))
def test_a_flipped_bit_is_refused_or_means_something_else(number: int) -> None:
    data = seeds()[number]
    was = meaning(read(memoryview(data), NAME))
    bits = [(at, bit) for at in places(data) for bit in range(8)]
    for at, bit in random.Random(number).sample(bits, min(SAMPLE, len(bits))):
        program = flipped(data, at, bit)
        assert program is None or meaning(program) != was, f"byte {at}, bit {bit}"


def test_every_bit_of_the_header() -> None:
    data = seeds()[0]
    for at in (at for at in range(HEADER) if at not in MINOR):
        for bit in range(8):
            assert flipped(data, at, bit) is None, f"byte {at}, bit {bit}"
    (count,) = struct.unpack_from("<I", data, COUNT)
    for at in range(HEADER, HEADER + count * ENTRY):
        for bit in range(8):
            assert flipped(data, at, bit) is None, f"byte {at}, bit {bit}"


# ---- each of them by name ----
def text(program: Program) -> str:
    return "\n".join(problem.message for problem in verify(program))


def convolved(g: Geometry) -> Program:
    """y = conv(x, w), with a geometry that may say too much."""
    hand = Hand()
    x, y = hand.tensor("x", (g.n, g.ci, g.hi, g.wi), Role.INPUT), hand.tensor("y", (g.n, g.co, g.ho, g.wo), Role.OUTPUT)
    w = hand.tensor("w", (g.co, g.ci, g.kh, g.kw), Role.WEIGHT, value=halves(0, g.co, g.ci, g.kh, g.kw))
    hand.do(Opcode.CONV, Stage.FORWARD, geometry=g, src0=x, src1=w, dst0=y)
    hand.entry("run", [("x", x)], outputs=[("y", y)])
    return hand.program()


PLAIN = Geometry(2, 3, 4, 6, 6, 6, 6, 3, 3, pads=(1, 1, 1, 1))
SAID: dict[str, tuple[Program, str]] = {
    "pool": (
        convolved(replace(PLAIN, pool=(2, 2, 0))),
        "a pool of 2, stride 2, pad 0; the array pools",
    ),
    "bottom pad": (
        convolved(replace(PLAIN, pads=(1, 1, 2, 1))),
        "pads of 1 and 2 rows end 1 behind the last window; 0 are the most",
    ),
    "right pad": (
        convolved(replace(PLAIN, pads=(1, 1, 1, 1 << 30))),
        "pads of 1 and 1073741824 columns end 1073741823 behind the last window; 0 are the most",
    ),
    "top pad": (
        convolved(replace(PLAIN, pads=(1 << 20, 1, 2 - (1 << 20), 1))),
        "pads of 1048576 and -1048574 rows leave out more than there are, 6",
    ),
    "dilation": (
        convolved(Geometry(1, 1, 1, 4, 4, 4, 4, dilation=(2, 1))),
        "a kernel of one has a dilation of 2 along rows",
    ),
    "channels": (convolved(replace(PLAIN, channels=(0, 3))), "it names all of 3 channels, which zeros stand for"),
    "samples": (convolved(replace(PLAIN, samples=(0, 2))), "it names all of 2 samples, which zeros stand for"),
    "cores": (
        replace(convolved(PLAIN), instructions=tuple(replace(i, cores=0x7F) for i in convolved(PLAIN).instructions)),
        "its mask of cores is 0x7f; every program runs on all of them, 0xff",
    ),
    "last": (
        replace(
            convolved(PLAIN),
            instructions=tuple(replace(i, splitting=Splitting.FIRST) for i in convolved(PLAIN).instructions),
        ),
        "it is not marked last, which stands where accumulate_out does not",
    ),
    "unused geometry": (
        replace(convolved(PLAIN), geometries=(PLAIN, replace(PLAIN, n=7))),
        "geometry 1 is named by no instruction",
    ),
    "unused hyper-parameters": (
        replace(convolved(PLAIN), hypers=(Hyper(),)),
        "record of hyper-parameters 0 is named by no instruction",
    ),
    "machine": (
        replace(convolved(PLAIN), target=replace(Target(), cores=9)),
        "the program is for a machine with 9 cores; S2Train has 8",
    ),
    "weight memory": (
        replace(convolved(PLAIN), target=replace(Target(), weight_bytes=8191)),
        "the program is for a machine with 8191 weight bytes; S2Train has 8192",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_what_says_too_much_is_refused(name: str) -> None:
    program, message = SAID[name]
    assert message in text(program)


def test_pads_that_a_stride_leaves_over_are_right() -> None:
    """Rounded down, as models say it: the last row is read by no window."""
    assert text(convolved(PLAIN)) == ""
    assert text(convolved(Geometry(1, 1, 1, 6, 6, 3, 3, 3, 3, stride=(2, 2), pads=(1, 1, 1, 1)))) == ""


def test_hyper_parameters_that_nothing_reads() -> None:
    program = PROGRAMS["linear_step"]()
    for name, value in (("threshold", 0.5), ("keep", 0.5), ("epsilon", 1e-3), ("seed", 3), ("rate", 0.5)):
        number = next(i.hyper for i in program.instructions if Flag.SOFTMAX_CE in i.flags)
        assert number is not None
        hypers = list(program.hypers)
        hypers[number] = replace(hypers[number], **{name: value})
        assert f"its {name} is {value}, which it does not read" in text(replace(program, hypers=tuple(hypers)))
