"""`write`: Program → bytes of a `.s2t` file, the same for equal programs."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from dlc.base.diagnostics import error
from dlc_backend_s2train.container.layout import (
    ALIGN,
    ARCHITECTURE,
    BIND,
    ENTR,
    ENTRY,
    GEOM,
    HARG,
    HEADER,
    HEADER_CHECKED,
    HOST,
    HYPR,
    KINDS,
    MAGIC,
    MAJOR,
    META,
    MINOR,
    MUST_UNDERSTAND,
    NUM1,
    RANK,
    REGS,
    SECTION_OF,
    SECTIONS,
    SIDES,
    STOR,
    TENS,
    WGHT,
    aligned,
)
from dlc_backend_s2train.container.record import Record, Value, pack
from dlc_backend_s2train.crc import crc32c, crc64
from dlc_backend_s2train.isa.words import encode
from dlc_backend_s2train.program import Program, Storage, Tensor

Values = dict[str, Value]


@dataclass(frozen=True)
class _Content:
    """One section: its parts, and what the table says of it."""

    fourcc: str
    count: int
    parts: Sequence[bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))


def write(program: Program, optional: Mapping[str, bytes] | None = None) -> bytes:
    """The file that `program` is; `optional` adds sections that readers may skip, such as PERF.

    Raises:
        DlcError: "s2t-limit" for more records, longer names or larger numbers than the format holds.
    """
    contents = [*_contents(program)]
    contents += [_Content(fourcc, 1, [data]) for fourcc, data in sorted((optional or {}).items())]
    # In the table's order where the format names them, so that reading and writing again changes nothing.
    order = [s.fourcc for s in SECTIONS]
    contents.sort(key=lambda c: order.index(c.fourcc) if c.fourcc in order else len(order))
    table_end = HEADER.size + ENTRY.size * len(contents)
    at, entries, placed = aligned(table_end), list[bytes](), list[bytes]()
    placed.append(b"\0" * (at - table_end))
    for content in contents:
        data = b"".join(content.parts)
        entries.append(_entry(content, at, data))
        end = at + len(data)
        at = aligned(end)
        placed += [data, b"\0" * (at - end)]
    table = b"".join(entries)
    head = pack(HEADER, _header(program, len(contents), at, crc64(table)))[:HEADER_CHECKED]
    return b"".join([head, struct.pack("<I", crc32c(head)), table, *placed])


def _entry(content: _Content, at: int, data: bytes) -> bytes:
    known = SECTION_OF.get(content.fourcc)
    values: Values = {
        "fourcc": content.fourcc.encode("ascii"),
        "version": known.version if known else 1,
        "flags": MUST_UNDERSTAND if known and known.must else 0,
        "offset": at,
        "size": len(data),
        "alignment": ALIGN,
        "count": content.count,
        "crc": crc64(data),
    }
    return pack(ENTRY, values)


def _header(program: Program, sections: int, size: int, table_crc: int) -> Values:
    target = program.target
    values: Values = {
        "magic": MAGIC,
        "major": MAJOR,
        "minor": MINOR,
        "header_size": HEADER.size,
        "flags": 0,
        "architecture": ARCHITECTURE,
        "cores": target.cores,
        "columns": target.columns,
        "rows": target.rows,
        "lanes": target.lanes,
        "weight_bytes": target.weight_bytes,
        "table_offset": HEADER.size,
        "file_size": size,
        "table_crc": table_crc,
        "sections": sections,
        "header_crc": 0,
    }
    for name in ("cores", "columns", "rows", "lanes"):
        if not 0 < int(getattr(target, name)) < 256:
            raise _limit(f"the target has {getattr(target, name)} {name}; the format holds 1 to 255")
    return values


def _contents(p: Program) -> Iterator[_Content]:
    yield _records("TENS", TENS, map(_tensor, p.tensors), [(t.name,) for t in p.tensors])
    yield _records("STOR", STOR, map(_storage, p.storages))
    yield _records("GEOM", GEOM, map(plain, p.geometries))
    yield _records("HYPR", HYPR, map(plain, p.hypers))
    yield _words("INS2", [encode(i) for i in p.instructions])
    yield _records("ENTR", ENTR, map(plain, p.entries), [(e.name,) for e in p.entries])
    bound = [
        (number, kind, name, tensor)
        for number, entry in enumerate(p.entries)
        for kind, field in enumerate(KINDS)
        for name, tensor in getattr(entry, field)
    ]
    rows: Iterable[Values] = ({"entry": e, "kind": k, "tensor": t} for e, k, _, t in bound)
    yield _records("BIND", BIND, rows, [(name,) for _, _, name, _ in bound])
    yield _weights(p)
    meta = sorted(p.meta.items())
    yield _records("META", META, ({} for _ in meta), meta)
    if p.functions:
        yield _records("HOST", HOST, ({} for _ in p.functions), [(f.text,) for f in p.functions])
        used = [(n, k, t) for n, f in enumerate(p.functions) for k, side in enumerate(SIDES) for t in getattr(f, side)]
        yield _records("HARG", HARG, ({"function": n, "kind": k, "tensor": t} for n, k, t in used))
    if p.legacy:
        yield _words("INS1", p.legacy)
    if p.numbering:
        yield _records("NUM1", NUM1, map(plain, p.numbering))
    if p.setups:
        yield _records("REGS", REGS, map(plain, p.setups))
    if p.frames:
        yield _Content("FRAM", 1, [p.frames])


def _words(fourcc: str, words: Sequence[bytes]) -> _Content:
    kind = SECTION_OF[fourcc]
    if len(words) > kind.limit:
        raise _limit(f"{len(words)} instructions; section {fourcc} holds {kind.limit}")
    assert all(len(word) == kind.word for word in words)
    return _Content(fourcc, len(words), words)


def _records(
    fourcc: str, record: Record, rows: Iterable[Values], texts: Sequence[tuple[str, ...]] | None = None
) -> _Content:
    """A section of records, and of the names that they have."""
    names = [tuple(text.encode("utf-8", "surrogatepass") for text in row) for row in texts or ()]
    parts: list[bytes] = []
    for number, row in enumerate(rows):
        sizes: Values = {key: len(text) for key, text in zip(record.texts, names[number], strict=True)} if texts else {}
        try:
            parts.append(pack(record, {**row, **sizes}))
        except struct.error as problem:
            raise _limit(f"record {number} of section {fourcc}: {problem}") from None
    if len(parts) > record.limit:
        raise _limit(f"{len(parts)} {SECTION_OF[fourcc].meaning}; section {fourcc} holds {record.limit}")
    pool = [text for row in names for text in row]
    if sum(map(len, pool)) > record.texts_limit:
        raise _limit(f"{sum(map(len, pool))} bytes of names; section {fourcc} holds {record.texts_limit}")
    return _Content(fourcc, len(parts), [*parts, *pool])


def _weights(p: Program) -> _Content:
    held = sorted(p.weights.items())
    at = aligned(WGHT.size * len(held))
    records: list[bytes] = []
    data: list[bytes] = [b"\0" * (at - WGHT.size * len(held))]
    for storage, content in held:
        records.append(pack(WGHT, {"storage": storage, "offset": at, "size": len(content)}))
        end = at + len(content)
        at = aligned(end)
        data += [content, b"\0" * (at - end)]
    return _Content("WGHT", len(records), [*records, *data])


def _tensor(tensor: Tensor) -> Values:
    if len(tensor.shape) > RANK:
        raise _limit(f"tensor {tensor.name} has {len(tensor.shape)} dimensions; section TENS holds {RANK}")
    return {
        "storage": tensor.storage,
        "offset": tensor.offset,
        "element": tensor.element.code,
        "role": tensor.role.value,
        "rank": len(tensor.shape),
        "shape": (*tensor.shape, *(0,) * (RANK - len(tensor.shape))),
    }


def _storage(storage: Storage) -> Values:
    return {**plain(storage), "arena": storage.arena.value}


def plain(value: object) -> Values:
    """A record's fields bear the names of the value's."""
    return {f.name: getattr(value, f.name) for f in fields(value)}  # pyright: ignore[reportArgumentType]  # a dataclass


def _limit(message: str) -> Exception:
    return error("s2t-limit", f"the program does not fit into a .s2t file: {message}", help="build a smaller program")
