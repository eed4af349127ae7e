"""The directories of the user in which dlc keeps what is its own, by the platform's convention."""

from __future__ import annotations

from pathlib import Path


def user_cache() -> Path:
    """What can be made again (`~/.cache/dlc` on Linux)."""
    from platformdirs import user_cache_path

    return user_cache_path("dlc", appauthor=False)


def user_state() -> Path:
    """What the user said or owns: trusted files, the key of the cache (`~/.local/state/dlc` on Linux)."""
    from platformdirs import user_state_path

    return user_state_path("dlc", appauthor=False)


def is_within(path: Path, directory: Path) -> bool:
    """Whether a path, with all links followed, is a directory or lies in it."""
    return path.expanduser().resolve().is_relative_to(directory.resolve())
