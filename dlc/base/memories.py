"""Working memories that a user names: `fast:64KiB,slow:8MiB`, the fastest first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")


def problem_of(regions: Sequence[tuple[str, int]]) -> str:
    """Why memories that the user wrote cannot be used, or ""."""
    names = [name for name, _ in regions]
    for name, size in regions:
        if not _NAME.fullmatch(name):
            return f"{name!r} is no name of a memory: a small letter, then at most 31 small letters, digits and _"
        if names.count(name) > 1:
            return f"{name} stands there twice"
        if size < 1:
            return f"{name} has no bytes"
    return ""
