"""What the shell offers behind a flag: names from the plugins' tables; no pass or backend is imported for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dlc.base.diagnostics import DlcError
from dlc.cli.terminal import off_stdout

if TYPE_CHECKING:
    from dlc.config.config import Config
    from dlc.plugins.entry import Kind


def complete_targets(incomplete: str) -> list[str]:
    """Backends, and targets of the configuration."""
    config = _config()
    return _matching(incomplete, [*_names("backends", config), *config.named("target", "backend")])


def complete_passes(incomplete: str) -> list[str]:
    """Passes."""
    return _matching(incomplete, _names("passes", _config()))


def complete_steps(incomplete: str) -> list[str]:
    """Passes, and the steps around them."""
    return _matching(incomplete, ["parse", *_names("passes", _config()), "emit", "build"])


def complete_pipelines(incomplete: str) -> list[str]:
    """The last name of a pipeline that is being written."""
    config = _config()
    head, comma, last = incomplete.rpartition(",")
    names = [*_names("pipelines", config), *config.named("pipeline"), *_names("passes", config)]
    return [head + comma + name for name in _matching(last, names)]


def complete_listings(incomplete: str) -> list[str]:
    """What `dlc list` lists."""
    from dlc.cli.listing import LISTINGS

    return _matching(incomplete, [*LISTINGS, *_names("frontends", _config())])


def complete_codes(incomplete: str) -> list[str]:
    """Diagnostic codes."""
    from dlc.plugins.explanations import areas

    try:
        return _matching(incomplete, [e.code for area in areas(_config().disabled) for e in area.explanations])
    except DlcError:
        return []


def _names(kind: Kind, config: Config) -> Iterable[str]:
    from dlc.plugins.discovery import load_registry

    try:
        with off_stdout():
            return list(load_registry(config.disabled, kinds=(kind,)).tables[kind])
    except DlcError:
        return ()  # completion has no place for messages; the command itself will tell


def _config() -> Config:
    from dlc.config.config import default_config
    from dlc.config.file import load_config

    try:
        return load_config(Path.cwd())
    except DlcError:
        return default_config()


def _matching(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})
