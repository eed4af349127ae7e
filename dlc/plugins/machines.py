"""Descriptions of processors that plugins offer: files whose names are those of the machines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dlc.plugins.entry import WrongResult
from dlc.plugins.own_paths import paths_of
from dlc.plugins.plugin import Plugin

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._+-]*")
"""It is written into specs and into generated text."""
HERE: Final = "native"
"""What means the machine that dlc runs on: no description has this name."""


def machine_files(plugin: Plugin, offered: object) -> Iterator[tuple[str, Path]]:
    """(name, file) of the machines in what `dlc_machines` returns. They are read when one is built for.

    Raises:
        WrongResult: what it returns is no path into the plugin's package, or no TOML file, or has a name that no
            machine can have.
    """
    for path in paths_of(plugin, "dlc_machines", offered):
        for file in sorted(path.glob("*.toml")) if path.is_dir() else (path,):
            if file.suffix != ".toml" or not file.is_file():
                raise WrongResult(f"dlc_machines: {file} is not a TOML file")
            if not _NAME.fullmatch(file.stem) or file.stem == HERE:
                raise WrongResult(
                    f"dlc_machines: {file.name} does not name a machine: use lower-case letters and digits"
                )
            yield file.stem, file
