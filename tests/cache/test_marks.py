"""A directory is a cache only if dlc made or marked it, and nothing but dlc's own files is ever removed from it."""

import os
import secrets
import shutil
from pathlib import Path

import pytest

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cache import Key, open_cache
from dlc.cache.directory import MARK
from dlc.files.staging import remove_abandoned, stage_in

KEY = Key.of(step="s")
FOLDERS = ("tmp", "corrupt", "running", "used", "objects", "index-0", "index-1")


def theirs(directory: Path) -> list[Path]:
    """Old files of the user's under the names of our folders, some of them in directories."""
    found: list[Path] = []
    for folder in FOLDERS:
        (directory / folder / "album" / "2019").mkdir(parents=True)
        found += [directory / folder / name for name in ("letter.txt", "photo.tmp", "a.uses", "dlc-notes.txt")]
        found.append(directory / folder / "album" / "2019" / "photo.jpg")
    for path in found:
        path.write_bytes(b"mine")
        os.utime(path, (0, 0))
    for folder in sorted(directory.rglob("*"), reverse=True):
        if folder.is_dir():
            os.utime(folder, (0, 0))
    return found


def used(directory: Path) -> None:
    """All that removes something."""
    with open_cache(directory, "rw", size_limit=1) as cache:
        cache.save(KEY, {"c": bytes(100_000)}, {})
    with open_cache(directory, "rw") as cache:
        cache.verify()
        cache.trim(0)
        cache.clear()


@pytest.mark.parametrize("mode", ["rw", "ro", "require", "refresh"])
def test_a_directory_of_the_users_is_refused_and_stays_as_it_is(mode: str, tmp_path: Path) -> None:
    files = theirs(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DlcError) as caught:
        open_cache(tmp_path, mode)  # type: ignore[arg-type]
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.diagnostics[0].code == "not-a-cache"
    assert sorted(tmp_path.rglob("*")) == before and all(f.read_bytes() == b"mine" for f in files)


def test_in_a_cache_only_our_own_files_are_removed(tmp_path: Path) -> None:
    with open_cache(tmp_path / "c", "rw") as cache:
        cache.save(KEY, {"c": b"x"}, {})
    shutil.rmtree(tmp_path / "c" / "index-0")
    for folder in FOLDERS:
        shutil.rmtree(tmp_path / "c" / folder, ignore_errors=True)
    files = theirs(tmp_path / "c")
    used(tmp_path / "c")
    assert [f for f in files if not f.exists()] == []


def test_what_killed_processes_leave_is_removed(tmp_path: Path) -> None:
    with open_cache(tmp_path, "rw") as cache:
        cache.save(KEY, {"c": b"x"}, {})
    made = [tmp_path / "tmp" / f"{secrets.token_hex(12)}.tmp", tmp_path / "tmp" / "dlc-ab12_xyz" / "weights.bin"]
    made += [tmp_path / "corrupt" / f"{'a' * 64}.{secrets.token_hex(4)}"]
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "letter").write_bytes(b"mine")
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left")
        os.utime(path, (0, 0))
    link = tmp_path / "tmp" / "dlc-ab12_xyz" / "link"
    link.symlink_to(outside)
    os.utime(link.parent, (0, 0))
    with open_cache(tmp_path, "rw") as cache:
        cache.clear()
    assert not any(path.exists() for path in made) and not link.parent.exists()
    assert (outside / "letter").read_bytes() == b"mine"


def test_an_empty_directory_becomes_a_cache(tmp_path: Path) -> None:
    with open_cache(tmp_path, "rw") as cache:
        cache.save(KEY, {"c": b"x"}, {})
    assert (tmp_path / MARK).read_bytes().startswith(b"dlc cache 1\n")
    (tmp_path / "letter").write_bytes(b"mine")
    with open_cache(tmp_path, "rw") as cache:
        assert cache.lookup(KEY) is not None
    names = {open_cache(tmp_path.parent / name, "rw") and (tmp_path.parent / name / MARK).read_bytes() for name in "ab"}
    assert len(names) == 2


@pytest.mark.parametrize("tagged", [True, False])
def test_caches_that_were_made_before_marks_are_used(tagged: bool, tmp_path: Path) -> None:
    with open_cache(tmp_path / "c", "rw") as cache:
        cache.save(KEY, {"c": bytes(100_000)}, {})
    (tmp_path / "c" / MARK).unlink()
    if not tagged:
        (tmp_path / "c" / "CACHEDIR.TAG").unlink()
    with open_cache(tmp_path / "c", "ro") as cache:
        assert cache.lookup(KEY) is not None
    assert not (tmp_path / "c" / MARK).exists()
    with open_cache(tmp_path / "c", "rw") as cache:
        assert cache.lookup(KEY) is not None
    assert (tmp_path / "c" / MARK).is_file()


def test_a_mark_that_leads_elsewhere_is_none(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"dlc cache 1\n")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "letter").write_bytes(b"mine")
    (tmp_path / "c" / MARK).symlink_to(tmp_path / "real")
    with pytest.raises(DlcError):
        open_cache(tmp_path / "c", "rw")


def test_stages_leave_directories_whose_names_only_begin_like_theirs(tmp_path: Path) -> None:
    for name in (".dlc-cache", ".dlc-0123456789ab", ".dlc-notes-0123456789ab"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"mine")
    remove_abandoned(tmp_path, ".dlc-")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".dlc-cache", ".dlc-notes-0123456789ab"]
    with stage_in(tmp_path, ".dlc-") as stage:
        assert stage.is_dir()
    assert not stage.exists() and (tmp_path / ".dlc-cache" / "file").exists()
