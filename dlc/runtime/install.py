"""Writing an artifact's files into a directory: all of them, or none and the directory as it was."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dlc.base.diagnostics import ExitCode, Location, error
from dlc.files.hashing import OwnedFile, file_sha256
from dlc.files.linking import link_or_copy
from dlc.files.locking import directory_lock
from dlc.files.staging import remove_abandoned, stage_in
from dlc.runtime.manifest import NAME as MANIFEST

if TYPE_CHECKING:
    from dlc.api.artifact import Artifact
    from dlc.cache import Cache

Writer = Callable[[Path], None]
"""Makes a file that is not there yet. OSError as usual."""

_ATTEMPTS = 20


class Lost(Exception):
    """A stored file that the cache no longer has."""


def install(artifact: Artifact, directory: Path) -> dict[Path, int]:
    """Write an artifact's files: all of them, or none and an error that leaves the directory as it was.

    Processes that install into one directory take turns, so in the end it holds the files of the last one.

    Returns:
        Bytes of every file, by path.

    Raises:
        DlcError: the directory cannot be written, the disk is full, or a file's name leads out of the directory.
    """

    def writer(content: bytes | memoryview | Path) -> Writer:
        if isinstance(content, OwnedFile):
            return lambda path: link_or_copy(content, path)
        if isinstance(content, Path):
            return lambda path: _copy(content, path)
        return lambda path: _fill(path, content)

    return _install({name: writer(content) for name, content in artifact.files.items()}, directory, _never)


def _never(name: str) -> bool:
    del name
    return False


def install_stored(cache: Cache, files: Mapping[str, str], directory: Path) -> dict[Path, int]:
    """The same for files that lie in the cache, by the digests of their contents; those in place already are left.

    Raises:
        Lost: the cache has not all of them any more; the directory is as it was.
        DlcError: as `install`.
    """

    def writer(digest: str) -> Writer:
        def write(path: Path) -> None:
            if not cache.export(digest, path):
                raise Lost(digest)

        return write

    absent: dict[str, str] = {}

    def in_place(name: str) -> bool:
        found = _holds(cache, directory / name, files[name])
        if not found:
            absent[name] = files[name]
        return found

    sizes = _install({name: writer(digest) for name, digest in files.items()}, directory, in_place)
    if absent:
        remember_installed(cache, {MANIFEST: files.get(MANIFEST, ""), **absent}, directory)
    return sizes


def remember_installed(cache: Cache, files: Mapping[str, str], directory: Path) -> None:
    """Note what installed files hold, so that the next build need not read them to know.

    Another process may have installed over them: only a manifest that is still the same tells that they are ours.
    """
    with suppress(OSError), directory_lock(directory, shared=True):  # nothing but time depends on it
        if MANIFEST in files and file_sha256(directory / MANIFEST) == files[MANIFEST]:
            for name, digest in files.items():
                with suppress(OSError):
                    cache.remember_file(directory / name, digest)


def _holds(cache: Cache, path: Path, digest: str) -> bool:
    """Whether a file of our own making is what would be written; what a link leads to is somebody else's."""
    try:
        return path.is_file() and not path.is_symlink() and cache.file_sha256(path) == digest
    except OSError:
        return False


def _install(files: Mapping[str, Writer], directory: Path, in_place: Callable[[str], bool]) -> dict[Path, int]:
    for name in files:
        if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise error(
                "bad-file-name",
                f"the backend returned the file name {name!r}, which is not inside the program's directory",
                exit_code=ExitCode.PLUGIN,
            )
    undo: list[Callable[[], object]] = []
    try:
        try:
            sizes = None
            if files and not os.path.lexists(directory):
                sizes = _install_new(files, directory, undo)
            if sizes is None:
                sizes = _install_over(files, directory, in_place, undo)
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
    return {directory / name: sizes[name] for name in files}


def _install_new(
    files: Mapping[str, Writer], directory: Path, undo: list[Callable[[], object]]
) -> dict[str, int] | None:
    """Make the directory beside its place and move it there whole: a kill leaves all of it or nothing.

    None when another process came first.
    """
    with ExitStack() as stack:
        stage = _pinned(stack, directory.parent, _beside(directory), undo)
        (stage / "new").mkdir()
        _write_all(files, stage / "new")
        sizes = _sizes(files, stage / "new")
        try:
            os.rename(stage / "new", directory)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return None
        return sizes


def _install_over(
    files: Mapping[str, Writer], directory: Path, in_place: Callable[[str], bool], undo: list[Callable[[], object]]
) -> dict[str, int]:
    """Replace the files that are not in place already, holding the lock of the directory while they change."""
    if not files:
        _make_directory(directory, undo)
        return {}
    with directory_lock(directory, shared=True):
        absent = [name for name in files if not in_place(name)]
        if not absent:
            return _sizes(files, directory)
    remove_abandoned(directory.parent, _beside(directory))  # of those who were killed while another one came first
    with ExitStack() as stack:
        # The stage is there before the lock is taken: while something is in it, no other directory can take the place
        # of this one by a rename.
        stage = _pinned(stack, directory, ".dlc-", undo)
        staged = set[str]()
        while True:
            # What takes long comes before the lock. Whatever another process changed meanwhile is staged as well.
            _write_all({name: files[name] for name in absent if name not in staged}, stage / "new")
            staged.update(absent)
            with directory_lock(directory):
                absent = [name for name in files if not in_place(name)]
                if staged.issuperset(absent):
                    _exchange(absent, stage, directory, undo)
                    return _sizes(files, directory)


def _exchange(names: Sequence[str], stage: Path, directory: Path, undo: list[Callable[[], object]]) -> None:
    """Replace files one by one. The manifest goes first and comes last: a kill in between leaves a directory that says
    of itself that it is incomplete."""
    try:
        manifest = directory / MANIFEST
        if MANIFEST in names and manifest.is_file():
            _keep(manifest, stage / MANIFEST)
            undo.append(lambda: os.replace(stage / MANIFEST, manifest))
            manifest.unlink()
        for name in sorted(names, key=MANIFEST.__eq__):
            _replace(stage, name, directory, undo)
    except BaseException:
        _unwind(undo)  # while the lock is held, and what is to be brought back is still there
        raise


def _beside(directory: Path) -> str:
    """How the names of stages begin that a new directory is made in."""
    return f".{directory.name[:40]}-dlc-"


def _pinned(stack: ExitStack, directory: Path, prefix: str, undo: list[Callable[[], object]]) -> Path:
    """A stage in a directory, which is made if it is missing.

    Until the stage is in it, another process that made the directory and failed may take it away again.
    """
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            _make_directory(directory, undo)
            return stack.enter_context(stage_in(directory, prefix))
    raise FileNotFoundError(errno.ENOENT, "other processes keep removing it", str(directory))


def _sizes(names: Iterable[str], directory: Path) -> dict[str, int]:
    """Bytes of every file, yielded while no other process can replace it."""
    return {name: (directory / name).stat().st_size for name in names}


def _write_all(files: Mapping[str, Writer], directory: Path) -> None:
    for name, write in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        write(directory / name)


def _make_directory(directory: Path, undo: list[Callable[[], object]]) -> None:
    """Make a directory and those above it; undoing removes what was made."""
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    for made in reversed(missing):
        try:
            made.mkdir()
        except FileExistsError:
            if not made.is_dir():
                raise
            continue  # by another process, which may still need it
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
