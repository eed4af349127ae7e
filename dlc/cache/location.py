"""Where the cache is when nobody says otherwise."""

from __future__ import annotations

from pathlib import Path

from dlc.base.own_places import user_cache


def cache_directory(given: Path | None = None) -> Path:
    """`given`, or the user's cache directory by the platform's convention (`~/.cache/dlc` on Linux)."""
    return user_cache() if given is None else given.expanduser()
