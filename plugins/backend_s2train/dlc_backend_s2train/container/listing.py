"""A whole `.s2t` file as text: `dlc disasm`. `assembly` is the inverse, `dlc asm`.

    machine cores 8 columns 8              a line for each record; # begins a comment
    storage 0 host address 896 size 256 begin 0 end 2
    tensor %0 "x" fp16 [2, 1, 8, 8] input storage 0
    geometry 0 n 2 ci 1 co 4 hi 8 wi 8 ho 8 wo 8 kh 3 kw 3 pads [1, 1, 1, 1]
    entry "predict" begin 0 end 2
    input "x" %0                           of the entry above
    conv forward [relu] (src0 = %0, src1 = %1, dst0 = %3) geometry 0
    weights 1 "3c003c00" "b35e…"           bytes of a storage as digits

Numbers of records ascend from 0. Fields that hold what a record without them has are left out; so are sections that
follow from others. Instructions are as in `isa.text`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any, Final, cast

from dlc.base.diagnostics import DlcError
from dlc_backend_s2train.codes import Arena, Element, Role
from dlc_backend_s2train.container.layout import KINDS
from dlc_backend_s2train.container.reader import optional_sections, read
from dlc_backend_s2train.device.registers import setup_of
from dlc_backend_s2train.isa.text import print_v2
from dlc_backend_s2train.program import Entry, Program, Setup, Target

_DIGITS: Final = 128
"""Digits of a string of bytes."""
BOUND: Final = {kind.removesuffix("s"): kind for kind in KINDS}
"""Word of a line below an entry → the entry's field."""


def disassembled(data: memoryview, name: str) -> str:
    """A file as text.

    Raises:
        DlcError: "bad-s2t": it is none.
    """
    program = read(data, name)
    lines = [*_lines(program)]
    lines += [f'section "{fourcc}"{_bytes(held)}' for fourcc, held in sorted(optional_sections(data, name).items())]
    return "\n".join([*lines, ""])


def _lines(p: Program) -> Iterator[str]:
    if p.target != Target():
        yield f"machine{_fields(p.target)}"
    for key, value in p.meta.items():
        yield f"meta {_quoted(key)} {_quoted(value)}"
    for k, s in enumerate(p.storages):
        yield f"storage {k} {_word(s.arena)}{_fields(s, 'arena')}"
    for k, t in enumerate(p.tensors):
        head = f"tensor %{k} {_quoted(t.name)} {_word(t.element)} {list(t.shape)} {_word(t.role)}"
        yield f"{head}{_fields(t, 'name', 'element', 'shape', 'role')}"
    for name, records in (("geometry", p.geometries), ("hyper", p.hypers)):
        yield from (f"{name} {k}{_fields(record)}" for k, record in enumerate(records))
    for k, f in enumerate(p.functions):
        sides = (", ".join(f"%{number}" for number in side) for side in (f.reads, f.writes))
        yield f"function {k} ({') -> ('.join(sides)}) {_quoted(f.text)}"
    begins: dict[int, list[Entry]] = {}
    for entry in p.entries:
        yield f"entry {_quoted(entry.name)}{_fields(entry, 'name', *KINDS)}"
        begins.setdefault(entry.begin, []).append(entry)
        for word, kind in BOUND.items():
            yield from (f"{word} {_quoted(port)} %{number}" for port, number in getattr(entry, kind))
    for k, instruction in enumerate(p.instructions):
        yield from (f"# {_quoted(entry.name)}" for entry in begins.get(k, ()))
        yield f"{print_v2(instruction)}  # {k}"
    if p.setups and p.setups == _setups(p):
        yield "registers"
    else:
        yield from (f"setup{_fields(setup)}" for setup in p.setups)
    for storage, held in sorted(p.weights.items()):
        yield f"weights {storage}{_bytes(held)}"
    yield from (f"word{_bytes(word)}" for word in p.legacy)
    yield from (f"number {n.number} %{n.tensor}{_fields(n, 'number', 'tensor')}" for n in p.numbering)
    if p.frames:
        yield f"frames{_bytes(p.frames)}"


def _setups(p: Program) -> tuple[Setup, ...]:
    """What follows from the instructions; nothing where one of them is not legal."""
    try:
        return tuple(setup_of(p, i) for i in p.instructions)
    except (DlcError, LookupError):
        return ()


def _fields(record: object, *but: str) -> str:
    """` name value` of all fields that are not what a record has without them."""
    parts: list[str] = []
    for field in fields(record):  # pyright: ignore[reportArgumentType]  # all records are dataclasses
        value: Any = getattr(record, field.name)
        if field.name not in but and (field.default is MISSING or value != field.default):
            parts.append(f" {field.name} {_value(value)}")
    return "".join(parts)


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return str([*cast("tuple[int, ...]", value)])
    return repr(int(value) if isinstance(value, bool) else value)


def _word(member: Arena | Element | Role) -> str:
    return member.name.lower()


def _quoted(text: str) -> str:
    return json.dumps(text)


def _bytes(data: bytes) -> str:
    digits = data.hex()
    return "".join(f'\n  "{digits[k : k + _DIGITS]}"' for k in range(0, len(digits), _DIGITS)) or ' ""'
