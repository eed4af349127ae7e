"""Data files that hooks return: they have to lie in the plugin's own package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from dlc.plugins.plugin import Plugin


def paths_of(plugin: Plugin, hook: str, offered: Iterable[object]) -> Iterator[Path]:
    """What a hook returns. Raises TypeError: it is no path into the plugin's package."""
    spec = find_spec(plugin.package)
    roots = [Path(p).resolve() for p in (spec.submodule_search_locations or ())] if spec else []
    for path in offered:
        if not isinstance(path, Path):
            raise TypeError(f"{hook} must return paths, not {path!r}")
        if not any(path.resolve().is_relative_to(root) for root in roots):
            # Its content would not be part of cache keys, which have the digest of the package.
            raise TypeError(f"{hook}: {path} does not lie in the package {plugin.package}")
        yield path
