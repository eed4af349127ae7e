"""Identity of the code that computes a result, so that a changed compiler never reads a stale cache entry."""

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec


@lru_cache(maxsize=64)
def code_digest(package: str) -> str:
    """SHA-256 over the files of an importable package (or the one file of a module), in hexadecimal.

    Names are relative to the package, so the digest is the same wherever it is installed. Every file counts, not only
    `.py`: templates and headers end in the output too. Computed once per process, because running code does not change.
    """
    spec = find_spec(package)
    assert spec is not None, f"{package} is not importable"
    digest = hashlib.sha256()
    for name, path in sorted(_files(spec.submodule_search_locations, spec.origin)):
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        # Both lengths are hashed, so no two different sets of files share one stream of bytes.
        digest.update(f"{len(name.encode())} {len(content)}\n{name}".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(roots: list[str] | None, origin: str | None) -> Iterator[tuple[str, str]]:
    """(relative POSIX name, path) of everything a package holds except bytecode."""
    if roots is None:
        assert origin is not None
        yield os.path.basename(origin), origin
    for root in roots or ():
        yield from _below(root, "")


def _below(directory: str, prefix: str) -> Iterator[tuple[str, str]]:
    # Not Path.rglob: this runs at the start of every build, and one call per entry is what it should cost.
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _below(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file() and not entry.name.endswith(".pyc"):
                yield prefix + entry.name, entry.path
