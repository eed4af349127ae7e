"""Checksums against their published check values, plain loops, and what xz writes."""

import lzma

from dlc_backend_s2train.crc import crc16, crc32c, crc64
from hypothesis import given
from hypothesis import strategies as st


def reflected(data: bytes, polynomial: int, bits: int) -> int:
    """The definition, bit by bit."""
    state = (1 << bits) - 1
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (polynomial if state & 1 else 0)
    return state ^ ((1 << bits) - 1)


def test_the_check_values_of_the_catalogue() -> None:
    assert crc64(b"123456789") == 0x995DC9BBDF1939FA
    assert crc32c(b"123456789") == 0xE3069283
    assert crc16(b"123456789") == 0x29B1
    assert (crc64(b""), crc32c(b""), crc16(b"")) == (0, 0, 0xFFFF)


def test_crc32c_of_the_iscsi_standard() -> None:
    # RFC 3720, appendix B.4.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@given(st.binary(max_size=64), st.integers(1, 60), st.data())
def test_long_messages_are_those_of_the_definition(piece: bytes, times: int, data: st.DataObject) -> None:
    message = piece * times
    want64, want32 = reflected(message, 0xC96C5795D7870F42, 64), reflected(message, 0x82F63B78, 32)
    assert crc64(message) == want64
    assert crc32c(message) == want32
    cut = data.draw(st.integers(0, len(message)))
    assert crc64(message[cut:], crc64(message[:cut])) == want64
    assert crc32c(memoryview(message)[cut:], crc32c(bytearray(message[:cut]))) == want32
    assert crc16(message[cut:], crc16(message[:cut])) == crc16(message)


def test_megabytes_are_those_of_xz() -> None:
    message = b"".join(i.to_bytes(3, "big") for i in range(400_001))
    packed = lzma.compress(message, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64)
    # A stream ends with its index, whose size stands in its footer; the block's check stands before the index.
    index = (int.from_bytes(packed[-8:-4], "little") + 1) * 4
    stored = packed[-12 - index - 8 : -12 - index]
    assert crc64(message) == int.from_bytes(stored, "little")
