"""Configuration files that the user trusts to say what dlc runs, each as it was when they said so.

    STATE/dlc/trusted/<digest of path and text>      one file per trusted text; it holds the path

A file that is edited, moved or replaced has another digest and is asked about again, as direnv does it. A file beside
the package `dlc` itself, as in a checkout that is installed with `pip install -e`, is trusted as the code is that runs.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from dlc.base.own_places import user_state
from dlc.files.writing import write_whole


def is_trusted(file: Path, text: str) -> bool:
    """Whether the user trusts a file with this text."""
    if os.path.realpath(file.parent) == _home_of_code():
        return True
    try:
        return _record(file, text).is_file()
    except OSError:
        return False


def trust(file: Path, text: str) -> None:
    """Remember that the user trusts a file with this text. Raises DlcError when that cannot be written."""
    content = os.fsencode(os.path.realpath(file)) + b"\n"
    write_whole(_record(file, text), content, make_directory=True)


def distrust(file: Path) -> int:
    """Forget every text of a file that was trusted; how many there were."""
    path = os.fsencode(os.path.realpath(file))
    count = 0
    for record in sorted(_records().glob("*")):
        with suppress(OSError):  # another process was faster
            if record.read_bytes().rstrip(b"\n") == path:
                record.unlink()
                count += 1
    return count


def _home_of_code() -> str:
    """The directory that holds the package `dlc`: who can write there can change what runs anyway."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def _records() -> Path:
    return user_state() / "trusted"


def _record(file: Path, text: str) -> Path:
    """The name tells path and text apart by the path's length."""
    path = os.fsencode(os.path.realpath(file))
    digest = hashlib.sha256(f"{len(path)}\n".encode() + path + text.encode("utf-8", "surrogatepass"))
    return _records() / digest.hexdigest()
