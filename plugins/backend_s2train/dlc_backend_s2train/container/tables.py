"""The documentation's tables of the file format, from the declarations that reader and writer use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_backend_s2train.container.layout import ENTRY, HEADER, SECTIONS, Section
from dlc_backend_s2train.container.record import Field, Record


def tables() -> Mapping[str, str]:
    """Every table as Markdown, by a name for the place where it stands: `header`, `entry`, `sections`, `section-…`."""
    return {
        "header": _fields(HEADER),
        "entry": _fields(ENTRY),
        "sections": _sections(),
        **{f"section-{s.fourcc.lower()}": _fields(s.record) for s in SECTIONS if s.record},
    }


def _fields(record: Record) -> str:
    rows = [(str(record.offsets[_name(f)]), _called(f), _type(f), f.meaning) for f in record.fields]
    return _markdown(("byte", "field", "type", "meaning"), rows)


def _sections() -> str:
    rows = [(f"`{s.fourcc}`", s.meaning, _content(s), _presence(s)) for s in SECTIONS]
    return _markdown(("section", "holds", "as", "where"), rows)


def _content(section: Section) -> str:
    """How a section's bytes are divided."""
    if section.record:
        names = ", then the records' names" if section.record.texts else ""
        data = ", then the bytes" if section.fourcc == "WGHT" else ""
        return f"at most {section.record.limit:,} records of {section.record.size} bytes{names}{data}"
    if section.word == 1:
        return "bytes" if section.limit == 1 else f"at most {section.limit:,} bytes"
    return f"at most {section.limit:,} words of {section.word} bytes"


def _presence(section: Section) -> str:
    must = "has to be understood" if section.must else "may be skipped"
    return f"in every file, {must}" if section.needed else f"optional, {must}"


def _name(field: Field) -> str:
    return field.name.removeprefix("text:")


def _called(field: Field) -> str:
    """The field's name; one of a name's size says so."""
    return f"{_name(field)} size" if field.name.startswith("text:") else field.name


def _type(field: Field) -> str:
    return field.type if field.count == 1 else f"{field.type} × {field.count}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"
