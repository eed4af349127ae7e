"""Whether a directory is fit to hold a cache: private, ours, local. Anyone who can write to it can make us run code."""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from dlc.base.diagnostics import Diagnostic, escape

NOT_A_CACHE = "not-a-cache"
"""Code of the diagnostic that a directory is something else than a cache."""
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "lustre", "beegfs", "gpfs", "fuse.sshfs"})
_GENERATION = re.compile(r"index-(\d{1,6})")
_OWN = re.compile(rf"{_GENERATION.pattern}|objects|tmp|corrupt|running|used")
_FAN = re.compile(r"[0-9a-f]{2}")
_DATABASE = re.compile(r"cache\.db.*")
MARK = ".dlc-cache"
"""The file that says that a directory is a cache, with a random name. Without it nothing is kept or removed there."""
_MARK_HEAD = b"dlc cache 1\n"
_TAG_FILE = "CACHEDIR.TAG"  # https://bford.info/cachedir/ : backup programs skip a directory with this file
_TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# dlc's cache: everything in it can be rebuilt.\n"


def prepare(directory: Path, *, readonly: bool) -> Diagnostic | None:
    """Create the directory (mode 0700) unless `readonly`, and check it; the reason why it cannot be used, or None."""
    if not readonly and not os.path.lexists(directory):
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _mark(directory)
            (directory / _TAG_FILE).write_text(_TAG_TEXT, encoding="ascii")
        except OSError as failure:
            if not directory.is_dir():
                return unusable(directory, f"cannot create it: {failure.strerror}")
    return _check(directory, readonly=readonly) or _claim(directory, readonly=readonly)


def is_marked(directory: Path) -> bool:
    """Whether a directory has the mark of a cache, made by its owner or by root."""
    try:
        file = os.open(directory / MARK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        status = os.fstat(file)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid in (os.geteuid(), 0)
        return ours and _MARK_HEAD.startswith(os.read(file, len(_MARK_HEAD)))  # it may be written at this moment
    finally:
        os.close(file)


def _claim(directory: Path, *, readonly: bool) -> Diagnostic | None:
    """Mark an empty directory, or a cache of a dlc that made no mark yet. Why a directory is none, or None."""
    if is_marked(directory):
        return None
    names = {name for name in os.listdir(directory) if name != "lost+found"}
    if names and not _is_older(directory, names):
        shown = ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")
        return Diagnostic(
            NOT_A_CACHE,
            f"{escape(str(directory))} is not a cache of dlc, and not empty: it holds {escape(shown)}",
            notes=(
                "dlc keeps its cache only in directories that it has made or marked, as it also removes files there",
            ),
            help="give a new or an empty directory",
        )
    if not readonly:
        with suppress(OSError):  # a medium that cannot be written is reported by whoever writes
            _mark(directory)
    return None


def _mark(directory: Path) -> None:
    with suppress(FileExistsError):  # by another process
        file = os.open(directory / MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(file, _MARK_HEAD + secrets.token_hex(16).encode() + b"\n")
        finally:
            os.close(file)


def _is_older(directory: Path, names: set[str]) -> bool:
    """Whether a directory without a good mark was made as a cache: by its tag, or by all that is in it."""
    with suppress(OSError, UnicodeDecodeError):
        tag = directory / _TAG_FILE
        if not tag.is_symlink() and tag.read_text(encoding="ascii") == _TAG_TEXT:
            return True
    indexed = any((directory / f"index-{number}" / "cache.db").is_file() for number in generations(directory))
    return indexed and all(_OWN.fullmatch(name) or name in (_TAG_FILE, MARK) for name in names)


def unusable(directory: Path, reason: str, help: str = "give another directory with --cache-dir") -> Diagnostic:
    """The warning that a build goes on without this cache."""
    return Diagnostic("cache-unusable", f"building without the cache in {directory}: {reason}", "warning", help=help)


def current_index(directory: Path) -> Path:
    """The directory of the newest index database; it need not exist.

    A corrupt database is left to a newer generation instead of being renamed: other processes may have it open, and
    SQLite removes its side files by path.
    """
    return directory / f"index-{max(generations(directory), default=0)}"


def next_index(current: Path) -> Path:
    """The generation after `current`."""
    match = _GENERATION.fullmatch(current.name)
    assert match, current
    return current.with_name(f"index-{int(match[1]) + 1}")


def generations(directory: Path) -> list[int]:
    """Numbers of the index directories that exist, ascending."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(int(match[1]) for name in names if (match := _GENERATION.fullmatch(name)))


def drop_old_indexes(directory: Path) -> None:
    """Remove all generations but the newest. OSError as usual."""
    for number in generations(directory)[:-1]:
        folder = directory / f"index-{number}"
        for file in ("cache.db", "cache.db-wal", "cache.db-shm", "cache.db-journal"):
            (folder / file).unlink(missing_ok=True)
        with suppress(OSError):  # somebody else put something there
            folder.rmdir()


def _check(directory: Path, *, readonly: bool) -> Diagnostic | None:
    try:
        status = directory.lstat()
    except OSError as failure:
        return unusable(directory, failure.strerror or "cannot be examined")
    # A read-only cache baked into an image by root is as trustworthy as the rest of the image.
    owners = {os.geteuid(), 0} if readonly else {os.geteuid()}
    if stat.S_ISLNK(status.st_mode):
        return unusable(directory, "it is a symbolic link", "give the directory that the link leads to")
    if not stat.S_ISDIR(status.st_mode):
        return unusable(directory, "it is not a directory")
    if status.st_uid not in owners:
        return unusable(directory, f"it belongs to user {status.st_uid}, not to user {os.geteuid()} who is running dlc")
    if status.st_mode & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        return unusable(
            directory, f"others can write to it (mode {mode:04o})", f"empty it, then: chmod 700 {directory}"
        )
    if linked := _linked(directory):
        what = f"{linked.relative_to(directory)} in it is a symbolic link"
        return unusable(directory, what, "remove the link: what it leads to is not part of a cache")
    if "$" in str(directory.absolute()):  # diskcache would expand it as an environment variable
        return unusable(directory, "its path contains '$'")
    if (kind := _file_system(directory)) in _NETWORK:
        return unusable(directory, f"it is on a network file system ({kind}), where SQLite's locks are unreliable")
    return None


def _linked(directory: Path) -> Path | None:
    """A directory or database of ours that is a symbolic link: what is written, or swept for its age, would lie
    somewhere else."""
    indexes = [(directory / f"index-{number}", _DATABASE) for number in generations(directory)]
    for folder, names in ((directory, _OWN), (directory / "objects", _FAN), *indexes):
        try:
            with os.scandir(folder) as found:
                links = sorted(each.name for each in found if each.is_symlink() and names.fullmatch(each.name))
        except OSError:
            continue  # not there, or reported by whoever needs it
        if links:
            return folder / links[0]
    return None


def _file_system(directory: Path) -> str:
    """Type of the file system that holds `directory`; empty where /proc does not tell."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    path, best, kind = os.path.realpath(directory) + "/", "", ""
    for mount in mounts:
        fields = mount.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[1]).rstrip("/") + "/"
        if path.startswith(point) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
