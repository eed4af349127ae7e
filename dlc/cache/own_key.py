"""The key by which a cache knows the results of its user: HMAC-SHA256 inside of records.

    STATE/dlc/cache.key     32 random bytes, readable by their owner only; made when the first result is kept

Whoever writes a cache decides what later builds use, compiled libraries included. A directory may come with a cache,
and so a record counts only if whoever made it had the key. A MAC covers, after a word for its format, the digest of the
record's key and all of the record but its signature: objects are held against their digests wherever they are read.

With a text in place of the file, machines that have the same text, as jobs of a CI, know each other's results.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dlc.base.diagnostics import Diagnostic, ExitCode, error
from dlc.base.own_places import user_state
from dlc.cache.record import Mac, Record

LEAST_TEXT: Final = 16
"""Characters of a secret text."""
_SIZE: Final = 32
_FORMAT: Final = b"dlc cache record, mac 1\n"
_NAME: Final = "cache.key"
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True)
class OwnKey:
    """A secret that makes and checks MACs."""

    secret: bytes
    name: str
    """What tells it from others: 16 hex digits."""

    @classmethod
    def of(cls, secret: bytes) -> OwnKey:
        """The key that consists of these bytes."""
        return cls(secret, hmac.digest(secret, b"dlc cache key, name\n", "sha256").hex()[:16])

    def marked(self, record: Record) -> Record:
        """The record with the MAC of this key in place of any other."""
        return replace(record, mac=Mac(self.name, self._value(record)))

    def refusal(self, record: Record) -> str:
        """Why a record is not one of this key's, a name of `dlc.cache.signing.CAUSES`; "" if it is."""
        if record.mac is None or record.mac.key != self.name:
            return "foreign"
        return "" if hmac.compare_digest(record.mac.value, self._value(record)) else "altered"

    def _value(self, record: Record) -> str:
        message = _FORMAT + bytes.fromhex(record.key.digest) + record.body
        return hmac.digest(self.secret, message, "sha256").hex()


class UserKey:
    """The key of the user: of a text, or of the file in their state directory, which is read or made when asked for.

    Where neither can be had, a key that this process alone has: what it keeps is its own until it ends.
    """

    def __init__(self, text: str = "", directory: Path | None = None) -> None:
        """Raises DlcError (USAGE): the text is too short to be a secret."""
        if text and len(text) < LEAST_TEXT:
            message = f"the secret text of the cache has {len(text)} characters; it needs at least {LEAST_TEXT}"
            help = "DLC_CACHE_KEY=$(python3 -c 'import secrets; print(secrets.token_hex(32))')"
            raise error("bad-key", message, help=help, exit_code=ExitCode.USAGE)
        self._directory = directory
        self._lock = threading.Lock()
        self._key = OwnKey.of(hashlib.sha256(b"dlc cache key, text\n" + text.encode()).digest()) if text else None
        self.warnings: list[Diagnostic] = []

    def get(self) -> OwnKey:
        """The key, which is made if there is none."""
        with self._lock:
            if self._key is None:
                self._key = OwnKey.of(self._of_file())
            return self._key

    def refusal(self, record: Record) -> str:
        """See `OwnKey.refusal`. Without a key no record is one of its."""
        with self._lock:
            if self._key is None and not os.path.lexists(self._path):
                return "foreign"
        return self.get().refusal(record)

    @property
    def _path(self) -> Path:
        return (self._directory or user_state()) / _NAME

    def _of_file(self) -> bytes:
        path = self._path
        try:
            return _read(path) if os.path.lexists(path) else _made(path)
        except OSError as problem:
            reason = problem.strerror or str(problem)
            self.warnings.append(
                Diagnostic(
                    "cache-no-key",
                    f"the key of the cache, {path}, cannot be used: {reason}",
                    "warning",
                    notes=("what is kept in the cache now counts for this command only",),
                    help="set DLC_CACHE_KEY to a secret text, or let the directory be written by you alone",
                )
            )
            return secrets.token_bytes(_SIZE)


def _read(path: Path) -> bytes:
    """The bytes of a key's file. OSError if nobody could be sure of it."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _FLAGS)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionError(0, "it is not a file that its owner alone can read (mode 0600)")
        found = os.read(file, _SIZE + 1)
    finally:
        os.close(file)
    if len(found) != _SIZE:
        raise OSError(0, f"it has {len(found)} bytes instead of {_SIZE}; remove it, and a new one is made")
    return found


def _made(path: Path) -> bytes:
    """A new key, in its file, whole or not at all; that of another process if that was faster. OSError as usual."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = secrets.token_bytes(_SIZE)
    temporary = path.with_name(f".{_NAME}-{secrets.token_hex(6)}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    try:
        try:
            os.write(file, made)
            os.fsync(file)
        finally:
            os.close(file)
        with suppress(FileExistsError):
            _named(temporary, path)
            return made
    finally:
        temporary.unlink(missing_ok=True)
    return _read(path)


def _named(temporary: Path, path: Path) -> None:
    """Give a file its name, unless there is one of that name: FileExistsError then."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError from None
        os.rename(temporary, path)
