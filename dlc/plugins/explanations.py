"""What diagnostic codes mean, in the words of the package that raises them, for `dlc explain` and docs/errors.md.

A package keeps them in its folder `explanations`, in Markdown files of the form below, so that they are read without
running its code.

    # Title of the area

    ## the-code

    What it means.

    ```text
    error[the-code]: an example of the message
    ```

    How to fix it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dlc.plugins.discovery import core, list_plugins
from dlc.plugins.plugin import Plugin

FOLDER: Final = "explanations"
_PARTS: Final = re.compile(r"\A(?P<meaning>.+?)\n\n```text\n(?P<example>.+?)\n```\n\n(?P<fix>.+)\Z", re.DOTALL)
_WIDTH: Final = 88
"""Characters of a line of prose."""
_LARGEST: Final = 1 << 20
"""Bytes of a file that are read."""


@dataclass(frozen=True)
class Explanation:
    """A section of a file."""

    code: str
    area: str
    """Title of the file."""
    package: str
    """Distribution whose code raises it: "dlc", "dlc-backend-c"."""
    meaning: str
    example: str
    """A message as the command prints it, without colour; "" where the section has another form."""
    fix: str

    @property
    def summary(self) -> str:
        """The first sentence of the meaning."""
        return re.split(r"(?<=[.:])\s", self.meaning, maxsplit=1)[0].rstrip(":.") + "."

    @property
    def text(self) -> str:
        """What `dlc explain` prints."""
        example = "\n".join(f"    {line}" for line in self.example.splitlines())
        parts = (f"{self.code} ({self.package})", _wrapped(self.meaning), example, _wrapped(self.fix))
        return "\n\n".join(part for part in parts if part)


@dataclass(frozen=True)
class Area:
    """One file."""

    title: str
    package: str
    intro: str
    """What stands before the first section."""
    explanations: tuple[Explanation, ...]


def areas(disabled: Iterable[str] = ()) -> tuple[Area, ...]:
    """Everything that the core and installed plugins explain, the core first.

    Raises:
        DlcError: (PLUGIN) two distributions use one name.
    """
    plugins = (core(), *(p for p in list_plugins(disabled) if p.state != "blocked"))
    return tuple(area for plugin in plugins for area in _areas(plugin))


def read_area(text: str, package: str) -> Area:
    """The area that a Markdown file describes; what is not of the form is left out of its parts."""
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, intro = head.strip().partition("\n")
    title = title.removeprefix("# ").strip()
    return Area(title, package, intro.strip(), tuple(_explanation(s, title, package) for s in sections))


def _wrapped(text: str) -> str:
    return "\n\n".join(textwrap.fill(part, _WIDTH, break_on_hyphens=False) for part in text.split("\n\n"))


def _explanation(section: str, area: str, package: str) -> Explanation:
    code, _, body = section.strip().partition("\n")
    parts = _PARTS.match(body.strip())
    if parts is None:
        return Explanation(code.strip(), area, package, body.strip(), "", "")
    return Explanation(code.strip(), area, package, parts["meaning"], parts["example"], parts["fix"].strip())


def _areas(plugin: Plugin) -> Iterator[Area]:
    for folder in _folders(plugin.package):
        for file in sorted(folder.glob("*.md")):
            if file.is_file() and file.stat().st_size <= _LARGEST:
                yield read_area(file.read_text(encoding="utf-8", errors="replace"), plugin.distribution)


def _folders(package: str) -> list[Path]:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []  # a broken installation: `dlc plugins` says so
    return [Path(place) / FOLDER for place in (spec.submodule_search_locations or ())] if spec else []
