"""Disks that are full, read-only, locked or not ours: the build goes on, with one warning."""

import errno
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlc.cache import Cache, Key, LocalStore, cache_directory, open_cache
from dlc.cache import directory as directory_module
from dlc.cache.blobs import Blobs
from dlc.cache.local import INLINE_LIMIT

KEY = Key.of(step="s", code="dlc 0.1.0")
BIG = b"x" * 100_000
ROOT = Path(__file__).resolve().parents[2]


def fill(directory: Path) -> None:
    with open_cache(directory, "rw") as cache:
        cache.save(KEY, {"c": b"int x;", "o": BIG}, {})
        assert cache.warnings == ()


def hits(cache: Cache) -> bool:
    record = cache.lookup(KEY)
    return record is not None and (cache.read(record.output("c")), cache.read(record.output("o"))) == (b"int x;", BIG)


def codes(cache: Cache) -> list[str]:
    return [warning.code for warning in cache.warnings]


def in_child(work: Callable[[], bool]) -> bool:
    """Run `work` in a child that is not root, since root may write anywhere."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def make_readonly(directory: Path) -> None:
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for parent in list(directory.parents)[:3]:  # pytest's own directories are private to the user
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)


@pytest.fixture
def reachable(tmp_path: Path) -> Iterator[Path]:
    """A directory that the other user of `in_child` can get to; pytest's own is private."""
    if os.geteuid() != 0:
        yield tmp_path / "c"
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "c"


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    fill(tmp_path / "a" / "c")
    for path in [tmp_path / "a" / "c", *(tmp_path / "a" / "c").rglob("*")]:
        if path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", ["ro", "require"])
def test_a_read_only_directory_serves_hits(reachable: Path, mode: str) -> None:
    fill(reachable)
    make_readonly(reachable)
    before = sorted(path.name for path in reachable.rglob("*"))
    assert in_child(lambda: hits(cache := open_cache(reachable, mode)) and cache.warnings == ())  # type: ignore[arg-type]
    assert sorted(path.name for path in reachable.rglob("*")) == before


def test_writing_to_a_read_only_directory_is_one_warning(reachable: Path) -> None:
    fill(reachable)
    if os.geteuid() == 0:
        for path in [reachable, *reachable.rglob("*")]:
            os.chown(path, 65534, 65534)
    make_readonly(reachable)

    def build() -> bool:
        cache = open_cache(reachable, "rw")
        good = hits(cache)
        for number in range(5):
            cache.save(Key.of(step="new", n=str(number)), {"c": b"y", "o": BIG + b"y"}, {})
        cache.close()
        return good and hits(cache) and codes(cache) == ["cache-read-only"]

    assert in_child(build)


def test_removing_from_a_read_only_directory_says_so(reachable: Path) -> None:
    fill(reachable)
    if os.geteuid() == 0:
        for path in [reachable, *reachable.rglob("*")]:
            os.chown(path, 65534, 65534)
    make_readonly(reachable)

    def remove() -> bool:
        with open_cache(reachable, "rw") as cache:
            held = sum(1 for entry in cache.store.entries() if entry.table != "stat")
            done = cache.trim(0)
        with open_cache(reachable, "rw") as cache:
            cleared = cache.clear()
            assert {"cache-read-only"} == set(codes(cache))
        return (done.removed, done.freed, done.kept) == (0, 0, held) == (cleared.removed, cleared.freed, cleared.kept)

    assert in_child(remove)


@pytest.mark.parametrize("word", ["trim", "clear"])
def test_what_can_be_removed_is_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    with open_cache(tmp_path, "rw") as cache:
        for number in range(4):
            outputs = {"small": b"%d" % number, "large": BIG + b"%d" % number}
            cache.save(Key.of(step="s", n=str(number)), outputs, {})
    with open_cache(tmp_path, "rw") as cache:
        before = {e.digest: e.size for e in cache.store.entries() if e.table != "stat"}
        stuck = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()][:2]
        real = Path.unlink

        def unlink(self: Path, missing_ok: bool = False) -> None:
            if self in stuck:
                raise OSError(errno.EACCES, "Permission denied", str(self))
            real(self, missing_ok)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", unlink)
            done = cache.trim(0) if word == "trim" else cache.clear()
        after = {e.digest: e.size for e in cache.store.entries() if e.table != "stat"}
        assert (done.removed, done.kept) == (len(before) - 2, 2) == (len(before) - len(after), len(after))
        assert done.freed == sum(before.values()) - sum(after.values())
        assert any(str(path) in note for w in cache.warnings for note in w.notes for path in stuck)


def test_no_space_for_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_cache(tmp_path, "rw") as cache:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            record = cache.save(Key.of(step="new"), {"o": BIG + b"y"}, {})
        assert cache.read(record.output("o")) is None
        assert hits(cache)
        assert codes(cache) == ["cache-full"]
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("size", [b"y" * 20_000, BIG + b"y"], ids=["row", "file"])
def test_disk_full(tmp_path: Path, size: bytes) -> None:
    directory = tmp_path / "c"
    fill(directory)

    def build() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        cache = open_cache(directory, "rw")
        for number in range(10):
            cache.save(Key.of(step="new", n=str(number)), {"o": size + bytes([number])}, {})
        cache.close()
        return hits(cache) and codes(cache) == ["cache-full"]

    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if build() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with open_cache(directory, "rw") as cache:
        assert hits(cache)
        assert cache.verify().bad == ()
        assert cache.warnings == ()


def test_a_lock_that_nobody_releases(tmp_path: Path) -> None:
    fill(tmp_path)
    holder = sqlite3.connect(tmp_path / "index-0" / "cache.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    begin = time.monotonic()
    cache = Cache(LocalStore(tmp_path, timeout=0.1), "rw")
    for number in range(200):
        cache.save(Key.of(step="new", n=str(number)), {"c": b"y"}, {})
    cache.close()
    assert hits(cache)
    assert codes(cache) == ["cache-locked"]
    assert time.monotonic() - begin < 10  # waiting for each would take twenty
    holder.close()


def test_a_lock_that_is_released_in_time(tmp_path: Path) -> None:
    fill(tmp_path)
    script = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); time.sleep(0.3); c.execute('COMMIT')"
    )
    database = str(tmp_path / "index-0" / "cache.db")
    with subprocess.Popen([sys.executable, "-c", script, database], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with open_cache(tmp_path, "rw") as cache:
            cache.save(Key.of(step="new"), {"c": b"y"}, {})
            assert cache.warnings == ()
    assert open_cache(tmp_path, "ro").lookup(Key.of(step="new")) is not None


def unfit(directory: Path) -> str:
    """The one warning that a directory gives; the build goes on."""
    with open_cache(directory, "rw") as cache:
        cache.save(KEY, {"c": b"x"}, {})
        assert cache.lookup(KEY) is None
        assert cache.statistics().records == 0
        (warning,) = cache.warnings
        assert warning.code == "cache-unusable"
        return warning.message


def test_unfit_directories_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert "symbolic link" in unfit(tmp_path / "link")
    (tmp_path / "file").write_text("x")
    assert "not a directory" in unfit(tmp_path / "file")
    assert "cannot create" in unfit(tmp_path / "file" / "c")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert "others can write to it (mode 0777)" in unfit(tmp_path / "open")
    assert "'$'" in unfit(tmp_path / "$HOME")
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        assert "belongs to user" in unfit(tmp_path / "open")
    with monkeypatch.context() as patch:
        patch.setattr(directory_module, "_NETWORK", {directory_module._file_system(tmp_path)})
        assert "network file system" in unfit(tmp_path / "net")


@pytest.mark.parametrize("part", ["index-0", "index-7", "objects", "objects/ab", "tmp", "corrupt", "index-0/cache.db"])
def test_links_inside_are_refused(tmp_path: Path, part: str) -> None:
    """Whoever prepares a cache must not have dlc write, or sweep for its age, what lies elsewhere."""
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    for folder in ("index-0", "objects/ab", "tmp", "corrupt"):
        (cache / folder).mkdir(parents=True, mode=0o700)
    cache.chmod(0o700)
    elsewhere.mkdir()
    (elsewhere / "letter").write_text("mine")
    os.utime(elsewhere / "letter", (0, 0))
    if (cache / part).is_dir():
        for below in (cache / part).iterdir():
            below.rmdir()
        (cache / part).rmdir()
    (cache / part).symlink_to(elsewhere)
    assert f"{part} in it is a symbolic link" in unfit(cache)
    with open_cache(cache, "rw") as opened:
        opened.trim(0)
        opened.clear()
    assert (elsewhere / "letter").read_text() == "mine"
    assert [each.name for each in elsewhere.iterdir()] == ["letter"]


def test_a_missing_directory_in_read_only_mode_is_reported(tmp_path: Path) -> None:
    with open_cache(tmp_path / "absent", "ro") as cache:
        assert cache.lookup(KEY) is None
        assert codes(cache) == ["cache-unusable"]
    assert not (tmp_path / "absent").exists()


def test_a_directory_removed_during_a_build(tmp_path: Path) -> None:
    import shutil

    fill(tmp_path / "c")
    with open_cache(tmp_path / "c", "rw") as cache:
        assert hits(cache)
        shutil.rmtree(tmp_path / "c")
        cache.save(Key.of(step="new"), {"c": b"x", "o": BIG + b"z"}, {})
        cache.lookup(Key.of(step="new"))
        assert len(cache.warnings) <= 2


def test_a_file_that_another_process_removes_while_it_is_measured_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    digest = "ab" * 32
    store.put(digest, bytes(INLINE_LIMIT + 1))
    found = Blobs.size

    def removed(self: Blobs, digest: str) -> int:
        size = found(self, digest)
        self.path(digest).unlink()
        return size

    monkeypatch.setattr(Blobs, "size", removed)
    assert store.size(digest) == INLINE_LIMIT + 1
    assert store.access == "rw" and not store.warnings


def test_left_overs_of_killed_writers_are_swept_by_age(tmp_path: Path) -> None:
    fill(tmp_path)
    old, young = (tmp_path / "tmp" / f"{digit * 24}.tmp" for digit in "ab")
    for path in (old, young):
        path.write_bytes(b"half an object")
    os.utime(old, (0, 0))
    with open_cache(tmp_path, "rw") as cache:
        cache.trim(1 << 30)
    assert (old.exists(), young.exists()) == (False, True)


def test_a_forked_child_uses_its_own_connection(tmp_path: Path) -> None:
    fill(tmp_path)
    cache = open_cache(tmp_path, "rw")
    assert hits(cache)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            cache.save(Key.of(step="child"), {"c": b"child"}, {})
            status = 0 if hits(cache) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert hits(cache)
    assert cache.lookup(Key.of(step="child")) is not None
    assert cache.warnings == ()


def test_kill_at_any_moment() -> None:
    script = ROOT / "benchmarks" / "cache_kill.py"
    done = subprocess.run(
        [sys.executable, script, "--rounds", "8"], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 faults" in done.stdout


def test_default_directory_follows_the_platform(tmp_path: Path) -> None:
    assert cache_directory(tmp_path) == tmp_path
    assert cache_directory().name == "dlc"
