"""Asking the user whether a directory's configuration may say what is run: on a terminal only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dlc.base.diagnostics import DlcError
from dlc.cli.terminal import Terminal, is_interactive
from dlc.config.trust import is_trusted, trust
from dlc.spec.configurable import UNTRUSTED

if TYPE_CHECKING:
    from dlc.config.config import Config


def said_trusted(terminal: Terminal, config: Config, problem: DlcError) -> bool:
    """Whether `problem` is that the configuration file is not trusted, and the user, asked now, says that it is."""
    if config.file is None or any(d.code != UNTRUSTED for d in problem.diagnostics):
        return False
    if is_trusted(config.file, config.text):
        return True  # said a moment ago, about the same text
    if terminal.json or not (is_interactive() and sys.stdin.isatty()):
        return False
    import typer

    terminal.tell(*problem.diagnostics)
    if not typer.confirm(f"Trust {config.file} with its current content?", err=True):
        return False
    trust(config.file, config.text)
    return True
