"""Files of arrays that users name: how they are given, and one error for all that can be wrong in reading one."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Final

from dlc.base.diagnostics import DlcError, ExitCode, Location, error

_DAMAGED: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    TypeError,
    OverflowError,
    EOFError,
    SyntaxError,
    TokenError,
    RuntimeError,
)
"""What reading a damaged file raises. The header of an .npy is a Python literal, so anything can go wrong in it."""


def named_file(text: str) -> tuple[str, Path]:
    """`name=file` → (name, file); a file that exists under the whole text wins."""
    if Path(text).exists() or "=" not in text:
        return "", Path(text)
    name, _, path = text.rpartition("=")
    return name, Path(path)


@contextmanager
def readable(path: Path, writer: str) -> Generator[None]:
    """Whatever goes wrong in reading a file becomes one error about it.

    Args:
        path: The file.
        writer: What writes such files, with its verb, for the help of the error: "numpy.save writes".
    """
    try:
        yield
    except OSError as problem:
        raise unreadable(path, problem.strerror or str(problem), writer) from None
    except MemoryError:
        raise unreadable(path, "it says that it holds more than there is memory", writer) from None
    except _DAMAGED as problem:
        raise unreadable(path, str(problem), writer) from None


def unreadable(path: Path, reason: str, writer: str) -> DlcError:
    """The error that a file cannot be read: why, and what writes such files."""
    return error(
        "unreadable-file",
        f"{path} cannot be read: {reason}",
        location=Location(str(path)),
        help=f"{writer} such files" if path.is_file() else "check the path and its permissions",
        exit_code=ExitCode.USAGE,
    )
