"""A second name for a large file instead of a second copy of it."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Final

LINK_ABOVE: Final = 16 << 20
"""Bytes up to which a file is copied: whoever changes a copy in place changes nothing else."""
_WRITABLE: Final = 0o222
_FICLONE: Final = 0x40049409
"""The request of ioctl_ficlone(2)."""


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target`, which is absent, hold what `source` holds.

    A large file becomes read-only and gets a second name, where the file system has such links; everything else is
    copied, large files by sharing their blocks where the file system can. OSError as usual.
    """
    if source.stat().st_size > LINK_ABOVE and (linked(source, target) or _cloned(source, target)):
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


def _cloned(source: Path, target: Path) -> bool:
    """Whether `target` could be made of the blocks of `source`, which both then share until one of them is written."""
    try:
        with source.open("rb") as old, target.open("wb") as new:
            fcntl.ioctl(new, _FICLONE, old.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        return False
    return True
