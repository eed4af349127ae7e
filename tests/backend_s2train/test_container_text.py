"""A `.s2t` file as text, and the format's tables as the documentation has them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from dlc_backend_s2train.codes import Arena
from dlc_backend_s2train.container import layout, write
from dlc_backend_s2train.container.files import check, describe, disassembly, memory, show, show_data
from dlc_backend_s2train.doc_tables import container_tables
from dlc_backend_s2train.isa.text import assemble
from dlc_backend_s2train.program import Program

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError
from tests.backend_s2train.mutations import sections
from tests.backend_s2train.programs import PROGRAMS, conv_step, linear_step
from tests.conftest import Golden


def test_a_file_as_it_is_shown(golden: Golden) -> None:
    golden("conv_step.show.txt", show(conv_step(), "conv_step.s2t"))


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_what_is_shown_assembles_to_the_words_of_the_file(make: Callable[[], Program]) -> None:
    program = make()
    data = bytearray(write(program))
    words = next(data[offset : offset + size] for _, name, offset, size in sections(data) if name == b"INS2")
    assert b"".join(assemble(disassembly(program, entry), 2) for entry in program.entries) == words


def test_names_cannot_move_a_terminal() -> None:
    program = linear_step()
    evil = 'a"\x1b[2J\n\u202eb # c'
    named = tuple(replace(t, name=evil) for t in program.tensors)
    entries = tuple(replace(e, name=evil + e.name, inputs=((evil, 0),)) for e in program.entries)
    text = show(replace(program, tensors=named, entries=entries, meta={evil: evil}), evil)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert len(text.splitlines()) == len(show(replace(program, meta={"a": "b"}), "x").splitlines())


def test_facts_are_json() -> None:
    data = json.loads(json.dumps(show_data(linear_step(), "linear_step.s2t")))
    assert [e["name"] for e in data["entries"]] == ["step", "predict"]
    assert data["entries"][0]["labels"] == [{"name": "label", "tensor": 1, "shape": [4]}]
    assert len(data["instructions"]) == 15 and data["tensors"][4]["name"] == "w1"
    assert data["memory"]["weights"]["storages"] == 6


def test_memory_at_once_is_that_of_the_worst_instruction() -> None:
    program = conv_step()
    for arena, count, whole, peak in memory(program):
        held = [s for s in program.storages if s.arena is arena]
        live = [sum(s.size for s in held if s.begin <= n < s.end) for n in range(len(program.instructions))]
        assert (count, whole, peak) == (len(held), sum(s.size for s in held), max(live))
    assert [arena for arena, *_ in memory(program)] == list(Arena)


def test_every_record_has_a_table_that_covers_it() -> None:
    found = container_tables()
    assert {f"section-{s.fourcc.lower()}" for s in layout.SECTIONS if s.record} < set(found)
    for name, record in (("header", layout.HEADER), ("entry", layout.ENTRY), ("section-tens", layout.TENS)):
        rows = [[c.strip() for c in line.split("|")[1:-1]] for line in found[name].splitlines()[2:]]
        assert len(rows) == len(record.fields) and [int(r[0]) for r in rows] == list(record.offsets.values())
    assert "| 28 | sections | u32 | entries of the table |" in found["header"]
    assert "`META` | provenance | at most 4,096 records of 8 bytes" in found["sections"]


def test_tables_say_where_numbers_stand() -> None:
    """A reader written from the tables finds the address of a storage."""
    data = bytearray(write(conv_step()))
    offset = next(o for _, name, o, _ in sections(data) if name == b"STOR")
    places = {
        r.split("|")[2].strip(): int(r.split("|")[1]) for r in container_tables()["section-stor"].splitlines()[2:]
    }
    for number, storage in enumerate(conv_step().storages):
        at = offset + number * layout.STOR.size
        assert struct.unpack_from("<Q", data, at + places["address"]) == (storage.address,)
        assert struct.unpack_from("<I", data, at + places["end"]) == (storage.end,)


def test_files_are_described_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "m.s2t"
    path.write_bytes(write(conv_step()))
    output = describe(Source(path))
    assert output.text == show(conv_step(), str(path)) and output.data["bytes"] == path.stat().st_size
    assert output.text.startswith(output.summary + "\n\n")
    assert check(Source(path)).program == conv_step()
    storages = list(conv_step().storages)
    storages[11] = replace(storages[11], end=6)
    wrong = write(replace(conv_step(), storages=tuple(storages)))
    with pytest.raises(DlcError) as refused:
        check(Source(data=wrong, label="w.s2t"))
    # The place is that of the instruction's word.
    begin = wrong.index(b"INS2")
    offset = int.from_bytes(wrong[begin + 8 : begin + 16], "little")
    assert [str(d.location) for d in refused.value.diagnostics] == [f"w.s2t: byte {offset + 6 * 32}"]
    assert refused.value.diagnostics[0].message == (
        'instruction 6 (conv weight-gradient): src0, tensor 13 "dy", lies in storage 11, which lives from instruction '
        "5 to 6"
    )
    with pytest.raises(DlcError, match=r"is no \.s2t file"):
        describe(Source(data=b"", label="empty.s2t"))
