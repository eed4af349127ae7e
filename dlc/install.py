"""Writing an artifact's files into a directory: all of them, or none and the directory as it was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dlc.diagnostics import ExitCode, Location, error
from dlc.manifest import NAME as MANIFEST
from dlc.staging import stage_in

if TYPE_CHECKING:
    from dlc.cache import Cache
    from dlc.interfaces import Artifact

Writer = Callable[[Path], None]
"""Makes a file that is not there yet. OSError as usual."""


class Lost(Exception):
    """A stored file that the cache no longer has."""


def install(artifact: Artifact, directory: Path) -> list[Path]:
    """Write an artifact's files: all of them, or none and an error that leaves the directory as it was.

    Raises:
        DlcError: the directory cannot be written, the disk is full, or a file's name leads out of the directory.
    """

    def writer(content: bytes | memoryview | Path) -> Writer:
        if isinstance(content, Path):
            return lambda path: _copy(content, path)
        return lambda path: _fill(path, content)

    return _install({name: writer(content) for name, content in artifact.files.items()}, directory)


def install_stored(cache: Cache, files: Mapping[str, str], directory: Path) -> list[Path]:
    """The same for files that lie in the cache, by the digests of their contents; those in place already are left.

    Raises:
        Lost: the cache has not all of them any more; the directory is as it was.
        DlcError: as `install`.
    """
    there = {name for name, digest in files.items() if _holds(cache, directory / name, digest)}

    def writer(digest: str) -> Writer:
        def write(path: Path) -> None:
            if not cache.export(digest, path):
                raise Lost(digest)

        return write

    _install({name: writer(digest) for name, digest in files.items() if name not in there}, directory)
    remember_installed(cache, {name: digest for name, digest in files.items() if name not in there}, directory)
    return [directory / name for name in files]


def remember_installed(cache: Cache, files: Mapping[str, str], directory: Path) -> None:
    """Note what installed files hold, so that the next build need not read them to know."""
    for name, digest in files.items():
        with suppress(OSError):  # nothing but time depends on it
            cache.remember_file(directory / name, digest)


def _holds(cache: Cache, path: Path, digest: str) -> bool:
    """Whether a file of our own making is what would be written; what a link leads to is somebody else's."""
    try:
        return path.is_file() and not path.is_symlink() and cache.file_digest(path) == digest
    except OSError:
        return False


def _install(files: Mapping[str, Writer], directory: Path) -> list[Path]:
    for name in files:
        if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise error("bad-file-name", f"the backend names a file {name!r}", exit_code=ExitCode.PLUGIN)
    undo: list[Callable[[], object]] = []
    try:
        try:
            if files and not os.path.lexists(directory):
                _install_new(files, directory, undo)
            else:
                _install_over(files, directory, undo)
        except BaseException:
            _unwind(undo)
            raise
    except OSError as problem:
        raise error(
            "cannot-write",
            f"{directory} cannot be written: {problem.strerror or problem}",
            location=Location(str(directory)),
            help="choose another directory with -o, or free space and check its permissions",
        ) from problem
    return [directory / name for name in files]


def _install_new(files: Mapping[str, Writer], directory: Path, undo: list[Callable[[], object]]) -> None:
    """Make the directory beside its place and move it there whole: a kill leaves all of it or nothing."""
    _make_directory(directory.parent, undo)
    with stage_in(directory.parent, f".{directory.name[:40]}-dlc-") as stage:
        (stage / "new").mkdir()
        _write_all(files, stage / "new")
        os.rename(stage / "new", directory)


def _install_over(files: Mapping[str, Writer], directory: Path, undo: list[Callable[[], object]]) -> None:
    """Replace files one by one. The manifest goes first and comes last: a kill in between leaves a directory that says
    of itself that it is incomplete."""
    _make_directory(directory, undo)
    if not files:
        return
    with stage_in(directory, ".dlc-") as stage:
        _write_all(files, stage / "new")
        manifest = directory / MANIFEST
        if MANIFEST in files and manifest.is_file():
            _keep(manifest, stage / MANIFEST)
            undo.append(lambda: os.replace(stage / MANIFEST, manifest))
            manifest.unlink()
        try:
            for name in sorted(files, key=MANIFEST.__eq__):
                _replace(stage, name, directory, undo)
        except BaseException:
            _unwind(undo)  # while what is to be brought back is still there
            raise


def _write_all(files: Mapping[str, Writer], directory: Path) -> None:
    for name, write in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        write(directory / name)


def _make_directory(directory: Path, undo: list[Callable[[], object]]) -> None:
    """Make a directory and those above it; undoing removes what was made."""
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        undo.append(made.rmdir)
    if not missing:
        directory.mkdir(exist_ok=True)  # says so if it is something else


def _replace(stage: Path, name: str, directory: Path, undo: list[Callable[[], object]]) -> Path:
    """Move one staged file to its place; undoing brings back what was there."""
    target, new, old = directory / name, stage / "new" / name, stage / "old" / name
    _make_directory(target.parent, undo)
    if target.exists() or target.is_symlink():
        old.parent.mkdir(parents=True, exist_ok=True)
        _keep(target, old)
        os.replace(new, target)
        undo.append(lambda: os.replace(old, target))
    else:
        os.replace(new, target)
        undo.append(target.unlink)
    return target


def _keep(target: Path, old: Path) -> None:
    """A second name for a file, so that at no moment its place is empty; a copy where there are no links."""
    try:
        os.link(target, old, follow_symlinks=False)
    except OSError:
        shutil.copy2(target, old, follow_symlinks=False)


def _unwind(undo: list[Callable[[], object]]) -> None:
    while undo:
        with suppress(OSError):  # what cannot be undone must not keep the rest from it
            undo.pop()()


def _copy(source: Path, path: Path) -> None:
    shutil.copyfile(source, path)


def _fill(path: Path, content: bytes | memoryview) -> None:
    path.write_bytes(content)
