"""A sealed entry is what was sealed, or Damaged."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.cache.envelope import HEADER_SIZE, Damaged, Table, seal, unseal

NAME = hashlib.sha256(b"name").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


@given(st.binary(max_size=200), st.sampled_from(["record", "stat"]))
def test_opens_what_was_sealed(payload: bytes, table: Table) -> None:
    assert unseal(seal(table, NAME, payload), table, NAME) == payload


@given(st.binary(max_size=60), st.data())
def test_any_changed_bit_is_found(payload: bytes, data: st.DataObject) -> None:
    sealed = bytearray(seal("record", NAME, payload))
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Damaged):
        unseal(bytes(sealed), "record", NAME)


def test_every_bit_of_one_entry() -> None:
    sealed = seal("record", NAME, b"payload")
    for bit in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            unseal(bytes(changed), "record", NAME)


@given(st.binary(max_size=60), st.integers(0, 200), st.binary(min_size=1, max_size=9))
def test_truncation_and_growth_are_found(payload: bytes, keep: int, more: bytes) -> None:
    sealed = seal("stat", NAME, payload)
    for changed in (sealed[: min(keep, len(sealed) - 1)], sealed + more):
        with pytest.raises(Damaged):
            unseal(changed, "stat", NAME)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(Damaged):
        unseal(raw, "record", NAME)


def test_an_entry_opens_only_under_its_own_name_and_table() -> None:
    sealed = seal("record", NAME, b"x")
    for table, name in (("record", OTHER), ("stat", NAME), ("object", NAME)):
        with pytest.raises(Damaged):
            unseal(sealed, table, name)  # type: ignore[arg-type]


def test_an_object_must_be_filed_under_its_content() -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    assert unseal(seal("object", digest, b"x"), "object", digest) == b"x"
    with pytest.raises(Damaged, match="its own SHA-256"):
        unseal(seal("object", NAME, b"x"), "object", NAME)


def test_payload_keeps_its_alignment() -> None:
    assert HEADER_SIZE % 64 == 0
