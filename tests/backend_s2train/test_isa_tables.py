"""The documentation's tables say what the declarations say."""

import pytest
from dlc_backend_s2train.codes import OPERANDS
from dlc_backend_s2train.doc_tables import field_table, instruction_tables
from dlc_backend_s2train.isa.words import NOWHERE, Field, Layout, reserved

from dlc.base.diagnostics import DlcError, Location
from tests.conftest import Golden


def test_tables(golden: Golden) -> None:
    golden("isa_tables.md", "\n\n".join(f"## {name}\n\n{table}" for name, table in instruction_tables().items()))


def test_every_row_of_a_table_has_its_columns() -> None:
    for table in instruction_tables().values():
        assert len({line.count(" | ") for line in table.splitlines()}) == 1


def test_the_words_places_are_those_of_the_specification() -> None:
    rows = dict(line.split(" | ")[1::-1] for line in field_table_lines("version-2-word"))
    assert rows["`opcode`"] == "| 0"
    assert rows["`stage`"] == "| 1 [1:0]"
    assert rows["`dtype`"] == "| 1 [7:6]"
    assert rows["`flags`"] == "| 2–3"
    assert [rows[f"`{slot}`"] for slot in OPERANDS] == [f"| {at}–{at + 1}" for at in range(8, 28, 2)]
    assert rows["`signal`"] == "| 28 [7:4]"
    assert rows["`crc`"] == "| 30–31"
    rows = dict(line.split(" | ")[1::-1] for line in field_table_lines("ppu-control"))
    assert rows["`resacc_bp_finish`"] == "| 23–38"
    assert rows["`pooling_bp_group`"] == "| 47–49"


def field_table_lines(name: str) -> list[str]:
    return instruction_tables()[name].splitlines()[2:]


HIGH = Layout("high", (Field("a", 3), Field("b", 2, ("x", None, "y")), Field("c", 1, (1, 2)), reserved(10)), "high")
LOW = Layout("low", HIGH.fields, "low")


def test_the_first_field_stands_at_either_end() -> None:
    values = {"a": 5, "b": "y", "c": 1}
    assert HIGH.to_bytes(values) == bytes([0b101_10_000, 0])
    assert LOW.to_bytes(values) == bytes([0b000_10_101, 0])
    assert HIGH.from_bytes(bytes([0b101_10_000, 0])) == LOW.from_bytes(bytes([0b000_10_101, 0])) == values
    assert field_table(LOW).splitlines()[2] == "| 0 [2:0] | `a` | 0 to 7 |  |"


@pytest.mark.parametrize(
    ("layout", "word", "byte", "reason"),
    [
        (HIGH, bytes([0b000_01_000, 0]), 8, "b at bit 3 is 01, which is reserved"),
        (HIGH, bytes([0b000_11_000, 0]), 8, "b at bit 3 is 11, which is reserved"),
        (HIGH, bytes([0, 0b0001_0001]), 9, "bit 11 is set, which must be zero"),
        (LOW, bytes([0, 0b0001_0001]), 9, "bit 8 is set, which must be zero"),
        (LOW, bytes([0b0100_0000, 0b0001_0001]), 8, "bit 6 is set, which must be zero"),
    ],
)
def test_a_refusal_names_the_first_bit_that_is_wrong(layout: Layout, word: bytes, byte: int, reason: str) -> None:
    with pytest.raises(DlcError) as caught:
        layout.from_bytes(word, Location("f", byte=8))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message.endswith(reason)
    assert diagnostic.location == Location("f", byte=byte)


@pytest.mark.parametrize("values", [{"a": 8}, {"a": -1}, {"a": "5"}, {"b": "z"}, {"b": None}, {"c": True}])
def test_values_without_a_code_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(DlcError, match="bad-instruction"):
        HIGH.encode(values)
    assert NOWHERE.byte == 0
