"""docs/configuration.md agrees with the table of keys, and its example is valid."""

import re
from pathlib import Path

import pytest

from dlc.config.config import default_config
from dlc.config.file import load_config
from dlc.config.keys import KEYS, VARIABLES, KeyDoc, Paths, Pipeline, matches
from dlc.spec.convert import describe
from tests.config.test_trust_table import running

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


USED: dict[str, str] = {
    "none": "yes",
    "options": "yes, but for options that set what dlc runs, which are below",
    "elsewhere": "inside of the user's cache directory; elsewhere if you trust the file",
    "file": "if you trust the file",
    "user": "no: it is a variable of the environment, which needs no trust",
}
"""Whether a value of a directory's file is used, by what it needs."""


def trust_table() -> str:
    """The rows that the page must show: every setting that does something with files or code."""
    rows = [(d.key, ", ".join(d.does), d.trust) for d in KEYS if d.does or d.trust != "none"]
    rows += [(f"{name}{{{option}=…}}", "runs", "file") for _, name, option in running()]
    rows += [(v.name, ", ".join(v.does), v.trust) for v in VARIABLES if v.does]
    lines = [f"| `{key}` | {does} | {USED[trust]} |\n" for key, does, trust in rows]
    return "| setting | what it lets dlc do | used from a directory's file |\n|---|---|---|\n" + "".join(lines)


def test_the_page_lists_what_needs_trust(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, mark, rest = text.partition("<!-- trust -->\n")
    old, end, rest = rest.partition("<!-- end trust -->")
    assert mark and end
    if request.config.getoption("--update"):
        PAGE.write_text(head + mark + trust_table() + end + rest, encoding="utf-8")
        return
    assert old == trust_table()


def test_the_example_of_the_page_has_every_key(tmp_path: Path) -> None:
    """tests/docs/test_configurations.py uses it."""
    example = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)[0]
    (tmp_path / "dlc.toml").write_text(example, encoding="utf-8")
    given = {key for key, _, origin in load_config(tmp_path).show() if origin.startswith("dlc.toml")}
    assert all(any(matches(doc, key.split(".")) for key in given) for doc in KEYS)
