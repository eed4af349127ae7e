"""Files that dlc leaves for its user beside programs: reports, dumps, arrays."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dlc.base.diagnostics import Location, error


def write_whole(path: Path, content: bytes, *, make_directory: bool = False, durable: bool = False) -> None:
    """Write a file, whole or not at all; with `make_directory`, the directories above it as well.

    With `durable` a power cut leaves it whole or as before, too. Raises DlcError when that cannot be done.
    """
    if path.exists() and not path.is_file():
        # It would be replaced by a file: a device would be gone for every program on the machine.
        what = "a directory" if path.is_dir() else "a device or pipe"
        raise error(
            "cannot-write", f"{path} is {what}", location=Location(str(path)), help="give the name of a file to make"
        )
    try:
        if make_directory:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, [content], durable=durable)
    except OSError as problem:
        raise error(
            "cannot-write",
            f"{path} cannot be written: {problem.strerror or problem}",
            location=Location(str(path)),
            help="choose another place, or free space and check its permissions"
            if path.parent.is_dir()
            else f"make the directory {path.parent} first, or choose another place",
        ) from None


def write_atomically(target: Path, chunks: Iterable[bytes | memoryview], *, durable: bool = False) -> None:
    """Write `target` through a temporary file beside it, so that it is whole or as before. OSError as usual.

    With `durable` that holds after a power cut, too: the content is on the medium before it takes the name. An
    exception from `chunks` leaves `target` untouched as well."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}-", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp gives 0600; the file is the user's product, not a secret
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
