"""Words of version 2: every legal instruction there and back; everything else refused with its place."""

import pytest
from dlc_backend_s2train.codes import Flag, Splitting, Stage
from dlc_backend_s2train.isa import words as v2
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Instruction
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError, Location
from tests.backend_s2train.isa_words import instructions

CONV = Instruction(
    Opcode.CONV,
    Stage.BACKWARD,
    Flag.ADD | Flag.MASK_READ | Flag.BN_BACKWARD,
    Splitting.FIRST,
    geometry=0x0102,
    hyper=0x0304,
    operands={"src0": 1, "src1": 2, "dst0": 3, "dst1": 4, "mask": 5, "bn0": 7, "res": 9},
    wait=5,
    signal=9,
    cores=0x0F,
)


def sealed(body: bytes) -> bytes:
    return body[:30] + v2.crc16(body[:30]).to_bytes(2, "little")


def patched(byte: int, value: int) -> bytes:
    body = bytearray(v2.encode(CONV))
    body[byte] = value
    return sealed(bytes(body))


def test_the_checksum_is_the_standard_one() -> None:
    assert v2.crc16(b"123456789") == 0x29B1
    assert v2.crc16(b"") == 0xFFFF


def test_the_fields_lie_where_the_specification_says() -> None:
    data = v2.encode(CONV)
    assert data[0] == 1
    assert data[1] == 0b00_01_00_01  # fp16, first, no sums, backward
    assert data[2:4] == (1 << 2 | 1 << 3 | 1 << 6).to_bytes(2, "little")
    assert data[4:8] == bytes([2, 1, 4, 3])
    operands = [int.from_bytes(data[at : at + 2], "little") for at in range(8, 28, 2)]
    assert operands == [1, 2, 3, 4, 5, 0xFFFF, 7, 0xFFFF, 9, 0xFFFF]
    assert data[28] == 5 | 9 << 4
    assert data[29] == 0x0F
    assert len(data) == 32


@given(instructions())
def test_every_legal_instruction_encodes_and_decodes(instruction: Instruction) -> None:
    data = v2.encode(instruction)
    assert len(data) == 32
    assert v2.decode(data) == instruction


@given(instructions(), st.integers(0, 255))
def test_a_flipped_bit_is_found_by_the_checksum(instruction: Instruction, bit: int) -> None:
    flipped = int.from_bytes(v2.encode(instruction), "little") ^ 1 << bit
    with pytest.raises(DlcError, match="checksum"):
        v2.decode(flipped.to_bytes(32, "little"))


@given(instructions(), st.integers(0, 239))
def test_a_flipped_bit_under_a_right_checksum_is_another_or_none(instruction: Instruction, bit: int) -> None:
    flipped = sealed((int.from_bytes(v2.encode(instruction), "little") ^ 1 << bit).to_bytes(32, "little"))
    try:
        found = v2.decode(flipped, Location("net.s2t", byte=64))
    except DlcError as refused:
        (diagnostic,) = refused.diagnostics
        assert diagnostic.code in ("bad-word", "bad-instruction")
        assert diagnostic.location is not None
        assert 64 <= diagnostic.location.byte < 96
    else:
        assert found != instruction
        assert v2.encode(found) == flipped


@given(st.binary(min_size=30, max_size=30))
def test_any_bytes_are_an_instruction_or_refused(body: bytes) -> None:
    data = sealed(body)
    try:
        found = v2.decode(data)
    except DlcError as refused:
        assert refused.diagnostics[0].code in ("bad-word", "bad-instruction")
    else:
        assert v2.encode(found) == data
        access(found)


REFUSED = [
    (patched(0, 0x09), "bad-word", 64, "opcode at bit 0 is 00001001, which is reserved"),
    (patched(1, 0x41), "bad-word", 65, "dtype at bit 14 is 01, which is reserved"),
    (patched(2, 0xFF), "bad-instruction", 64, "it has no flag relu"),
    (patched(29, 0x00), "bad-instruction", 64, "no core takes part"),
    (v2.encode(CONV)[:31] + b"\0", "checksum", 94, "is stored"),
]


@pytest.mark.parametrize(("data", "code", "byte", "reason"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_is_no_word_is_refused_at_its_byte(data: bytes, code: str, byte: int, reason: str) -> None:
    with pytest.raises(DlcError) as caught:
        v2.decode(data, Location("net.s2t", byte=64))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert diagnostic.location == Location("net.s2t", byte=byte)
    assert reason in diagnostic.message


def test_programs_are_words_one_behind_the_other() -> None:
    program = (CONV, Instruction(Opcode.END))
    data = v2.encode_program(program)
    assert v2.decode_program(data, "net.s2t") == program
    with pytest.raises(DlcError, match=r"net.s2t: byte 32"):
        v2.decode_program(data[:-1], "net.s2t")
    with pytest.raises(DlcError, match=r"src1 is missing\n  from  node \"instruction 1\""):
        v2.encode_program([CONV, Instruction(Opcode.CONV, operands={"src0": 0, "dst0": 1})])
