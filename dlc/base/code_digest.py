"""Identity of the code that computes a result, so that a changed compiler never reads a stale cache entry."""

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec


@lru_cache(maxsize=64)
def code_digest(package: str) -> str:
    """SHA-256 over the files of an importable package (or the one file of a module), in hexadecimal.

    Names are relative to the package, so the digest is the same wherever it is installed. Every file counts, not only
    `.py`: templates and headers end in the output too. Computed once per process, because running code does not change.
    A package that is not there has a digest too, which no other has: a plugin whose package is gone is part of keys.
    """
    roots, origin = _place(package)
    digest = hashlib.sha256()
    if not roots and not os.path.isfile(origin):  # gone, or part of the interpreter
        digest.update(f"{package} {origin} {sys.version if origin else 'is not importable'}".encode())
    for name, path in sorted(_files(roots, origin)):
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        # Both lengths are hashed, so no two different sets of files share one stream of bytes.
        digest.update(f"{len(name.encode())} {len(content)}\n{name}".encode())
        digest.update(content)
    return digest.hexdigest()


def _place(package: str) -> tuple[tuple[str, ...], str]:
    """(directories of a package, its file or what else it is part of); neither where it cannot be imported."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError, AttributeError):  # an empty name, or a module that says nothing of where it is
        spec = None
    if spec is None:
        return (), ""
    roots = tuple(map(str, spec.submodule_search_locations or ()))
    archive: object = getattr(spec.loader, "archive", "")  # of a package in a zip
    if isinstance(archive, str) and archive:
        return (), archive
    return roots, spec.origin or ""


def _files(roots: Iterable[str], origin: str) -> Iterator[tuple[str, str]]:
    """(relative POSIX name, path) of everything a package holds except bytecode."""
    found = False
    for root in roots:
        if os.path.isdir(root):
            found = True
            yield from _below(root, "")
    if not found and os.path.isfile(origin):
        yield os.path.basename(origin), origin


def _below(directory: str, prefix: str) -> Iterator[tuple[str, str]]:
    # Not Path.rglob: this runs at the start of every build, and one call per entry is what it should cost.
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _below(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file() and not entry.name.endswith(".pyc"):
                yield prefix + entry.name, entry.path
