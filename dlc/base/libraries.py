"""Versions of installed libraries, from the names of their metadata directories: a result that numpy computed, or that
onnx decided, is not one for another numpy or onnx."""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache

_INFORMATION = re.compile(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")


def versions(names: Iterable[str]) -> str:
    """`numpy 2.4.1, onnx 1.23.0`; a library whose metadata is not found has the version "?"."""
    found = installed()
    return ", ".join(f"{name} {found.get(_plain(name), '?')}" for name in names)


def names_in(text: str) -> tuple[str, ...]:
    """The names in what `versions` gave."""
    return tuple(part.rpartition(" ")[0] for part in text.split(", ") if part)


@lru_cache(maxsize=1)
def installed() -> Mapping[str, str]:
    """Version by plain name of every distribution on the path; the first of several copies of one counts.

    Computed once per process, because what is imported does not change any more.
    """
    found: dict[str, str] = {}
    for directory in dict.fromkeys(os.path.realpath(entry or os.curdir) for entry in sys.path):
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            continue  # a path entry that is a zip, does not exist or may not be read
        for name in names:
            if match := _INFORMATION.fullmatch(name):
                found.setdefault(_plain(match[1]), match[2])
    return found


def _plain(name: str) -> str:
    """Names that pip takes for the same."""
    return re.sub(r"[-_.]+", "-", name).lower()
