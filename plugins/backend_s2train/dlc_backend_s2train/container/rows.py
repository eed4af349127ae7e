"""Records of a section with their names, and what a reader asks of each number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from dlc_backend_s2train.codes import Arena, Element, Role
from dlc_backend_s2train.container.envelope import Span
from dlc_backend_s2train.container.layout import WGHT
from dlc_backend_s2train.container.record import Record, unpack

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
