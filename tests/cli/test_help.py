"""What people read first: the first screen, the help of every command, and the page made of both."""

from pathlib import Path
from typing import Any

import pytest

from dlc.cli.app import load_command
from dlc.cli.help import flags_of, help_text, subcommands
from dlc.cli.listing import LISTINGS
from dlc.cli.pages import cli_page
from dlc.cli.table import COMMANDS
from tests.cli.conftest import Dlc
from tests.conftest import Golden

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"


def all_commands() -> dict[str, Any]:
    """Every command and subcommand by its words."""
    found: dict[str, Any] = {}
    for row in COMMANDS:
        command = load_command(row)
        found[row.name] = command
        found |= {f"{row.name} {below.name}": below for below in subcommands(command)}
    return found


ALL = all_commands()


LISTS = ("plugins",)
"""Groups that list something when they stand alone."""


def test_first_screen(dlc: Dlc, golden: Golden) -> None:
    ran = dlc("--help")
    golden("help/dlc.txt", ran.transcript())
    assert (dlc().out, dlc("-h").out) == (ran.out, ran.out)
    assert ran.code == 0


@pytest.mark.parametrize("words", [words for words in ALL if subcommands(ALL[words]) and words not in LISTS])
def test_a_group_alone_shows_its_help(dlc: Dlc, words: str) -> None:
    """0.1 reported it as an error, in one line with escapes."""
    alone = dlc(*words.split())
    assert (alone.code, alone.err) == (0, "")
    assert alone.out == dlc(*words.split(), "--help").out


def test_list_alone_is_an_overview(dlc: Dlc) -> None:
    ran = dlc("list")
    assert (ran.code, ran.err) == (0, "")
    for name in ("onnx", "fuse", "infer", "dlc list KIND"):
        assert name in ran.out
    found = {item["kind"]: item["names"] for item in dlc("list", "--json").document["items"]}
    assert "simplify" in found["passes"]
    assert found["ops"] is None, "to name them takes importing them"
    assert set(found) == set(LISTINGS)
    for kind, names in found.items():
        if names:
            assert {item["name"] for item in dlc("list", kind, "--json").document["items"]} == set(names)


@pytest.mark.parametrize("words", ALL)
def test_help_of_a_command(dlc: Dlc, golden: Golden, words: str) -> None:
    ran = dlc(*words.split(), "--help")
    golden(f"help/{words.replace(' ', '_')}.txt", ran.transcript())
    assert ran.code == 0
    assert ran.err == ""


@pytest.mark.parametrize("words", ALL)
def test_every_flag_is_reported(words: str) -> None:
    command = ALL[words]
    assert command.help
    for flag in flags_of(command):
        assert flag.text, flag.names
    for p in command.params:
        assert p.metavar or getattr(p, "is_flag", False), f"{words} {p.name} has no metavar"
    assert subcommands(command) or any("--json" in p.opts for p in command.params)


@pytest.mark.parametrize("words", ALL)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_help_fits_the_terminal(words: str, width: int) -> None:
    lines = help_text(ALL[words], f"dlc {words}", width).splitlines()
    examples = lines.index("Examples:") if "Examples:" in lines else len(lines)
    assert [line for line in lines[:examples] if len(line) > width and not line.startswith("Usage:")] == []


@pytest.mark.parametrize("row", COMMANDS, ids=lambda c: c.name)
def test_the_table_names_the_subcommands(row: Any) -> None:
    assert row.parts == tuple(c.name for c in subcommands(ALL[row.name]))


def test_version(dlc: Dlc) -> None:
    from dlc import __version__

    assert dlc("--version").out == f"dlc {__version__}\n"


def test_the_page_is_current(request: pytest.FixtureRequest) -> None:
    page = cli_page()
    if request.config.getoption("--update"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "python -m dlc.cli.pages > docs/cli.md"
