"""`docs/s2train*.md`: tables are those of the declarations, `pytest tests/backend_s2train/test_docs.py --update`."""

import re
from collections.abc import Mapping

import pytest
from dlc_backend_s2train.codes import Flag, Splitting
from dlc_backend_s2train.cost import cycles
from dlc_backend_s2train.doc_tables import container_tables, cost_tables, instruction_tables
from dlc_backend_s2train.frames import layout
from dlc_backend_s2train.isa.instruction_set import Opcode

from tests.docs.blocks import ROOT

PAGES = sorted((ROOT / "docs").glob("s2train*.md"))
ISA = ROOT / "docs" / "s2train-isa.md"
_MARK = re.compile(r"^<!-- table: (?P<name>[a-z0-9-]+) -->\n(?P<text>.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)


def tables() -> Mapping[str, str]:
    """Every table that the pages have to show, by the name in its mark."""
    stated = {"frame-operands": table_in(layout.__doc__), "cost-loops": table_in(cycles.__doc__)}
    several = (instruction_tables(), container_tables(), cost_tables(), stated)
    found = {name: table for each in several for name, table in each.items()}
    assert len(found) == sum(map(len, several))
    return found


def table_in(text: str | None) -> str:
    """The table of a docstring."""
    return "\n".join(line for line in (text or "").splitlines() if line.startswith("|"))


def filled(text: str, found: Mapping[str, str]) -> str:
    """The page with its tables as they should be."""

    def table(mark: re.Match[str]) -> str:
        assert mark["name"] in found, f"no declaration has a table {mark['name']}"
        return f"<!-- table: {mark['name']} -->\n{found[mark['name']].strip()}\n\n<!-- end -->"

    return _MARK.sub(table, text)


def test_tables_are_those_of_the_declarations(request: pytest.FixtureRequest) -> None:
    for page in PAGES:
        expected = filled(page.read_text(encoding="utf-8"), tables())
        if request.config.getoption("--update"):
            page.write_text(expected, encoding="utf-8")
        assert page.read_text(encoding="utf-8") == expected, "run: pytest tests/backend_s2train/test_docs.py --update"


def test_every_table_is_on_one_page_once() -> None:
    names = [mark["name"] for page in PAGES for mark in _MARK.finditer(page.read_text(encoding="utf-8"))]
    assert sorted(names) == sorted(tables())
    assert all(len(table.splitlines()) > 2 for table in tables().values())


@pytest.mark.parametrize("kind", [Opcode, Flag, Splitting])
def test_every_opcode_and_bit_is_explained_in_prose(kind: type[Opcode] | type[Flag] | type[Splitting]) -> None:
    prose = _MARK.sub("", ISA.read_text(encoding="utf-8"))
    prose = prose[prose.index("## Instructions") :]
    assert not [member for member in kind if f"`{str(member.name).lower()}" not in prose]
