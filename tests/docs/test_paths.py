"""Pages about the source tree name files and directories that exist."""

import re

import pytest

from tests.docs.blocks import PAGES, ROOT

SOURCE = ("dlc/", "docs/", "tests/", "plugins/", "benchmarks/", "examples/", ".ci/")
"""Beginnings of paths in the checkout; others are of things that a build makes or a reader has."""
ABOUT_SOURCE = ("CONTRIBUTING.md", "docs/architecture.md", "docs/glossary.md")


def paths(text: str) -> set[str]:
    """What the page names in the checkout: words of code that begin like one of its directories.

    NAME, or a part of a path that holds it, stands for a file to be made: its directory counts.
    """
    found = {word.partition("::")[0] for code in re.findall(r"`([^`]+)`", text) for word in code.split()}
    found |= {word.partition("::")[0] for word in re.findall(r"[\w./-]+", text)}
    found = {path.rstrip(".,:;") for path in found if path.startswith(SOURCE)}
    return {path.rpartition("/")[0] if "NAME" in path else path for path in found}


@pytest.mark.parametrize("name", ABOUT_SOURCE)
def test_paths_exist(name: str) -> None:
    page = ROOT / name
    assert page in PAGES
    assert not [path for path in paths(page.read_text(encoding="utf-8")) if not any(ROOT.glob(path.rstrip("/")))]


def test_the_map_is_full_of_paths_and_a_wrong_one_is_found() -> None:
    named = paths((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    assert paths("see `dlc/passes/nothing.py` and dlc/passes/NAME.py") == {"dlc/passes/nothing.py", "dlc/passes"}


def test_every_room_is_on_the_map() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = {path.name for path in (ROOT / "dlc").iterdir() if (path / "__init__.py").exists()}
    assert not [room for room in rooms if not re.search(rf"\b{room}\b", text)]
