"""How much memory this process may still take: what the machine has free, and what its control groups allow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

_GROUPS: Final = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Of either version of control groups, by its name in a process's list: folder, and files of the limit and the use."""


def free_memory(root: Path = Path("/")) -> int:
    """Bytes.

    Args:
        root: Folder in which `proc` and `sys` lie, as Linux has them. Other systems tell how much there is in all.
    """
    found = _numbers(root / "proc/meminfo").get("MemAvailable:")
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if found is None else found * 1024
    return max(0, min((free, *_allowed(root))))


def _allowed(root: Path) -> Iterator[int]:
    """What each group that the process belongs to has left. Pages of files that were not used lately can be had too."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, named = line.partition(":")
        kinds, _, path = named.partition(":")
        for kind in _GROUPS.keys() & kinds.split(","):
            folder, limit, used = _GROUPS[kind]
            own = PurePosixPath(path.lstrip("/"))
            for group in (root / folder / p for p in (own, *own.parents)):
                most, now = _text(group / limit).strip(), _text(group / used).strip()
                if most.isdecimal() and now.isdecimal():  # a root has no limit, and a limit may be the word max
                    yield int(most) - int(now) + _numbers(group / "memory.stat").get("inactive_file", 0)


def _numbers(path: Path) -> dict[str, int]:
    """Name → number, of lines that are a name and a number."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


def _text(path: Path) -> str:
    """What a file says; nothing where there is none."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
