"""Sections of a `.s2t` file: which bytes are which section, and the records in them.

Header and table of sections are all checked before any section is used. Records are read with their names; `exists` and
`known` are what a reader asks of each number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dlc.base.diagnostics import DlcError, Location, error
from dlc_backend_s2train.codes import Arena, Element, Role
from dlc_backend_s2train.container.layout import (
    ALIGN,
    ARCHITECTURE,
    ENTRY,
    HEADER,
    HEADER_CHECKED,
    MAGIC,
    MAJOR,
    MUST_UNDERSTAND,
    SECTION_OF,
    SECTIONS,
    WGHT,
)
from dlc_backend_s2train.container.record import Record, unpack
from dlc_backend_s2train.crc import crc32c, crc64
from dlc_backend_s2train.program import Target


@dataclass(frozen=True)
class Span:
    """A section's bytes."""

    file: str
    """Name of the file, for messages."""
    fourcc: str
    data: memoryview
    offset: int
    """In the file."""
    count: int

    def refuse(self, at: int, message: str, help: str = "") -> DlcError:
        """The error of something `at` bytes into the section."""
        return refusal(self.file, self.offset + at, f"section {self.fourcc}: {message}", help)


@dataclass(frozen=True)
class Envelope:
    """What the header and the table say."""

    target: Target
    sections: Mapping[str, Span]
    """Those of this version of the format, and others that may be skipped."""


def refusal(file: str, at: int, message: str, help: str = "") -> DlcError:
    """The error of something at byte `at` of a file."""
    return error(
        "bad-s2t",
        message,
        location=Location(file, byte=at),
        help=help or "the file is damaged or was not made by dlc; build it again",
    )


def open_envelope(data: memoryview, file: str) -> Envelope:
    """Check header, table and the place and checksum of every section.

    Raises:
        DlcError: "bad-s2t", with the byte and the reason.
    """
    header = _header(data, file)
    count = header["sections"]
    table = _piece(data, file, header["table_offset"], count * ENTRY.size, HEADER.offsets["table_offset"])
    if crc64(table) != header["table_crc"]:
        raise refusal(file, HEADER.offsets["table_crc"], _checksum("the table", header["table_crc"], crc64(table), 16))
    start = header["table_offset"]
    found: dict[str, Span] = {}
    sums: list[tuple[str, int, int]] = []
    for at in range(start, start + len(table), ENTRY.size):
        entry: dict[str, Any] = unpack(ENTRY, data, at)
        span = _section(data, file, entry, at)
        if span.fourcc in found:
            raise refusal(file, at, f"there are two sections {span.fourcc}")
        found[span.fourcc] = span
        sums.append((span.fourcc, entry["crc"], at + ENTRY.offsets["crc"]))
    _gaps(data, file, found, start + len(table))
    # Only now: sections that overlap would be summed over and over.
    for fourcc, said, at in sums:
        if (made := crc64(found[fourcc].data)) != said:
            raise refusal(file, at, _checksum(f"section {fourcc}", said, made, 16))
    for known in SECTIONS:
        if known.needed and known.fourcc not in found:
            raise refusal(file, start, f"there is no section {known.fourcc} ({known.meaning})")
    target = Target(*(header[name] for name in ("cores", "columns", "rows", "lanes", "weight_bytes")))
    return Envelope(target, found)


_AGAIN = "build the model again, or use the dlc that made the file"


def _header(data: memoryview, file: str) -> dict[str, Any]:
    if not len(data):
        raise refusal(file, 0, "this is no .s2t file: it is empty (0 bytes)")
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise refusal(file, 0, f"this is no .s2t file: it begins with {bytes(data[: len(MAGIC)])!r}, not {MAGIC!r}")
    if len(data) < HEADER.size:
        raise refusal(file, len(data), f"the file ends after {len(data)} bytes; the header alone has {HEADER.size}")
    header: dict[str, Any] = unpack(HEADER, data)
    at = HEADER.offsets
    if header["major"] != MAJOR:
        versions = f"the file has version {header['major']}.{header['minor']} of the format, this dlc reads {MAJOR}.x"
        raise refusal(file, at["major"], versions, _AGAIN)
    made = crc32c(data[:HEADER_CHECKED])
    if made != header["header_crc"]:
        raise refusal(file, at["header_crc"], _checksum("the header", header["header_crc"], made, 8))
    wanted = {"header_size": HEADER.size, "flags": 0, "architecture": ARCHITECTURE, "table_offset": HEADER.size}
    wanted["reserved"] = 0
    for name, value in wanted.items():
        if header[name] != value:
            raise refusal(file, at[name], f"{name.replace('_', ' ')} is {header[name]}; it should be {value}")
    if header["file_size"] != len(data):
        sizes = f"the file has {len(data)} bytes, but its header says {header['file_size']}"
        raise refusal(file, at["file_size"], sizes, "was the file copied to its end?")
    for name in ("cores", "columns", "rows", "lanes", "weight_bytes"):
        if not header[name]:
            raise refusal(file, at[name], f"the machine has no {name.replace('_', ' ')}")
    if header["sections"] > ENTRY.limit:
        message = f"the table has {header['sections']} sections; {ENTRY.limit} are the most"
        raise refusal(file, at["sections"], message)
    return header


def _section(data: memoryview, file: str, entry: dict[str, Any], at: int) -> Span:
    """The bytes of one entry of the table, which lies at byte `at`."""
    fourcc = entry["fourcc"].decode("latin-1")
    where = {name: at + offset for name, offset in ENTRY.offsets.items()}
    if not (fourcc.isascii() and fourcc.isalnum()):
        raise refusal(file, where["fourcc"], f"{entry['fourcc']!r} is no section's name: four letters or digits")
    known = SECTION_OF.get(fourcc)
    title = f"section {fourcc}"
    if entry["flags"] & ~MUST_UNDERSTAND:
        raise refusal(file, where["flags"], f"{title} has flags 0x{entry['flags']:04x}; only bit 0 is defined")
    newer = "the file was made by a newer dlc; use that"
    if entry["flags"] & MUST_UNDERSTAND and not known:
        raise refusal(file, where["fourcc"], f"{title} has to be understood, and is unknown", newer)
    if known and entry["flags"] != (wanted := MUST_UNDERSTAND if known.must else 0):
        raise refusal(file, where["flags"], f"{title} has flags 0x{entry['flags']:04x}; it should have 0x{wanted:04x}")
    if known and entry["version"] != known.version:
        message = f"{title} has version {entry['version']}; this dlc reads {known.version}"
        raise refusal(file, where["version"], message, newer if entry["version"] > known.version else _AGAIN)
    if entry["alignment"] != ALIGN or entry["offset"] % ALIGN:
        message = f"{title} begins at {entry['offset']} and is aligned to {entry['alignment']}; it should be to {ALIGN}"
        raise refusal(file, where["offset"], message)
    piece = _piece(data, file, entry["offset"], entry["size"], where["offset"])
    if known:
        _count(file, entry, where["count"])
    return Span(file, fourcc, piece, entry["offset"], entry["count"])


def _count(file: str, entry: dict[str, Any], at: int) -> None:
    """Raises DlcError where a section is too short for its records, or has more than readers take memory for."""
    known = SECTION_OF[entry["fourcc"].decode("ascii")]
    title, count, size = f"section {known.fourcc}", entry["count"], entry["size"]
    if known.record:
        least, limit, exact = known.record.size * count, known.record.limit, False
    elif known.word > 1:
        least, limit, exact = known.word * count, known.limit, True
    else:
        least, limit, exact = size, 1, count == 1
        if not exact:
            raise refusal(file, at, f"{title} has the count {count}; it should be 1")
        if size > known.limit > 1:
            raise refusal(file, at, f"{title} has {size} bytes; {known.limit} are the most")
    if count > limit:
        raise refusal(file, at, f"{title} has {count} records; {limit} are the most")
    if size < least or (exact and size != least):
        raise refusal(file, at, f"{title} has {size} bytes; its {count} records take {least}")


def _piece(data: memoryview, file: str, offset: int, size: int, at: int) -> memoryview:
    """`size` bytes at `offset`, which the file says at byte `at`."""
    if offset + size > len(data):
        message = f"bytes {offset} to {offset + size} are named, but the file ends after {len(data)}"
        raise refusal(file, at, message, "was the file copied to its end?")
    return data[offset : offset + size]


def _gaps(data: memoryview, file: str, found: Mapping[str, Span], end: int) -> None:
    """Raises DlcError where sections overlap, are in another order than the table's, or not only zeros lie between."""
    last = "the table"
    for span in found.values():
        if span.offset < end:
            message = f"section {span.fourcc} begins at byte {span.offset}, before {last} ends at {end}"
            raise refusal(file, span.offset, message)
        _zeros(data, file, end, span.offset)
        end, last = span.offset + len(span.data), f"section {span.fourcc}"
    _zeros(data, file, end, len(data))


def _zeros(data: memoryview, file: str, begin: int, end: int) -> None:
    if end - begin >= ALIGN:
        raise refusal(file, begin, f"bytes {begin} to {end} belong to no section")
    for at in range(begin, end):
        if data[at]:
            raise refusal(file, at, f"byte {at} between sections is {data[at]}; it should be 0")


def _checksum(what: str, said: int, made: int, digits: int) -> str:
    return f"the checksum of {what} is {made:0{digits}x}, but the file says {said:0{digits}x}"


_Code = TypeVar("_Code", Element, Role, Arena)

Row = tuple[int, int, dict[str, Any], tuple[str, ...]]
"""A record: its number, its byte in the section, its values, its names."""


def rows_of(span: Span, record: Record) -> Iterator[Row]:
    """Records with their names, which fill the section up."""
    names = span.data[span.count * record.size :]
    if record is not WGHT:
        _names_fit(span, record, len(names))
    taken = 0
    first, end = record.reserved
    for number in range(span.count):
        at = number * record.size
        values: dict[str, Any] = unpack(record, span.data, at)
        if any(span.data[at + first : at + end]):
            raise span.refuse(at + first, f"record {number} has reserved bytes that are not 0")
        texts: list[str] = []
        for key in record.texts:
            size = values[key]
            texts.append(_text(span, span.count * record.size + taken, names[taken : taken + size]))
            taken += size
        yield number, at, values, tuple(texts)


def _names_fit(span: Span, record: Record, size: int) -> None:
    """Raises DlcError unless the sizes of all names are those of the bytes behind the records."""
    starts = range(0, span.count * record.size, record.size) if record.texts else ()
    said = sum(unpack(record, span.data, at)[key] for at in starts for key in record.texts)
    if said != size or size > record.texts_limit:
        most = f", and {record.texts_limit} are the most" if record.texts else ""
        message = f"names of {said} bytes in all, but {size} stand behind the records{most}"
        raise span.refuse(span.count * record.size, message)


def _text(span: Span, at: int, data: memoryview) -> str:
    try:
        return bytes(data).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as problem:
        raise span.refuse(at + problem.start, f"a name is no UTF-8: {problem.reason}") from None


def words(span: Span, size: int) -> tuple[bytes, ...]:
    """A section's words."""
    return tuple(bytes(span.data[at : at + size]) for at in range(0, len(span.data), size))


def exists(span: Span, at: int, number: int, count: int, what: str) -> None:
    """Raises DlcError unless `number`, at a byte of the section, names one of `count`."""
    if number >= count:
        raise span.refuse(at, f"{what} {number} does not exist; there are {count}")


def known(span: Span, at: int, table: Mapping[int, _Code], code: int, what: str) -> _Code:
    """What a code at a byte of the section means; raises DlcError for one without a meaning."""
    if code not in table:
        raise span.refuse(at, f"{what} {code} is unknown; known are {', '.join(map(str, sorted(table)))}")
    return table[code]
