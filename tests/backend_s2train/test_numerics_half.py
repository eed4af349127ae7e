"""Bytes and values: against Python's own struct module, and bit by bit."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from dlc_backend_s2train.codes import Element
from dlc_backend_s2train.simulator.operands import OperandError, decode, encode, rounded
from hypothesis import given
from hypothesis import strategies as st

EVERY = np.arange(1 << 16, dtype="<u2")


def test_every_fp16_is_read_as_struct_reads_it() -> None:
    values = decode(EVERY.view(np.uint8), (1 << 16,), Element.FP16)
    expected = np.array(struct.unpack("<65536e", EVERY.tobytes()), np.float32)
    np.testing.assert_array_equal(values, expected)
    assert values.dtype == np.float32


def test_every_fp16_is_written_as_it_was_and_every_nan_as_one() -> None:
    values = decode(EVERY.view(np.uint8), (1 << 16,), Element.FP16)
    expected = np.where(np.isnan(values), np.uint16(0x7E00), EVERY)
    np.testing.assert_array_equal(encode(values, Element.FP16).view("<u2"), expected)
    assert np.isnan(values).sum() == 2 * 1023


def half_of(x: float) -> int:
    """The bits that struct rounds to; it refuses what becomes infinite."""
    if math.isnan(x):
        return 0x7E00
    try:
        return int(struct.unpack("<H", struct.pack("<e", x))[0])
    except OverflowError:
        return 0x7C00 if x > 0 else 0xFC00


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_rounding_is_that_of_struct(values: list[float]) -> None:
    stored = encode(np.array(values, np.float32), Element.FP16).view("<u2")
    assert stored.tolist() == [half_of(x) for x in values]


@given(st.integers(0, 0x7BFE), st.booleans(), st.sampled_from([-1, 0, 1]))
def test_ties_go_to_even_and_their_neighbours_do_not(bits: int, negative: bool, nudge: int) -> None:
    low, high = struct.unpack("<2e", struct.pack("<2H", bits, bits + 1))
    middle = np.float32((low + high) / 2)
    x = np.nextafter(middle, np.float32(nudge * math.inf)) if nudge else middle
    expected = bits + (1 if nudge > 0 or (nudge == 0 and bits % 2) else 0)
    found = int(encode(np.array([-x if negative else x], np.float32), Element.FP16).view("<u2")[0])
    assert found == expected | (0x8000 if negative else 0)


def test_what_is_too_large_is_infinite_and_subnormals_stay() -> None:
    x = np.array([65519.0, 65520.0, -1e30, 2.0**-24, 2.0**-25, 3 * 2.0**-26], np.float32)
    assert encode(x, Element.FP16).view("<u2").tolist() == [0x7BFF, 0x7C00, 0xFC00, 1, 0, 1]
    assert rounded(x).tolist() == [65504.0, math.inf, -math.inf, 2.0**-24, 0.0, 2.0**-24]


def test_fp32_is_kept_but_for_the_bits_of_nan() -> None:
    words = np.array([0x7FC00001, 0xFFC00000, 0x7F800000, 0x00000001, 0x80000000], "<u4")
    stored = encode(words.view("<f4"), Element.FP32).view("<u4")
    assert stored.tolist() == [0x7FC00000, 0x7FC00000, 0x7F800000, 1, 0x80000000]


def test_bits_lie_lowest_first() -> None:
    bits = np.array([True, False, False, True, False, False, False, False, False, True])
    assert encode(bits, Element.BIT).tolist() == [0b1001, 0b10]
    assert encode(np.array([1, 2, 3, 0, 2], np.uint8), Element.PTR2).tolist() == [0b00111001, 0b10]
    assert encode(np.array([1, 15, 7], np.uint8), Element.PTR4).tolist() == [0xF1, 0x07]
    assert encode(np.array([1, -2]), Element.INT32).tolist() == [1, 0, 0, 0, 254, 255, 255, 255]


@given(st.data(), st.sampled_from([Element.BIT, Element.PTR2, Element.PTR4]), st.integers(1, 40))
def test_small_elements_come_back(data: st.DataObject, element: Element, count: int) -> None:
    numbers = data.draw(st.lists(st.integers(0, (1 << element.bits) - 1), min_size=count, max_size=count))
    values = np.array(numbers, np.bool_ if element is Element.BIT else np.uint8)
    stored = encode(values, element)
    assert stored.size == -(-count * element.bits // 8)
    # Element k is in bits k·b … of the bytes taken as one little-endian number.
    whole = int.from_bytes(stored.tobytes(), "little")
    assert [whole >> k * element.bits & (1 << element.bits) - 1 for k in range(count)] == numbers
    assert whole >> count * element.bits == 0
    np.testing.assert_array_equal(decode(stored, (count,), element), values)


@pytest.mark.parametrize(
    ("values", "element"),
    [
        (np.array([4], np.uint8), Element.PTR2),
        (np.array([16], np.uint8), Element.PTR4),
        (np.array([0.5], np.float32), Element.BIT),
        (np.array([True]), Element.FP16),
        (np.array([1 << 31]), Element.INT32),
        (np.array([1.0], np.float32), Element.INT32),
        (np.array([3]), Element.FP32),
    ],
)
def test_what_an_element_cannot_hold_is_refused(values: np.ndarray, element: Element) -> None:
    with pytest.raises(OperandError):
        encode(values, element)
