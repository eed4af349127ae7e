"""README.md as an index of packages shows it: no link that is relative to a checkout."""

import re
import subprocess
import sys
import tomllib
from email import message_from_string
from pathlib import Path

import pytest

from docs.site.index_readme import for_index
from tests.docs.blocks import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
RELATIVE = re.compile(r"\]\((?!https?://|#)")


def test_links_become_absolute() -> None:
    text = for_index(README, "https://host/files", "https://host/pictures")
    assert not RELATIVE.search(text)
    assert "](https://host/files/docs/training.md)" in text
    assert "](https://host/pictures/docs/images/report.png)" in text
    assert "examples/digit.pb --time\n```" in text, "commands are as they were"
    assert "<!--" not in text


def test_without_addresses_links_become_text() -> None:
    text = for_index(README, "", "")
    assert not RELATIVE.search(text)
    assert "in the source distribution" in text


@pytest.mark.parametrize("kept", ["[a](#how-fast)", "[a](https://host/x)", "```sh\nx[0](y)\n```"])
def test_what_leads_somewhere_on_an_index_stays(kept: str) -> None:
    assert for_index(f"{kept}\n", "https://host/files", "") == f"{kept}\n"


def test_metadata_has_them(tmp_path: Path) -> None:
    code = "import sys; from hatchling.build import prepare_metadata_for_build_wheel as p; print(p(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    metadata = message_from_string((tmp_path / made.strip() / "METADATA").read_text(encoding="utf-8"))
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert not RELATIVE.search(str(metadata.get_payload()))
    assert {"onnx", "c", "all"} <= set(metadata.get_all("Provides-Extra", []))
    assert metadata.get_all("License-File")


def test_addresses_of_the_repository_are_set_together() -> None:
    """A release has all of them (CONTRIBUTING.md), and none is invented while there is no repository to lead to."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    urls, hook = document["project"].get("urls", {}), document["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    addresses = [urls.get("Homepage"), urls.get("Repository"), hook["files"], hook["pictures"]]
    assert all(addresses) or not any(addresses)


@pytest.mark.parametrize("page", sorted(ROOT.glob("plugins/*/README.md")), ids=lambda p: p.parent.name)
def test_pages_of_plugins_have_no_relative_links(page: Path) -> None:
    assert not RELATIVE.search(page.read_text(encoding="utf-8"))
