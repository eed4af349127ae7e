"""docs/configuration.md agrees with the table of keys, and its example is valid."""

import re
from pathlib import Path

import pytest

from dlc.config.config import default_config
from dlc.config.file import load_config
from dlc.config.keys import KEYS, KeyDoc, Paths, Pipeline, matches
from dlc.spec.convert import describe

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
HEADER = "| key | value | default | meaning |\n|---|---|---|---|\n"


def kind_of(doc: KeyDoc) -> str:
    if doc.kind is Pipeline:
        return "pipeline"
    return {Path: "path", Paths: "list of paths"}.get(doc.kind) or describe(doc.kind)


def table() -> str:
    """The rows that the page must show."""
    defaults = {key: value for key, value, _ in default_config().show()}
    rows = [(f"`{d.key}`", kind_of(d).replace("|", "\\|"), defaults.get(d.key, ""), d.doc) for d in KEYS]
    return HEADER + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_the_page_lists_every_key(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    expected = re.sub(
        r"(?<=<!-- keys -->\n).*?(?=<!-- end keys -->)", table().replace("\\", "\\\\"), text, flags=re.DOTALL
    )
    if request.config.getoption("--update"):
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected


def test_the_example_of_the_page_has_every_key(tmp_path: Path) -> None:
    """tests/docs/test_configurations.py uses it."""
    example = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)[0]
    (tmp_path / "dlc.toml").write_text(example, encoding="utf-8")
    given = {key for key, _, origin in load_config(tmp_path).show() if origin.startswith("dlc.toml")}
    assert all(any(matches(doc, key.split(".")) for key in given) for doc in KEYS)
