"""Where the cache is when nobody says otherwise."""

from __future__ import annotations

from pathlib import Path


def cache_directory(given: Path | None = None) -> Path:
    """`given`, or the user's cache directory by the platform's convention (`~/.cache/dlc` on Linux)."""
    if given is not None:
        return given.expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("dlc", appauthor=False)
