"""Entry points of installed distributions, from their metadata files alone.

Not `importlib.metadata.entry_points`: importing it, with the email and zip packages behind it, takes a fifth of the
time that a listing may take. The files read here are specified ("Entry points", "Core metadata" by the PyPA); what is
not a directory on the path (a zip) still goes through the standard module.
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class EntryPoint:
    """One line `name = module` or `name = module:object` of a distribution's entry points."""

    name: str
    module: str
    distribution: str
    version: str
    attribute: str = ""
    """The object of the module, as "plugin" or "Plugins.first"; "" for the module itself."""


_Points = list[tuple[str, str, str]]
"""(name, module, attribute) of lines."""
_Found = tuple[_Points, str, str]
_KNOWN: dict[tuple[str, str], tuple[int, tuple[_Found, ...]]] = {}
"""(directory, group) → when the directory changed, and what was found there."""


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Entry points of `group` in every distribution on the path; the first of several copies of one counts."""
    found: list[EntryPoint] = []
    seen: set[str] = set()
    for directory in dict.fromkeys(os.path.realpath(entry or os.curdir) for entry in sys.path):
        for points, name, version in _distributions(directory, group):
            plain = re.sub(r"[-_.]+", "-", name).lower()
            if plain not in seen:
                seen.add(plain)
                found += [EntryPoint(key, m, name or "unknown", version, attribute) for key, m, attribute in points]
    return tuple(found)


def _distributions(directory: str, group: str) -> tuple[_Found, ...]:
    """(entry points of the group, name, version) of each distribution in `directory` that has any.

    A command asks several times, and there may be hundreds: they are read again when one has come or gone.
    """
    try:
        changed = os.stat(directory).st_mtime_ns
    except OSError:
        return ()
    known = _KNOWN.get((directory, group))
    if known is None or known[0] != changed:
        found = (_archived if os.path.isfile(directory) else _installed)(directory, group)
        parts = ((points, _header(text, "Name"), _header(text, "Version")) for points, text in found)
        known = _KNOWN[directory, group] = changed, tuple(parts)
    return known[1]


def _installed(directory: str, group: str) -> Iterator[tuple[_Points, str]]:
    """(entry points of the group, text of the metadata)."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return  # a path entry that does not exist or may not be read offers nothing
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            information = os.path.join(directory, name)
            points = _section(_text(information, "entry_points.txt"), group)
            if points:
                yield points, _text(information, "METADATA") or _text(information, "PKG-INFO")


def _archived(archive: str, group: str) -> Iterator[tuple[_Points, str]]:
    from importlib.metadata import distributions

    for distribution in distributions(path=[archive]):
        points = _section(distribution.read_text("entry_points.txt") or "", group)
        if points:
            yield points, distribution.read_text("METADATA") or ""


def _text(directory: str, name: str) -> str:
    try:
        with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # most distributions have no entry points


def _section(text: str, group: str) -> _Points:
    """The lines below `[group]`; extras in brackets behind a module are left out."""
    points: _Points = []
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, target = line.partition("=")
            module, _, attribute = target.partition("[")[0].partition(":")
            points.append((name.strip(), module.strip(), attribute.strip()))
    return points


def _header(metadata: str, field: str) -> str:
    """One field of the metadata's header, which ends at the first blank line."""
    for line in metadata.splitlines():
        key, colon, value = line.partition(":")
        if not line.strip():
            break
        if colon and key == field:
            return value.strip()
    return ""
