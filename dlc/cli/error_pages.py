"""`docs/errors.md`, from the explanations of all packages: `python -m dlc.cli.error_pages > docs/errors.md`."""

from __future__ import annotations

import sys

from dlc.plugins.discovery import list_plugins
from dlc.plugins.explanations import Area, areas

_HEAD = """\
<!-- Written by `python -m dlc.cli.error_pages > docs/errors.md`; a test compares. Change the files
`explanations/*.md` of the packages, not this one. -->
# Error codes

Every message of dlc has a code in brackets: `error[unsupported-op]: …`. Codes keep their meaning between versions, so
scripts can match them; with `--json` they stand in `diagnostics[].code`. `dlc explain CODE` prints the sections below,
`dlc list errors` all codes, those of plugins of third parties included.
"""


def errors_page() -> str:
    """The whole page; of installed packages those that are released with dlc."""
    others = [p.name for p in list_plugins() if not p.is_own]
    return "\n".join([_HEAD, *(part for area in areas(others) for part in _area(area))]).rstrip() + "\n"


def _area(area: Area) -> list[str]:
    lines = [f"## {area.title}", "", f"Package `{area.package}`.", ""]
    if area.intro:
        lines += [area.intro, ""]
    for e in area.explanations:
        lines += [f"### {e.code}", "", e.meaning, "", "```text", e.example, "```", "", e.fix, ""]
    return lines


if __name__ == "__main__":
    sys.stdout.write(errors_page())
