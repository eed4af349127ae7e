"""`.s2t` files: what is written is read again, and nothing else is."""

from __future__ import annotations

import lzma
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from dlc_backend_s2train.codes import Arena, Element, Role
from dlc_backend_s2train.container import layout, optional_sections, read, write
from dlc_backend_s2train.crc import crc64
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import (
    Entry,
    Geometry,
    Hyper,
    Instruction,
    Numbered,
    Program,
    Storage,
    Target,
    Tensor,
)
from dlc_backend_s2train.v1 import encoding as v1
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError, render
from tests.backend_s2train.isa_words import v1_words
from tests.backend_s2train.mutations import COUNT, ENTRY, HEADER, repaired, sections
from tests.backend_s2train.programs import PROGRAMS, forward_conv, linear_step

RECORDS = [layout.HEADER, layout.ENTRY, *(s.record for s in layout.SECTIONS if s.record)]

u16, u32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
text = st.text(max_size=12)  # lone surrogates among it, as names out of protobuf files may have
number = st.floats(allow_nan=False, allow_infinity=False)


def pair(of: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(of, of)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Anything that the format holds, sense or nonsense."""
    count = draw(st.integers(0, 3))
    instructions = tuple(
        Instruction(draw(st.sampled_from((Opcode.NOP, Opcode.END))), wait=draw(st.integers(0, 15)))
        for _ in range(count)
    )
    storages: list[Storage] = []
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, count))
        end = draw(st.integers(begin, count))
        arena, address = draw(st.sampled_from(Arena)), draw(st.integers(0, 1 << 40))
        storages.append(Storage(arena, address, draw(st.integers(0, 4096)), begin, end))
    tensors: list[Tensor] = []
    for _ in range(draw(st.integers(0, 4)) if storages else 0):
        number = draw(st.integers(0, len(storages) - 1))
        element, role = draw(st.sampled_from(Element)), draw(st.sampled_from(Role))
        shape = tuple(draw(st.lists(st.integers(1, 3), max_size=8)))
        tensor = Tensor(draw(text), number, shape, element, role)
        room = storages[number].size - tensor.nbytes
        if room >= 0:
            tensors.append(replace(tensor, offset=draw(st.integers(0, room))))
    pairs = (
        st.lists(st.tuples(text, st.integers(0, len(tensors) - 1)), max_size=2).map(tuple) if tensors else st.just(())
    )
    names = draw(st.lists(text, max_size=3, unique=True))
    entries = tuple(Entry(n, 0, count, draw(pairs), draw(pairs), draw(pairs)) for n in names)
    numbered = st.builds(
        Numbered, st.integers(0, max(len(tensors) - 1, 0)), st.integers(0, v1.TENSORS - 1), st.just(0), st.just(count)
    )
    held = draw(st.sets(st.integers(0, len(storages) - 1))) if storages else set[int]()
    return Program(
        tuple(tensors),
        tuple(storages),
        tuple(draw(st.lists(geometries, max_size=2))),
        tuple(draw(st.lists(hypers, max_size=2))),
        instructions,
        entries,
        {storage: draw(st.binary(min_size=n, max_size=n)) for storage in held for n in [storages[storage].size]},
        draw(st.binary(max_size=99)),
        Target(*(draw(st.integers(1, 255)) for _ in range(4)), weight_bytes=draw(st.integers(1, 1 << 20))),
        draw(st.dictionaries(text, text, max_size=3)),
        tuple(draw(st.lists(v1_words().map(v1.encode), max_size=2))),
        tuple(draw(st.lists(numbered, max_size=2))) if tensors else (),
    )


geometries = st.builds(
    Geometry,
    *(u32,) * 9,
    stride=pair(u32),
    pads=st.tuples(*(st.integers(-(1 << 31), (1 << 31) - 1),) * 4),
    dilation=pair(u32),
    groups=u32,
    pool=st.tuples(u32, u32, u32),
    channels=pair(u32),
    samples=pair(u32),
)
hypers = st.builds(
    Hyper,
    *(number,) * 7,
    seed=st.integers(0, (1 << 64) - 1),
    nesterov=st.booleans(),
    growth=st.integers(0, (1 << 32) - 1),
)


@given(programs())
def test_what_is_written_is_read_again(program: Program) -> None:
    data = write(program)
    found = read(memoryview(data), "x.s2t")
    assert found == program
    assert write(found) == data


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_programs_made_by_hand_are_read_again(make: Callable[[], Program]) -> None:
    data = write(make())
    assert read(memoryview(data), "x.s2t") == make()
    assert write(make()) == data and len(data) % 64 == 0


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.fields[0].name)
def test_records_are_structs_of_c(record: layout.Record) -> None:
    record.check()
    assert record.packed.size == record.size


def test_sizes_and_places_are_those_that_were_published() -> None:
    data = bytearray(write(forward_conv()))
    assert (layout.HEADER.size, layout.ENTRY.size) == (HEADER, ENTRY)
    assert data[:8] == b"S2TB\1\0\0\0" and struct.unpack_from("<I", data, COUNT) == (9,)
    assert [name for _, name, _, _ in sections(data)] == [
        *(b"TENS", b"STOR", b"GEOM", b"HYPR", b"INS2", b"ENTR", b"BIND", b"WGHT", b"META")
    ]
    assert all(offset % 64 == 0 for _, _, offset, _ in sections(data))


def test_checksums_of_sections_are_those_of_xz() -> None:
    """liblzma computes the same CRC-64: it stands before the index of an .xz stream with one block."""
    data = bytearray(write(linear_step()))
    for at, _, offset, size in sections(data):
        stream = lzma.compress(data[offset : offset + size], check=lzma.CHECK_CRC64) if size else b""
        if size:
            (backward,) = struct.unpack_from("<I", stream, len(stream) - 8)
            end = len(stream) - 12 - 4 * (backward + 1)
            assert stream[end - 8 : end] == data[at + 32 : at + 40]
        else:
            assert crc64(b"") == int.from_bytes(data[at + 32 : at + 40], "little") == 0


def test_sections_of_newer_minor_versions_are_skipped() -> None:
    program = forward_conv()
    data = bytearray(write(program, {"PERF": b"cycles", "NEWS": b"what"}))
    struct.pack_into("<H", data, 6, 7)
    whole = memoryview(bytes(repaired(data)))
    assert read(whole, "x.s2t") == program
    assert optional_sections(whole, "x.s2t") == {"PERF": b"cycles", "NEWS": b"what"}


def test_every_beginning_of_a_file_is_refused() -> None:
    data = write(linear_step())
    for end in range(len(data)):
        with pytest.raises(DlcError) as refused:
            read(memoryview(data)[:end], "x.s2t")
        assert refused.value.diagnostics[0].code == "bad-s2t"


def test_a_flipped_bit_in_any_byte_is_noticed() -> None:
    data = bytearray(write(forward_conv()))
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        with pytest.raises(DlcError):
            read(memoryview(data), "x.s2t")
        data[at] ^= 1 << at % 8


Change = Callable[[bytearray, dict[bytes, tuple[int, int, int]]], None]


def _put(letter: str, at: int, value: int) -> Change:
    def change(data: bytearray, _: object) -> None:
        struct.pack_into(f"<{letter}", data, at, value)

    return change


def _entry(name: bytes, letter: str, offset: int, value: int) -> Change:
    def change(data: bytearray, found: dict[bytes, tuple[int, int, int]]) -> None:
        struct.pack_into(f"<{letter}", data, found[name][0] + offset, value)

    return change


def _within(name: bytes, letter: str, offset: int, value: int) -> Change:
    def change(data: bytearray, found: dict[bytes, tuple[int, int, int]]) -> None:
        struct.pack_into(f"<{letter}", data, found[name][1] + offset, value)

    return change


REFUSALS: dict[str, tuple[Change, str]] = {
    "another magic": (_put("I", 0, 1), "is no .s2t file"),
    "another major version": (_put("H", 4, 2), "version 2.0 of the format"),
    "flags of the header": (_put("I", 12, 1), "flags is 1; it should be 0"),
    "another machine": (_put("I", 16, 9), "architecture is 9"),
    "a machine without cores": (_put("B", 20, 0), "has no cores"),
    "many sections": (_put("I", COUNT, 65), "65 sections; 64 are the most"),
    "no name of a section": (_entry(b"META", "B", 0, 0), "is no section's name"),
    "a section outside": (_entry(b"TENS", "Q", 8, 1 << 40), "the file ends after"),
    "an offset between": (_entry(b"TENS", "Q", 8, 513), "it should be to 64"),
    "sections that overlap": (_entry(b"STOR", "Q", 8, 448), "begins at byte 448, before section TENS ends"),
    "a section's version": (_entry(b"GEOM", "H", 4, 2), "section GEOM has version 2"),
    "more records than bytes": (_entry(b"TENS", "I", 28, 900), "its 900 records take"),
    "more records than may be": (_entry(b"TENS", "I", 28, 1 << 20), "65535 are the most"),
    "an unknown element": (_within(b"TENS", "B", 16, 9), "element 9 is unknown"),
    "an unknown role": (_within(b"TENS", "B", 17, 99), "role 99 is unknown"),
    "a dimension of none": (_within(b"TENS", "I", 24, 0), "rank 4 and the dimensions"),
    "a tensor that is too large": (_within(b"TENS", "I", 24, 1 << 30), "of a storage of 432"),
    "a storage that is not": (_within(b"TENS", "I", 4, 77), "storage 77 does not exist; there are 5"),
    "a long name": (_within(b"TENS", "I", 0, 4000), "names of 40"),
    "a reserved byte": (_within(b"STOR", "B", 25, 1), "reserved bytes that are not 0"),
    "a far address": (_within(b"STOR", "Q", 0, 1 << 63), "addresses end at"),
    "a lifetime backwards": (_within(b"STOR", "I", 16, 2**31), "lives from instruction 2147483648"),
    "a tensor that an instruction lacks": (_within(b"INS2", "H", 8, 500), "src0 500 does not exist; there are 5"),
    "an unknown opcode": (_within(b"INS2", "B", 0, 0x66), "instruction 0: "),
    "an entry's end": (_within(b"ENTR", "I", 8, 5), "instructions 0 to 5 of 2"),
    "a binding's entry": (_within(b"BIND", "I", 4, 1), "entry 1 does not exist; there are 1"),
    "a weight's size": (_within(b"WGHT", "Q", 16, 6), "6 bytes for storage 1, which has 216"),
    "a weight's place": (_within(b"WGHT", "Q", 8, 0), "they should begin at 64"),
}


@pytest.mark.parametrize(("change", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_lies_under_right_checksums_is_refused(change: Change, message: str) -> None:
    data = bytearray(write(forward_conv()))
    found = {name: (at, offset, size) for at, name, offset, size in sections(data)}
    change(data, found)
    with pytest.raises(DlcError) as refused:
        read(memoryview(bytes(repaired(data))), "x.s2t")
    (problem,) = refused.value.diagnostics
    assert message in problem.message, problem.message
    assert problem.code == "bad-s2t" and problem.location and problem.location.source == "x.s2t"
    assert 0 <= problem.location.byte < len(data)


def test_sections_have_to_be_there_once_and_known_where_they_must_be() -> None:
    data = bytearray(write(forward_conv(), {"NEWS": b"!"}))
    places = {name: at for at, name, _, _ in sections(data)}
    must = bytearray(data)
    struct.pack_into("<H", must, places[b"NEWS"] + 6, 1)
    with pytest.raises(DlcError, match="section NEWS has to be understood"):
        read(memoryview(bytes(repaired(must))), "x.s2t")
    missing = bytearray(data)
    missing[places[b"GEOM"] : places[b"GEOM"] + 8] = b"GONE\1\0\0\0"
    with pytest.raises(DlcError, match=r"there is no section GEOM \(geometries\)"):
        read(memoryview(bytes(repaired(missing))), "x.s2t")
    twice = bytearray(data)
    twice[places[b"HYPR"] : places[b"HYPR"] + 6] = b"GEOM\3\0"
    with pytest.raises(DlcError, match="two sections GEOM"):
        read(memoryview(bytes(repaired(twice))), "x.s2t")


def test_programs_that_the_format_does_not_hold_are_refused() -> None:
    program = forward_conv()
    deep = replace(program.tensors[0], shape=(1,) * 9)
    with pytest.raises(DlcError, match="has 9 dimensions; section TENS holds 8"):
        write(replace(program, tensors=(deep,)))
    with pytest.raises(DlcError, match="section STOR"):
        write(replace(program, storages=(Storage(Arena.HOST, -1, 1, 0, 1),)))
    with pytest.raises(DlcError, match="300 cores"):
        write(replace(program, target=Target(cores=300)))
    with pytest.raises(DlcError, match="65536 hyper-parameters; section HYPR holds 65535"):
        write(replace(program, hypers=(Hyper(),) * 65536))


def test_a_refusal_as_it_is_shown() -> None:
    data = bytearray(write(forward_conv()))
    offset = next(o for _, name, o, _ in sections(data) if name == b"TENS")
    struct.pack_into("<I", data, offset + 4, 77)
    with pytest.raises(DlcError) as refused:
        read(memoryview(bytes(repaired(data))), "model.s2t")
    assert render(refused.value.diagnostics[0]).splitlines() == [
        'error[bad-s2t]: section TENS: tensor 0 "x": storage 77 does not exist; there are 5',
        f"  from  model.s2t: byte {offset + 4}",
        "  help  the file is damaged or was not made by dlc; build it again",
    ]
