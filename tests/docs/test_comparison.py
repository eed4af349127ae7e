"""docs/comparison.md and README.md repeat figures: each stands on the page that it links to, and its command exists."""

import re
import tomllib
from pathlib import Path

import pytest

from dlc.plugins.discovery import load_registry
from dlc.plugins.entry import Kind
from dlc.plugins.plugin import RELEASED_WITH_CORE
from tests.docs.blocks import ROOT

OWN = {name.replace("-", "_") for name in RELEASED_WITH_CORE}

PAGES = (ROOT / "docs" / "comparison.md", ROOT / "README.md")
ROWS = [
    (page, line.strip("| ").split(" | "))
    for page in PAGES
    for line in page.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and "`python " in line
]
README = PAGES[1].read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "row"), [pytest.param(p, r, id=f"{p.stem}-{r[1][:40]}") for p, r in ROWS])
def test_figures_are_those_of_the_page_that_measured_them(page: Path, row: list[str]) -> None:
    _, _, result, link, command = row
    target = re.search(r"\]\(([^)#]+)", link)
    assert target
    text = (page.parent / target[1]).read_text(encoding="utf-8")
    figures = re.findall(r"\d+\.\d+|\d{3,}", result)
    assert figures
    assert not [f for f in figures if not re.search(rf"(?<![\d.]){re.escape(f)}(?![\d.]*\d)", text)]
    script = re.search(r"python (\S+\.py)", command)
    assert script
    assert (ROOT / script[1]).is_file()


def test_there_are_rows() -> None:
    assert all(len([r for p, r in ROWS if p == page]) >= 5 for page in PAGES)


@pytest.mark.parametrize("kind", ["frontends", "backends"])
def test_the_support_matrix_has_what_comes_with_dlc(kind: Kind) -> None:
    """Without dlc's own text of graphs, which is for tests and tools."""
    shown = set(re.findall(rf"^\| {kind[:-1]} `(\w+)` \|", README, re.MULTILINE))
    own = {e.name for e in load_registry(kinds=(kind,)).tables[kind].values() if e.package in OWN}
    assert shown == own - {"dlc"}


def test_the_support_matrix_has_the_versions_of_python() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f"| Python | {required.removeprefix('>=')} or newer |" in README
