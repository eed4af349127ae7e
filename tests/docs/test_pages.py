"""Generated pages are current, and excerpts are what the files say."""

import re

import pytest

from dlc.plugins import hookspecs
from tests.docs import exec_page, functions_table, gradients_page
from tests.docs.blocks import PAGES, ROOT, blocks
from tests.docs.passes_page import page

EXEC_BACKENDS = ROOT / "docs" / "exec-backends.md"
KERNEL_LANGUAGE = ROOT / "docs" / "kernel-language.md"
GRADIENTS = ROOT / "docs" / "gradients.md"
PASSES = ROOT / "docs" / "pipeline-and-passes.md"
EXCERPTS = [b for p in PAGES for b in blocks(p) if b.mark.startswith("from: ")]


def test_the_page_of_passes_is_current(request: pytest.FixtureRequest) -> None:
    expected = page()
    if request.config.getoption("--update"):
        PASSES.write_text(expected, encoding="utf-8")
    assert PASSES.read_text(encoding="utf-8") == expected, "run: pytest tests/docs --update"


def test_the_page_of_gradients_is_current(request: pytest.FixtureRequest) -> None:
    expected = gradients_page.page()
    if request.config.getoption("--update"):
        GRADIENTS.write_text(expected, encoding="utf-8")
    assert GRADIENTS.read_text(encoding="utf-8") == expected, "run: pytest tests/docs --update"


def test_the_table_of_scalar_functions_is_current(request: pytest.FixtureRequest) -> None:
    expected = functions_table.page(KERNEL_LANGUAGE.read_text(encoding="utf-8"))
    if request.config.getoption("--update"):
        KERNEL_LANGUAGE.write_text(expected, encoding="utf-8")
    assert KERNEL_LANGUAGE.read_text(encoding="utf-8") == expected, "run: pytest tests/docs --update"


def test_the_tables_of_messages_are_current(request: pytest.FixtureRequest) -> None:
    assert set(exec_page.ORDER) == exec_page.declared()
    expected = exec_page.page(EXEC_BACKENDS.read_text(encoding="utf-8"))
    if request.config.getoption("--update"):
        EXEC_BACKENDS.write_text(expected, encoding="utf-8")
    assert EXEC_BACKENDS.read_text(encoding="utf-8") == expected, "run: pytest tests/docs --update"


def test_every_differentiable_operator_that_is_imported_is_compared_with_torch() -> None:
    assert set(gradients_page.OPERATORS) <= gradients_page.differentiable()
    compared = {case.op for case in gradients_page.CASES}
    assert not [name for name, how in gradients_page.imports().items() if how and name not in compared]


@pytest.mark.parametrize("block", EXCERPTS, ids=str)
def test_excerpts_are_what_the_file_says(block: "object") -> None:
    """A line of `…` stands for what is left out."""
    from tests.docs.blocks import Block

    assert isinstance(block, Block)
    text = (ROOT / block.mark.removeprefix("from: ")).read_text(encoding="utf-8")
    at = 0
    for part in re.split(r"^ *…\n", block.text, flags=re.MULTILINE):
        found = text.find(part.strip("\n"), at)
        assert found >= 0, f"{block}: not in the file, or not in this order:\n{part}"
        at = found + len(part)


def test_every_hook_is_explained() -> None:
    text = (ROOT / "docs" / "writing-a-plugin.md").read_text(encoding="utf-8")
    hooks = [name for name in vars(hookspecs) if name.startswith("dlc_")]
    assert not [name for name in hooks if f"`{name}`" not in text]


def test_every_public_name_is_explained_or_used() -> None:
    import dlc

    pages = ("writing-a-plugin.md", "python.md")
    text = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages)
    assert not [name for name in dlc.__all__ if not re.search(rf"\b{name}\b", text)]
