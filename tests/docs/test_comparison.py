"""docs/comparison.md repeats figures: each stands on the page that it links to, and its command exists."""

import re

import pytest

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "comparison.md"
ROWS = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "`python " in line]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:40])
def test_figures_are_those_of_the_page_that_measured_them(row: list[str]) -> None:
    _, _, result, link, command = row
    target = re.search(r"\]\(([^)#]+)", link)
    assert target
    text = (PAGE.parent / target[1]).read_text(encoding="utf-8")
    figures = re.findall(r"\d+\.\d+|\d{3,}", result)
    assert figures
    assert not [f for f in figures if not re.search(rf"(?<![\d.]){re.escape(f)}(?![\d.]*\d)", text)]
    script = re.search(r"python (\S+\.py)", command)
    assert script
    assert (ROOT / script[1]).is_file()


def test_there_are_rows() -> None:
    assert len(ROWS) > 5
