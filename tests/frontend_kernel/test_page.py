"""The page on the language: below every kernel stands what it becomes, or the error that it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from dlc_frontend_kernel.expressions import MAX_DIMENSIONS, MAX_NESTING
from dlc_frontend_kernel.frontend import KernelText
from dlc_frontend_kernel.programs import MAX_STATEMENTS, TYPE_NAMES
from dlc_frontend_kernel.statements import MAX_INDICES, MAX_TERMS
from dlc_frontend_kernel.tokens import MAX_TEXT

from dlc import DlcError
from dlc.kernel.nest import MAX_POINTS
from dlc.kernel.scalar import SCALARS
from dlc.kernel.text import print_kernel
from tests.frontend_kernel.texts import kernel_of, parse

PAGE = Path(__file__).parents[2] / "docs" / "kernel-language.md"
_BLOCK = re.compile(r"^<!-- becomes -->\n```kernel\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def becomes(text: str) -> str:
    try:
        return print_kernel(kernel_of(parse(text, "page.kernel"))) + "\n"
    except DlcError as problem:
        return f"{problem}\n"


def test_kernels_become_what_the_page_says(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    expected = _BLOCK.sub(lambda m: f"<!-- becomes -->\n```kernel\n{m[1]}```\n\n```text\n{becomes(m[1])}```\n", page)
    if request.config.getoption("--update"):
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected, "run: pytest tests/frontend_kernel/test_page.py --update"


def test_every_kernel_of_the_page_is_compared() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(_BLOCK.findall(page)) == page.count("```kernel\n") > 20


def test_the_case_of_the_page_is_one() -> None:
    found = re.search(r"^```json\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    graph = parse(found[1], "page.json")
    assert json.loads(found[1])["ins"] == [i.name for i in graph.inputs]
    assert graph.aliases == ((0, 1),)


def test_the_page_names_every_type() -> None:
    """Its table of functions is generated (`tests/docs/functions_table.py`)."""
    page = PAGE.read_text(encoding="utf-8")
    assert set(TYPE_NAMES) <= set(re.findall(r"\w+", page))


def test_the_frontend_lists_every_function() -> None:
    assert set(SCALARS) <= {name for name, _ in KernelText().supported()}


def test_the_page_names_the_limits() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    for n, what in ((MAX_TEXT, "characters"), (MAX_STATEMENTS, "statements"), (MAX_TERMS, "terms")):
        assert f"{n:,} {what}" in page
    for n, what in ((MAX_INDICES, "indices"), (MAX_DIMENSIONS, "dimensions"), (MAX_NESTING, "levels of brackets")):
        assert f"{n} {what}" in page
    assert f"2^{MAX_POINTS.bit_length() - 1} points" in page
