"""Identity of the code that computes a result, so that a changed compiler never reads a stale cache entry."""

import hashlib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path


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
        content = path.read_bytes()
        # Both lengths are hashed, so no two different sets of files share one stream of bytes.
        digest.update(f"{len(name.encode())} {len(content)}\n{name}".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(roots: list[str] | None, origin: str | None) -> list[tuple[str, Path]]:
    """(relative POSIX name, path) of everything a package holds except bytecode."""
    if roots is None:
        assert origin is not None
        return [(Path(origin).name, Path(origin))]
    return [
        (path.relative_to(root).as_posix(), path)
        for root in roots
        for path in Path(root).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    ]
