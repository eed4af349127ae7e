"""Checksums of the plugin's formats: CRC-64/XZ, CRC-32C and CRC-16/CCITT-FALSE, each continued like `zlib.crc32`.

A reflected CRC is linear: a word of the message may be replaced by what it leaves behind d words later. So a long
message is folded row upon row, thousands of words to a step of numpy, instead of byte by byte. The method is that of
V. Gopal et al., "Fast CRC Computation for Generic Polynomials", with tables in place of carry-less products.
"""

from __future__ import annotations

import binascii
from functools import cache

import numpy as np
from numpy.typing import NDArray

_WORD = np.dtype("<u8")
Words = NDArray[np.uint64]

_CRC64 = (64, 0xC96C5795D7870F42)
"""Bits, and 0x42F0E1EBA9EA3693 reflected."""
_CRC32C = (32, 0x82F63B78)
"""Bits, and 0x1EDC6F41 reflected."""

_LONGEST_ROW = 1 << 14
"""Words of a row: more steps of numpy below, more misses of the cache above."""
_SHORT = 1024
"""Bytes that a plain loop is faster for."""
_LAST_WORDS = 16
"""Words that are left to the plain loop in the end."""


def crc64(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """CRC-64/XZ of `data`, contiguous; of "123456789" it is 0x995DC9BBDF1939FA. `value` is that of what precedes."""
    return _reflected(_CRC64, data, value)


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of `data`, contiguous; of "123456789" it is 0xE3069283."""
    return _reflected(_CRC32C, data, value)


def crc16(data: bytes | bytearray | memoryview, value: int = 0xFFFF) -> int:
    """CRC-16/CCITT-FALSE of `data`, contiguous; of "123456789" it is 0x29B1."""
    return binascii.crc_hqx(data, value)


def _reflected(kind: tuple[int, int], data: bytes | bytearray | memoryview, value: int) -> int:
    ones = (1 << kind[0]) - 1
    state = value ^ ones
    view = memoryview(data).cast("B")
    head = len(view) if len(view) < _SHORT else len(view) % 8
    state = _loop(kind, view[:head], state)
    if head < len(view):
        state = _loop(kind, _fold(kind, np.frombuffer(view[head:], _WORD), state).tobytes(), 0)
    return state ^ ones


def _loop(kind: tuple[int, int], data: memoryview | bytes, state: int) -> int:
    """The state after `data` that `state` precedes."""
    table = _bytes_table(kind)
    for byte in data:
        state = table[(state ^ byte) & 255] ^ (state >> 8)
    return state


def _fold(kind: tuple[int, int], words: Words, state: int) -> Words:
    """Few words that leave, behind a state of zero, the state that `words` leave behind `state`."""
    length = min(_LONGEST_ROW, 1 << (len(words).bit_length() - 1))
    # Zeros before a message leave a state of zero as it is, so the first row may be filled up with them.
    first = (len(words) - 1) % length + 1
    row = np.zeros(length, np.uint64)
    row[length - first :] = words[:first]
    row[length - first] ^= np.uint64(state)
    tables = _distance_table(kind, length)
    for begin in range(first, len(words), length):
        row = _replace(tables, row)
        row ^= words[begin : begin + length]
    while length > _LAST_WORDS:
        length //= 2
        row = _replace(_distance_table(kind, length), row[:length]) ^ row[length:]
    return row.astype(_WORD, copy=False)


def _replace(tables: Words, words: Words) -> Words:
    """What each of `words` leaves behind at the distance of `tables`."""
    octets = words.astype(_WORD, copy=False).view(np.uint8).reshape(*words.shape, 8)
    result = tables[0].take(octets[..., 0])
    for place in range(1, 8):
        result ^= tables[place].take(octets[..., place])
    return result


@cache
def _bytes_table(kind: tuple[int, int]) -> list[int]:
    """The state that a byte leaves behind, per byte."""
    table = np.arange(256, dtype=np.uint64)
    one = np.uint64(1)
    for _ in range(8):
        table = np.where(table & one, (table >> one) ^ np.uint64(kind[1]), table >> one)
    return [int(entry) for entry in table]


@cache
def _distance_table(kind: tuple[int, int], words: int) -> Words:
    """[8, 256]: what byte b at place i of a word leaves behind `words`, a power of two, words later."""
    if words > 1:
        half = _distance_table(kind, words // 2)
        return _replace(half, half)
    table = np.array(_bytes_table(kind), np.uint64)
    rows = [table]
    for _ in range(7):
        rows.append(table[rows[-1] & np.uint64(255)] ^ (rows[-1] >> np.uint64(8)))
    return np.stack(rows[::-1])
