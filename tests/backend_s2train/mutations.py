"""Damaged `.s2t` files: from flipped bits to lengths that lie under checksums that are right."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, cast

import numpy as np
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Element
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.crc import crc16, crc32c, crc64
from dlc_backend_s2train.frames.stream import stored_frames
from dlc_backend_s2train.program import Program
from dlc_backend_s2train.v1.legalize import to_v1

from dlc import Report
from dlc.base.diagnostics import DlcError
from tests.backend_s2train.machines import unverified
from tests.backend_s2train.programs import PROGRAMS, hosted

NAME = "mutated.s2t"
HEADER, ENTRY, WORD = 64, 40, 32
"""Bytes of the header, of one section's entry in the table behind it, of an instruction."""
COUNT = 28
"""Where the header has the number of sections."""
EXTREMES = (0, 1, 2, 63, 64, 127, 128, 255, 1 << 15, 0xFFFE, 0xFFFF, 1 << 31, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1)

Mutation = Callable[[random.Random, bytearray], bytearray]


@cache
def seeds() -> tuple[bytes, ...]:
    """Files that are right: the programs made by hand, one of them with every kind of section."""
    plain = [write(make()) for make in (*PROGRAMS.values(), hosted)]
    step = PROGRAMS["conv_step"]()
    words = to_v1(step)
    full = replace(step, legacy=tuple(words.words.values()), numbering=words.numbering)
    full = replace(full, frames=stored_frames(step, Report()))
    return (*plain, write(full, {"PERF": b"figures", "ABCD": b"of a newer version"}))


def mutated(number: int) -> bytes:
    """The file of a number, always the same."""
    rng = random.Random(number)
    if rng.random() < 0.4:
        return _other_values(rng)
    data = bytearray(rng.choice(seeds()))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(MUTATIONS)(rng, data)
    return bytes(data if rng.random() < 0.1 else repaired(data))


def _other_values(rng: random.Random) -> bytes:
    """A program with one value exchanged or changed, in a file that is right."""
    data = rng.choice(seeds())
    program = read(memoryview(data), NAME)
    for _ in range(rng.choice((1, 1, 2))):
        program = _other_value(rng, program)
    try:
        return write(program)
    except DlcError:  # an instruction of which there is no word
        return data


def _other_value(rng: random.Random, program: Program) -> Program:
    tables = ("tensors", "storages", "geometries", "instructions", "instructions", "entries", "functions")
    table = rng.choice([name for name in tables if getattr(program, name)])
    records: list[Any] = list(getattr(program, table))
    number, other = rng.randrange(len(records)), rng.choice(records)
    record = records[number]
    if table == "instructions" and rng.random() < 0.3:
        records[number], records[records.index(other)] = other, record
        return replace(program, instructions=tuple(records))
    name = rng.choice([f.name for f in fields(record) if f.name not in ("name", "seed")])
    value = _near(rng, getattr(record, name), getattr(other, name), len(program.tensors))
    records[number] = replace(record, **{name: value})
    return replace(program, **{table: tuple(records)})


def _near(rng: random.Random, value: object, other: object, tensors: int) -> object:
    """Another value that is easily taken for `value`."""
    if operands := _operands(value):
        operands[rng.choice(list(operands))] = rng.randrange(tensors)
        return operands
    if numbers := _integers(value):
        k = rng.randrange(len(numbers))
        numbers[k] = max(numbers[k] + rng.choice((-1, 1, 2)), 0)
        return tuple(rng.choice((numbers, numbers[::-1])))
    if isinstance(value, str):
        at = rng.randrange(len(value))
        return value[:at] + rng.choice(("", "9", "-", rng.choice(value), value[at] * 2)) + value[at + 1 :]
    if type(value) is int:
        return max(value + rng.choice((-64, -2, -1, 1, 2, 64)), 0) if rng.random() < 0.7 else other
    return other


def _operands(value: object) -> dict[str, int]:
    return dict(cast("Mapping[str, int]", value)) if isinstance(value, Mapping) else {}


def _integers(value: object) -> list[int]:
    return [v for v in cast("tuple[object, ...]", value) if type(v) is int] if isinstance(value, tuple) else []


def outcome(data: bytes) -> str:
    """`refused`, `wrong` or `valid`, what reader and verifier make of a file; anything else is an AssertionError."""
    try:
        program = read(memoryview(data), NAME)
    except DlcError as refused:
        (problem,) = refused.diagnostics
        assert problem.code == "bad-s2t" and problem.message and problem.help, problem
        assert problem.location and problem.location.source == NAME, problem
        assert 0 <= problem.location.byte <= len(data), problem
        return "refused"
    problems = verify(program)
    assert all(p.code and p.message for p in problems)
    again = write(program)
    assert read(memoryview(again), NAME) == program and write(program) == again
    if problems:
        return "wrong"
    return "valid" if _runs(program) else "valid but large"


def _runs(program: Program) -> bool:
    """Whether the simulator takes the program; if it does, its own checks find nothing where the verifier did not."""
    try:
        machine = unverified(program, checked=True, limit=1 << 26)
    except DlcError as refused:
        assert refused.diagnostics[0].code == "too-large", refused
        return False
    for entry in program.entries:
        given = {name: program.tensors[number] for name, number in (*entry.inputs, *entry.labels)}
        machine.run(entry.name, {name: np.zeros(t.shape, _numpy_type(t.element)) for name, t in given.items()})
    return True


def _numpy_type(element: Element) -> str:
    """What the host gives for tensors of this element."""
    return {Element.BIT: "?", Element.PTR2: "u1", Element.PTR4: "u1", Element.INT32: "i4"}.get(element, "f4")


def repaired(data: bytearray) -> bytearray:
    """The same file with right checksums of all that can be found in it, and its right size in the header."""
    if len(data) < HEADER:
        return data
    (count,) = struct.unpack_from("<I", data, COUNT)
    end = min(HEADER + count * ENTRY, len(data))
    for at in range(HEADER, end - ENTRY + 1, ENTRY):
        fourcc, offset, size = struct.unpack_from("<4s4xQQ", data, at)
        if offset + size > len(data):
            continue
        if fourcc == b"INS2":
            for word in range(offset, offset + size - WORD + 1, WORD):
                struct.pack_into("<H", data, word + WORD - 2, crc16(data[word : word + WORD - 2]))
        struct.pack_into("<Q", data, at + 32, crc64(data[offset : offset + size]))
    struct.pack_into("<QQ", data, 40, len(data), crc64(data[HEADER:end]))
    struct.pack_into("<I", data, 60, crc32c(data[:60]))
    return data


def sections(data: bytearray) -> list[tuple[int, bytes, int, int]]:
    """(place in the table, name, offset, size) of the sections that lie inside the file."""
    (count,) = struct.unpack_from("<I", data, COUNT) if len(data) >= HEADER else (0,)
    found: list[tuple[int, bytes, int, int]] = []
    for at in range(HEADER, min(HEADER + min(count, 64) * ENTRY, len(data) - ENTRY + 1), ENTRY):
        fourcc, offset, size = struct.unpack_from("<4s4xQQ", data, at)
        if offset + size <= len(data):
            found.append((at, fourcc, offset, size))
    return found


def _flip(rng: random.Random, data: bytearray) -> bytearray:
    for _ in range(rng.choice((1, 1, 2, 8))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def _flip_in_section(rng: random.Random, data: bytearray) -> bytearray:
    places = [(offset, size) for _, _, offset, size in sections(data) if size]
    if places:
        offset, size = rng.choice(places)
        data[offset + rng.randrange(size)] ^= 1 << rng.randrange(8)
    return data


def _number(rng: random.Random, data: bytearray) -> bytearray:
    """A number of some section becomes an extreme, or another small one."""
    places = [(offset, size) for _, _, offset, size in sections(data) if size >= 8]
    if places:
        offset, size = rng.choice(places)
        width, letter = rng.choice(((1, "B"), (2, "H"), (4, "I"), (8, "Q")))
        at = offset + rng.randrange(size // width) * width
        value = rng.choice((rng.choice(EXTREMES), rng.randrange(12)))
        struct.pack_into(f"<{letter}", data, at, value % (1 << 8 * width))
    return data


def _operand(rng: random.Random, data: bytearray) -> bytearray:
    """A field of some instruction becomes another small number."""
    words = [o + k for _, name, o, size in sections(data) if name == b"INS2" for k in range(0, size - WORD + 1, WORD)]
    if words:
        struct.pack_into("<H", data, rng.choice(words) + 2 * rng.randrange(15), rng.choice((rng.randrange(24), 0xFFFF)))
    return data


def _truncate(rng: random.Random, data: bytearray) -> bytearray:
    return data[: rng.randrange(len(data) + 1)]


def _splice(rng: random.Random, data: bytearray) -> bytearray:
    """Bytes of another file in place of some of this one's."""
    other = rng.choice(seeds())
    at, begin = rng.randrange(len(data) + 1), rng.randrange(len(other))
    count = rng.randrange(256)
    data[at : at + rng.choice((0, count))] = other[begin : begin + count]
    return data


def _exchange(rng: random.Random, data: bytearray) -> bytearray:
    """A section with the content of the same one of another file, at the end of this one."""
    other = bytearray(rng.choice(seeds()))
    mine, theirs = sections(data), {name: (o, n, at) for at, name, o, n in sections(other)}
    shared = [(at, name) for at, name, _, _ in mine if name in theirs]
    if shared:
        at, name = rng.choice(shared)
        offset, size, entry = theirs[name]
        begin = -(-len(data) // 64) * 64
        data += bytes(begin - len(data)) + other[offset : offset + size] + bytes(-size % 64)
        data[at : at + ENTRY] = other[entry : entry + ENTRY]
        struct.pack_into("<Q", data, at + 8, begin)
    return data


def _swap(rng: random.Random, data: bytearray) -> bytearray:
    """Two sections exchange their names, or their entries."""
    places = [at for at, *_ in sections(data)]
    if len(places) > 1:
        one, other = rng.sample(places, 2)
        size = rng.choice((4, ENTRY))
        data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]
    return data


def _length(rng: random.Random, data: bytearray) -> bytearray:
    """A section's flags, offset, size, alignment or count becomes another."""
    places = [at for at, *_ in sections(data)]
    if places:
        at = rng.choice(places)
        offset, letter = rng.choice(((4, "H"), (6, "H"), (8, "Q"), (16, "Q"), (24, "I"), (28, "I")))
        (old,) = struct.unpack_from(f"<{letter}", data, at + offset)
        value = rng.choice((old + 1, old - 1, old + 64, old * 2, rng.choice(EXTREMES)))
        struct.pack_into(f"<{letter}", data, at + offset, value % (1 << 8 * struct.calcsize(letter)))
    return data


def _header(rng: random.Random, data: bytearray) -> bytearray:
    if len(data) >= HEADER:
        struct.pack_into("<I", data, 4 * rng.randrange(16), rng.choice(EXTREMES) & 0xFFFFFFFF)
    return data


def _drop(rng: random.Random, data: bytearray) -> bytearray:
    """One section less in the table."""
    places = [at for at, *_ in sections(data)]
    if places:
        at = rng.choice(places)
        (count,) = struct.unpack_from("<I", data, COUNT)
        end = HEADER + count * ENTRY
        data[at:end] = data[at + ENTRY : end] + bytes(ENTRY)
        struct.pack_into("<I", data, COUNT, count - 1)
    return data


MUTATIONS: tuple[Mutation, ...] = (
    *(_flip, _flip_in_section, _number, _number, _operand, _operand),
    *(_truncate, _splice, _exchange, _exchange, _swap, _length, _header, _drop),
)
