"""A second name for a large file instead of a second copy of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

LINK_ABOVE: Final = 16 << 20
"""Bytes up to which a file is copied: whoever changes a copy in place changes nothing else."""
_WRITABLE: Final = 0o222


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target`, which is absent, hold what `source` holds.

    A large file becomes read-only and gets a second name, where the file system has such links; everything else is
    copied. OSError as usual.
    """
    if source.stat().st_size > LINK_ABOVE and linked(source, target):
        return
    shutil.copyfile(source, target)


def linked(source: Path, target: Path) -> bool:
    """Whether a file, which becomes read-only, could be given a second name."""
    try:
        mode = source.stat().st_mode & 0o777
        if mode & _WRITABLE:
            source.chmod(mode & ~_WRITABLE)
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, one without links, somebody else's file, or too many links
        return False
    return True
