"""LAD rows, heads and trailers: both ways, and what damage does."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.crc import crc64
from dlc_backend_s2train.frames.convert import conversion, receive, send
from dlc_backend_s2train.frames.frame import (
    FrameFlag,
    Head,
    LadRow,
    Memory,
    decode,
    decode_frame,
    decode_frames,
    encode_frame,
    encode_rows,
)
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError


@st.composite
def lad_rows(draw: st.DrawFn) -> LadRow:
    """Any row that there is: idle lanes have no address, and zeros behind what they have."""
    lengths = tuple(draw(st.integers(0, 9)) for _ in range(4))
    addresses = tuple(draw(st.integers(0, 2**32 - 1)) if length else 0 for length in lengths)
    data = np.zeros((4, max(lengths)), np.uint16)
    for lane, length in enumerate(lengths):
        data[lane, :length] = draw(st.lists(st.integers(0, 65535), min_size=length, max_size=length))
    return LadRow(lengths, addresses, data)


@given(st.lists(lad_rows(), max_size=5))
def test_lad_rows_both_ways(rows: list[LadRow]) -> None:
    body = encode_rows(rows)
    assert len(body) == sum(24 + 8 * max(row.lengths) for row in rows)
    again, size = decode(body)
    assert size == len(body)
    assert [(row.lengths, row.addresses, row.data.tolist()) for row in again] == [
        (row.lengths, row.addresses, row.data.tolist()) for row in rows
    ]


def test_layout_of_a_lad_row() -> None:
    data = np.array([[0x1122], [0x3344], [0], [0]], np.uint16)
    body = encode_rows([LadRow((1, 1, 0, 0), (0xB0000001, 0xB0010002, 0, 0), data)])
    assert body.hex(" ", 8) == "0001000100000000 b000b00100000000 0001000200000000 2211443300000000"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0001 0000 0000 0000" + "00" * 16, "0 bytes are left, but a LAD row of 1 beats needs 8"),
        ("0001 0000 0000 0000" + "00" * 12, "20 bytes are left, but a LAD row begins with 24"),
        ("4001 0000 0000 0000" + "00" * 16, "16385 elements, but the longest has 16384"),
        ("0000 0000 0000 0000" + "b000" + "00" * 14, "lane 0 is idle, but its address is 0xb0000000"),
        ("0001 0000 0000 0000" + "00" * 16 + "0000 0001 0000 0000", "lane 1 has 0 elements, but not zeros behind"),
    ],
)
def test_damaged_lad_rows(row: str, message: str) -> None:
    with pytest.raises(DlcError, match=message) as caught:
        decode(bytes(24) + bytes.fromhex(row), source="x.s2t", base=100)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "bad-frame"
    assert diagnostic.location is not None
    assert (diagnostic.location.source, diagnostic.location.byte) == ("x.s2t", 124)


def test_layout_of_a_frame() -> None:
    body = bytes(24)
    head = Head(0x01020304, Stage.BACKWARD, Memory.WM, 18, FrameFlag.PAIRED | FrameFlag.LAST)
    frame = encode_frame(head, 1, body)
    assert frame[:16] == b"S2TF" + bytes([1, 2, 3, 4, 0, 1, 1, 1, 18, 6, 0, 0])
    assert struct.unpack(">Q", frame[16:24]) == (crc64(frame[:16]),)
    assert frame[24:48] == body
    assert struct.unpack(">Q", frame[48:]) == (crc64(body),)
    assert decode_frame(memoryview(frame)).head == head


def test_beats_of_long_frames() -> None:
    length = 1 << 14
    data = np.ones((4, length), np.uint16)
    row = encode_rows([LadRow((length,) * 4, (1, 2, 3, 4), data)])
    frame = encode_frame(Head(0, Stage.FORWARD, Memory.FM), 9, row * 9)
    # 9 * (3 + 16384) beats are 2 * 65536 and a rest.
    assert frame[14:16] == b"\0\2"
    assert decode_frame(memoryview(frame)).size == len(frame) == 9 * len(row) + 32


def test_heads_count_no_further() -> None:
    with pytest.raises(DlcError, match="65536 LAD rows"):
        encode_frame(Head(0, Stage.FORWARD, Memory.FM), 65536, b"")


CON = conversion(Opcode.CONV, Stage.FORWARD, Geometry(2, 2, 5, 4, 4, 2, 2, 3, 3, (2, 2), (1, 1, 1, 1)))
FEATURES = np.arange(1, 65, dtype=np.uint16).reshape(2, 2, 4, 4)
KERNELS = np.arange(1, 91, dtype=np.uint16).reshape(5, 2, 3, 3)
STREAM = b"".join(send(CON, FEATURES, KERNELS))
FRAMES = list(decode_frames(STREAM))


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    for bit in range(8 * len(STREAM)):
        damaged = bytearray(STREAM)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DlcError) as caught:
            list(decode_frames(bytes(damaged), "x.s2t"))
        location = caught.value.diagnostics[0].location
        assert location is not None
        # The message leads to the frame at fault, or into it.
        assert location.byte >= max(frame.offset for frame in FRAMES if 8 * frame.offset <= bit)
    ends = {frame.offset for frame in FRAMES}
    for end in set(range(1, len(STREAM))) - ends:
        with pytest.raises(DlcError):
            list(decode_frames(STREAM[:end]))


@settings(max_examples=200)
@given(st.binary(max_size=200), st.integers(0, len(STREAM)), st.integers(0, 4))
def test_arbitrary_bytes_never_crash(junk: bytes, at: int, count: int) -> None:
    data = STREAM[:at] + junk + STREAM[at + count :]
    try:
        found = list(decode_frames(data))
    except DlcError as problem:
        assert {diagnostic.code for diagnostic in problem.diagnostics} == {"bad-frame"}
    else:
        assert sum(frame.size for frame in found) == len(data)


def test_frames_are_those_of_the_instruction() -> None:
    found = receive(CON, FRAMES)
    np.testing.assert_array_equal(found[Memory.FM], FEATURES)
    np.testing.assert_array_equal(found[Memory.WM], KERNELS)


@pytest.mark.parametrize("order", [[1, 0, 2], [0, 1], [0, 1, 2, 2]])
def test_other_frames_than_those_of_the_instruction(order: list[int]) -> None:
    with pytest.raises(DlcError, match=r"expected Head|for an instruction that sends"):
        receive(CON, [FRAMES[place] for place in order])


def test_operands_of_another_size() -> None:
    with pytest.raises(DlcError, match="63 elements"):
        list(send(CON, FEATURES.ravel()[:63], KERNELS))


def test_random_damage_with_right_checksums_is_refused_or_read() -> None:
    random.seed(3)
    for _ in range(300):
        frame = random.choice(FRAMES)
        data = bytearray(STREAM[frame.offset : frame.offset + frame.size])
        data[random.randrange(8, len(data) - 8)] ^= 1 << random.randrange(8)
        data[16:24] = struct.pack(">Q", crc64(data[:16]))
        data[-8:] = struct.pack(">Q", crc64(data[24:-8]))
        others = [other for other in FRAMES if other is not frame]
        try:
            decoded = decode_frame(memoryview(bytes(data)))
            receive(CON, sorted([*others, decoded], key=lambda other: other.head.number))
        except DlcError as problem:
            assert problem.diagnostics[0].code == "bad-frame"
