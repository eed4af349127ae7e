"""Every command of README.md, docs/ and examples/ runs, and prints what the page says it prints."""

import re
import sys
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests import warm
from tests.docs.blocks import PAGES, ROOT, Block, Shell, agrees, shell_blocks, steps, working_blocks


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


OWN_CACHE = (
    "docs/cache-in-ci.md",
    "docs/cache-levels.md",
    "docs/configuration.md",
    "docs/security.md",
    "docs/writing-a-plugin.md",
)
"""Pages that show what a first build does, or what a cache holds; the others build the same few programs."""
OWN_PROCESSES = ("docs/distributed.md", "docs/s2train-host.md")
"""Pages where other programs start dlc and speak to it."""


def run_pages() -> list[ParameterSet]:
    """Pages with commands; those of which a part needs optional tools, which the rest does not see, have a mark."""
    found = {p: shell_blocks(p) for p in PAGES if any(not b.skipped for b in shell_blocks(p))}
    marked = pytest.mark.uses()
    return [
        pytest.param(p, id=name_of(p), marks=[marked] if any(b.needs for b in blocks) else ())
        for p, blocks in found.items()
    ]


@pytest.mark.parametrize("page", run_pages())
def test_commands_do_what_the_page_says(page: Path, tmp_path: Path, shared: Path) -> None:
    cache = None if name_of(page) in OWN_CACHE else shared / "pages"
    shell = Shell.new(
        tmp_path, cache, Path(sys.executable).parent if name_of(page) in OWN_PROCESSES else warm.commands()
    )
    for block in working_blocks(page):
        if block.skipped:
            continue
        if block.file:
            (shell.home / block.file).write_text(block.text, encoding="utf-8")
            continue
        for script, expected in steps(block):
            check(block, shell, script, expected)


def check(block: Block, shell: Shell, script: str, expected: str | None) -> None:
    """Run one script; what it prints ends with `[exit code N]` where the page shows a failure."""
    code, text = shell.run(script, block.needs)
    wanted, output = 0, expected
    if expected and (last := re.search(r"\n?\[exit code (\d+)\]\n?$", expected)):
        wanted, output = int(last[1]), expected[: last.start()]
    assert code == wanted, f"{block}: {script} gave {code}:\n{text}"
    if output is not None:
        assert agrees(output, text), f"{block}: {script} printed:\n{text}\nthe page says:\n{output}"


@pytest.mark.parametrize("block", [b for p in PAGES for b in shell_blocks(p) if b.elsewhere], ids=str)
def test_what_another_page_runs_is_there(block: Block) -> None:
    others = [b for b in shell_blocks(ROOT / block.elsewhere) if not b.mark.startswith(("not run", "run on"))]
    run = [step for other in others for step in steps(other)]
    assert not [step for step in steps(block) if step not in run], (
        f"{block}: not on {block.elsewhere}, or not run there"
    )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_does_not_run_says_why(page: Path) -> None:
    for block in shell_blocks(page):
        assert not block.mark.startswith("not run") or len(block.skipped) > 10, f"{block} needs a reason"


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("a  b", "a b\n", True),
        ("a … ms", "a 12.5 ms", True),
        ("a … ms", "a 12.5 s", False),
        ("a\n…\nb", "a\nx\ny\nb", True),
        ("a\n…\nb", "a\nb", True),
        ("a\nb", "a\nx\nb", False),
        ("…", "", True),
        ("", "x", False),
    ],
)
def test_placeholders_stand_for_what_varies(expected: str, found: str, same: bool) -> None:
    assert agrees(expected, found) is same


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`\n]+`(?!\])", "", prose)  # code has brackets too; not the texts of links
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name_of(page)}: no file {target}"
