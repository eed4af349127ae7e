"""Shell commands in Markdown: finding them, running them, and comparing what they print with what the page says.

A fenced block in `sh` is a script that must succeed; a block in `text` directly below it is what it prints. A block
in `console` shows commands behind `$ ` and, below each, what it prints. In outputs `…` stands for anything within a
line, a line of its own for any lines, and runs of spaces are one space; `[exit code N]` at the end says that the
command fails. The blocks of a page run in order in one directory that starts with copies of `examples/` and of the
example plugin. A block below `<!-- file: NAME -->` becomes that file of the directory. A block that cannot run there
says why in a comment above it: `<!-- not run: REASON -->`; one that needs more than Python and gcc says what, `<!--
needs: make -->`, and is left out where that is missing (`.ci/run` installs it); other blocks do not see it. What
another page runs, with the same outputs, has `<!-- run on: docs/PAGE.md -->`. The README's two commands have marks of
their own, because `.ci/run` runs them as they stand.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.programs import path_with
from tests.tools import missing

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("**/*.md")),
)
RUN_BY_CI = ("build-and-run", "test")
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)

_OUTPUT = re.compile(r"\n\s*^```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    line: int
    kind: str
    mark: str
    """The comment above it, or ""."""
    text: str
    output: str | None
    """What a script prints, where the page shows it."""

    @property
    def skipped(self) -> str:
        """Why it is not run here, or ""."""
        if self.mark in RUN_BY_CI:
            return "run by .ci/run"
        if self.elsewhere:
            return f"run on {self.elsewhere}"
        if absent := missing(self.needs):
            return f"not installed: {absent}"
        return self.mark.partition("not run: ")[2] if self.mark.startswith("not run:") else ""

    @property
    def needs(self) -> tuple[str, ...]:
        """The optional tools (tests/tools.py) without which it is left out; others it does not see."""
        return tuple(self.mark.split()[1:]) if self.mark.startswith("needs: ") else ()

    @property
    def elsewhere(self) -> str:
        """The page that runs it, or ""."""
        return self.mark.partition("run on: ")[2] if self.mark.startswith("run on: ") else ""

    @property
    def file(self) -> str:
        """The file that it becomes, or ""."""
        return self.mark.partition("file: ")[2] if self.mark.startswith("file: ") else ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Every fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("kind")) + 1
        shown = _OUTPUT.match(text, found.end()) if found["kind"] == "sh" else None
        yield Block(page, line, found["kind"], found["mark"] or "", found["text"], shown["text"] if shown else None)


def shell_blocks(page: Path) -> list[Block]:
    """The blocks that hold commands."""
    return [block for block in blocks(page) if block.kind in ("sh", "bash", "console")]


def working_blocks(page: Path) -> list[Block]:
    """The blocks that hold commands, and those that are files for them."""
    return [block for block in blocks(page) if block.kind in ("sh", "bash", "console") or block.file]


def steps(block: Block) -> list[tuple[str, str | None]]:
    """(command, what it prints) of a block; None where the page does not say."""
    return list(transcript(block.text)) if block.kind == "console" else [(block.text, block.output)]


@dataclass(frozen=True)
class Shell:
    """A directory in which the commands of a page run."""

    home: Path
    cache: Path
    commands: Path
    """Programs that come before all others."""

    @classmethod
    def new(cls, home: Path, cache: Path | None = None, commands: Path = Path(sys.executable).parent) -> "Shell":
        """With what the pages refer to; the cache is empty unless another one is given."""
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "examples", home / "examples", ignore=ignored)
        shutil.copytree(ROOT / "tests/plugin_example", home / "tests/plugin_example", ignore=ignored)
        return cls(home, cache or home / "cache", commands)

    def run(self, script: str, needs: Sequence[str] = ()) -> tuple[int, str]:
        """(exit code, everything printed) of a script; plugins that it installs go into the directory."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DLC_")},
            "PATH": f"{self.commands}:{Path(sys.executable).parent}:{self.home / 'site/bin'}:{path_with(needs)}",
            "HOME": str(self.home),
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),  # where rustc is rustup's
            # Open MPI asks for these where tests run as root, on few processors.
            **{f"OMPI_{name}": "1" for name in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM")},
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "XDG_CACHE_HOME": str(self.cache),
            # Pages that share a cache share the key by which it knows its results, too.
            "XDG_STATE_HOME": str(self.cache.with_name("state")),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(self.home / "site"), os.environ.get("PYTHONPATH")])),
            "LC_ALL": "C.UTF-8",  # the order of `ls`
            "COLUMNS": "120",
            "NO_COLOR": "1",
            # `pip install` of a page must not change the environment that the tests run in, nor need a network.
            "PIP_TARGET": str(self.home / "site"),
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


def transcript(text: str) -> Iterator[tuple[str, str]]:
    """(command, expected output) of a console block; a command goes on behind a backslash at the end of a line."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = next(k for k, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield "\n".join(lines[:length]), "\n".join(lines[length:]).strip("\n")


def agrees(expected: str, found: str) -> bool:
    """Whether an output is what a page shows."""
    lines = [re.sub(r"\s+", " ", line.strip()) for line in expected.splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else _line(line) + r" ?\n" for line in lines)
    plain = "".join(re.sub(r"\s+", " ", line.strip()) + "\n" for line in found.strip("\n").splitlines())
    return re.fullmatch(pattern, plain) is not None


def _line(text: str) -> str:
    return "[^\n]*?".join(map(re.escape, text.split("…")))
