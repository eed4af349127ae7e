"""What can go wrong with a cache's medium, and what it means for the build that goes on."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dlc.base.diagnostics import Diagnostic
from dlc.cache.directory import unusable
from dlc.cache.envelope import Damaged

Trouble: TypeAlias = Literal["corrupt", "full", "read-only", "locked", "unusable"]

# All that can come out of a damaged database or a failing medium; anything else is a bug of ours and must be seen.
TROUBLE: Final = (OSError, sqlite3.Error, Damaged, OverflowError, UnicodeError, TypeError)

_BY_ERRNO: Final[dict[int, Trouble]] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EFBIG: "full",
    errno.EROFS: "read-only",
    errno.EACCES: "read-only",
    errno.EPERM: "read-only",
    errno.EAGAIN: "locked",
}
_BY_SQLITE: Final[dict[int, Trouble]] = {
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_ERROR: "corrupt",  # our statements are right, so the tables are not what they were
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_IOERR_WRITE: "full",  # what a write beyond a quota or a file size limit comes out as
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_CANTOPEN: "read-only",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
}
_TEXT: Final[dict[Trouble, str]] = {
    "corrupt": "the index of the cache in {} is damaged; a new one is begun",
    "full": "no space left for the cache in {}; results of this build are not kept",
    "read-only": "cannot write to the cache in {}; nothing is kept in it, or removed from it",
    "locked": "another process keeps the cache in {} locked; going on without it",
}
_HELP: Final[dict[Trouble, str]] = {
    "corrupt": "`dlc cache verify` examines the whole cache",
    "full": "`dlc cache trim SIZE` makes room, `--cache-dir` moves the cache",
    "read-only": "`--cache ro` says that this is meant",
    "locked": "look for a stopped dlc process",
}


def classify(failure: Exception, database: Path) -> Trouble:
    """The kind of trouble that an exception of `TROUBLE`, met in using `database`, stands for."""
    if isinstance(failure, sqlite3.OperationalError):
        code: int | None = getattr(failure, "sqlite_errorcode", None)
        if code is None:  # raised by Python itself, for text that is not UTF-8
            return "corrupt"
        kind = _BY_SQLITE.get(code) or _BY_SQLITE.get(code & 0xFF, "unusable")
        if code == sqlite3.SQLITE_READONLY and os.access(database, os.W_OK) and os.access(database.parent, os.W_OK):
            return "corrupt"  # its header says so, the file system does not; it would stay so for ever
        return kind
    if isinstance(failure, OSError):
        return _BY_ERRNO.get(failure.errno or 0, "unusable")
    return "corrupt"  # other database errors, and values of a type or size that we never write


def warning(trouble: Trouble, directory: Path, failure: Exception) -> Diagnostic:
    """The one line that the user sees."""
    if trouble == "unusable":
        return unusable(directory, str(failure))
    text = _TEXT[trouble].format(directory)
    return Diagnostic(f"cache-{trouble}", text, "warning", notes=(str(failure),), help=_HELP[trouble])
