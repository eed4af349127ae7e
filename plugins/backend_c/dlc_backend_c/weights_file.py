"""The file of weights of a program, in memory: mapped, so that processes share it, or in memory of the process.

A step that reads all weights once is as fast as memory is read. Processors foresee what is read next within a page
only, and look a page's place up: of small pages they read a fifth less in a second. A system keeps a mapped file in
large pages where it read it for a mapping that asked for them, and in small ones where it was copied or read before.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np

from dlc.base.diagnostics import ExitCode, error
from dlc.base.free_memory import free_memory
from dlc.base.types import Array

Weights = Literal["auto", "mapped", "private"]
"""How a program's file of weights comes into memory; auto: mapped where that is as fast, or memory is scarce."""
LARGE_PAGE: Final = 2 << 20
"""Bytes of a large page of most systems."""
SMALLEST: Final = 32 << 20
"""Bytes of a file that a cache does not hold."""
SHARE: Final = 2
"""Of the memory that is free, a copy takes one part of so many at most."""
MOSTLY: Final = 0.99
"""What part of the large pages that a mapping has room for it has to have: with 0.95 a step took 5 % longer."""
_SWITCH: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPPINGS: Final = Path("/proc/self/smaps")


def weights_of(path: Path, how: Weights) -> Array:
    """The bytes of a file.

    Raises:
        DlcError: (USAGE) `how` is no such way.
    """
    if how not in get_args(Weights):
        ways = ", ".join(get_args(Weights))
        raise error("wrong-argument", f"weights={how!r} is none of {ways}", exit_code=ExitCode.USAGE)
    if how == "private":
        return _private(path)
    mapped = _mapped(path)
    return _private(path) if how == "auto" and _worth_a_copy(mapped) else mapped


def _worth_a_copy(mapped: Array) -> bool:
    """Whether memory of the process has large pages where a mapping lacks them, and is there."""
    if mapped.nbytes < SMALLEST or not _has_large_pages() or mapped.nbytes > free_memory() / SHARE:
        return False
    mapped[::LARGE_PAGE].max()  # what is not in memory yet is read, in large pages
    return _in_large_pages(mapped) < MOSTLY * (mapped.nbytes // LARGE_PAGE * LARGE_PAGE)


def _has_large_pages() -> bool:
    """Whether a process gets large pages when it asks for them."""
    try:
        return "[never]" not in _SWITCH.read_text(encoding="ascii")
    except OSError:
        return False


def _in_large_pages(mapped: Array) -> int:
    """Bytes of a mapped file that are in large pages, as far as they were read; 0 where the system does not say."""
    place = mapped.ctypes.data
    inside = False
    try:
        with _MAPPINGS.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                first, *others = line.split()
                if not first.endswith(":"):
                    low, _, high = first.partition("-")
                    inside = int(low, 16) <= place < int(high, 16)
                elif inside and first == "FilePmdMapped:":
                    return int(others[0]) << 10
    except (OSError, ValueError):
        pass
    return 0


def _mapped(path: Path) -> Array:
    """In large pages where the system reads the file for this mapping."""
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _ask_for_large_pages(memory)
    return np.frombuffer(memory, np.uint8)


def _private(path: Path) -> Array:
    """In memory of its own, which is not shared: memory that processes share seldom has large pages."""
    size = path.stat().st_size
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size + LARGE_PAGE, **private)
    _ask_for_large_pages(memory)
    whole = np.frombuffer(memory, np.uint8)
    found = whole[-whole.ctypes.data % LARGE_PAGE :][:size]
    with path.open("rb", buffering=0) as file:
        done = 0
        while count := file.readinto(found[done:].data):  # a system reads 2 GiB at a time at most
            done += count
    return found[:done]


def _ask_for_large_pages(memory: mmap.mmap) -> None:
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
