"""A listing as an outcome. Apart from the command, because the frame answers `dlc list passes` without typer."""

from __future__ import annotations

from pathlib import Path

from dlc.cli.terminal import Outcome, Terminal, terminal_width
from dlc.driver.exec_backend import SCHEME

_WIDE = 100
"""Characters of a line where nobody says."""


def list_outcome(terminal: Terminal, what: str) -> Outcome:
    """The listing of one kind of things; of "", an overview of all."""
    from dlc.cli.listing import listing, overview
    from dlc.config.file import load_config

    if what.startswith(SCHEME):
        from dlc.cli.listed_exec import described

        found = described(what)
        return Outcome(found.text, {"kind": what, "items": list(found.items)})
    config = load_config(Path.cwd())
    found = listing(what, config) if what else overview(config, terminal_width() or _WIDE)
    terminal.tell(*found.problems)
    return Outcome(found.text, {"kind": what, "items": list(found.items)})
