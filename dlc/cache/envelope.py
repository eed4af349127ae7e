"""The frame around every stored payload: damage and mix-ups are found on read, never passed on.

    offset  0  8 bytes   magic  b"dlc\\xf0\\x9f\\x92\\xbe\\n"
            8  u32       version of this layout
           12  u32       table (1 record, 2 object, 3 stat)
           16  u64       payload length in bytes
           24  32 bytes  name the entry is filed under (so a payload found under another name is refused)
           56  32 bytes  SHA-256 of the payload
           88  40 bytes  zero
          128  payload   (an offset of 128 keeps a memory-mapped payload 64-byte aligned)

All integers are little endian. For the table `object` the name must equal the payload's SHA-256.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Table: TypeAlias = Literal["record", "object", "stat"]

TABLES: Final[dict[Table, int]] = {"record": 1, "object": 2, "stat": 3}
_BY_NUMBER: Final[dict[int, Table]] = {number: table for table, number in TABLES.items()}
HEADER_SIZE: Final = 128
_MAGIC: Final = b"dlc\xf0\x9f\x92\xbe\n"
_VERSION: Final = 1
_LAYOUT: Final = struct.Struct("<8sIIQ32s32s40s")
assert _LAYOUT.size == HEADER_SIZE


class Damaged(ValueError):
    """An entry that is not what its writer wrote; the text says in which way."""


@dataclass(frozen=True)
class Header:
    """What a checked header promises about the payload behind it."""

    length: int  # bytes
    sha256: str  # 64 hex digits

    def check(self, length: int, sha256: str) -> None:
        """Raises Damaged unless the payload has the promised length and digest."""
        if length != self.length:
            raise Damaged(f"payload has {length} bytes, header says {self.length}")
        if sha256 != self.sha256:
            raise Damaged(f"payload has SHA-256 {sha256[:16]}…, header says {self.sha256[:16]}…")


def pack_header(table: Table, name: str, length: int, sha256: str) -> bytes:
    """The 128 header bytes. `name` and `sha256` are 64 hex digits."""
    return _LAYOUT.pack(_MAGIC, _VERSION, TABLES[table], length, bytes.fromhex(name), bytes.fromhex(sha256), bytes(40))


def unpack_header(raw: bytes, table: Table, name: str) -> Header:
    """Check the first 128 bytes of an entry expected in `table` under `name`. Raises Damaged."""
    kind, filed, header = read_header(raw)
    if kind != table or filed != name:
        raise Damaged("entry belongs to another name or table")
    return header


def read_header(raw: bytes) -> tuple[Table, str, Header]:
    """Table and name of an entry that are not known before, and its header. Raises Damaged."""
    if len(raw) < HEADER_SIZE:
        raise Damaged(f"entry has {len(raw)} bytes, a header has {HEADER_SIZE}")
    magic, version, kind, length, filed, digest, rest = _LAYOUT.unpack(raw[:HEADER_SIZE])
    table = _BY_NUMBER.get(kind)
    if magic != _MAGIC or version != _VERSION or any(rest) or table is None:
        raise Damaged("not a dlc cache entry of this version")
    if table == "object" and filed != digest:
        raise Damaged("object is not filed under its own SHA-256")
    return table, filed.hex(), Header(length, digest.hex())


def seal(table: Table, name: str, payload: bytes | memoryview) -> bytes:
    """Header and payload in one piece."""
    digest = hashlib.sha256(payload).hexdigest()
    return pack_header(table, name, len(payload), digest) + bytes(payload)


def unseal(sealed: bytes, table: Table, name: str) -> bytes:
    """The payload of `seal(table, name, payload)`. Raises Damaged for anything else."""
    header = unpack_header(sealed, table, name)
    payload = sealed[HEADER_SIZE:]
    header.check(len(payload), hashlib.sha256(payload).hexdigest())
    return payload
