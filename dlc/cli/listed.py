"""A listing as an outcome. Apart from the command, because the frame answers `dlc list passes` without typer."""

from __future__ import annotations

from pathlib import Path

from dlc.cli.terminal import Outcome, Terminal


def list_outcome(terminal: Terminal, what: str) -> Outcome:
    """The listing."""
    from dlc.config_file import load_config
    from dlc.listing import listing

    found = listing(what, load_config(Path.cwd()))
    terminal.tell(*found.problems)
    return Outcome(found.text, {"kind": what, "items": list(found.items)})
