"""Data files that hooks return: they have to lie in the plugin's own package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from dlc.plugins.entry import WrongResult, listed
from dlc.plugins.plugin import Plugin


def paths_of(plugin: Plugin, hook: str, offered: object) -> Iterator[Path]:
    """What a hook returns. Raises WrongResult: it is no path into the plugin's package."""
    spec = find_spec(plugin.package)
    roots = [Path(p).resolve() for p in (spec.submodule_search_locations or ())] if spec else []
    for path in listed(hook, offered):
        if not isinstance(path, Path):
            raise WrongResult(f"{hook} must return paths, not {path!r}")
        if not any(path.resolve().is_relative_to(root) for root in roots):
            # Its content would not be part of cache keys, which have the digest of the package.
            raise WrongResult(f"{hook}: {path} does not lie in the package {plugin.package}")
        yield path
