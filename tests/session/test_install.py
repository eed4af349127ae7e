"""Output directories: whole or as before, whatever fails and whoever is killed."""

import errno
import fcntl
import os
import signal
import time
from pathlib import Path

import pytest

import dlc.runtime.install
from dlc import Artifact, DlcError, Signature
from dlc.cache import Cache, Key, MemoryStore
from dlc.files.hashing import file_sha256
from dlc.files.staging import stage_in
from dlc.runtime.install import Lost, install, install_stored
from tests.session.building import contents

FIRST = {"a.c": b"1", "sub/b.bin": b"22", "manifest.json": b"{}"}
SECOND = {"a.c": b"one", "manifest.json": b"{ }", "sub/c.bin": b"three"}


def artifact(files: dict[str, bytes | Path]) -> Artifact:
    return Artifact("t", {**files}, "a.c", Signature((), ()))


def test_a_new_directory_appears_whole_and_an_old_one_keeps_what_is_not_ours(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    written = install(artifact({**FIRST}), out)
    assert contents(out) == FIRST and written == {out / name: len(data) for name, data in FIRST.items()}
    (out / "mine.txt").write_bytes(b"kept")
    install(artifact({**SECOND}), out)
    assert contents(out) == {**FIRST, **SECOND, "mine.txt": b"kept"}
    assert [p.name for p in out.parent.iterdir()] == ["out"]


def test_new_directories_and_files_have_the_users_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        install(artifact({**FIRST}), tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "out" / "a.c").stat().st_mode & 0o777 == 0o640


def test_what_fails_leaves_no_trace(tmp_path: Path) -> None:
    absent = tmp_path / "no such file"
    broken = artifact({**SECOND, "z.bin": absent})
    with pytest.raises(DlcError, match="cannot be written"):
        install(broken, tmp_path / "new" / "out")
    assert not list(tmp_path.iterdir())
    install(artifact({**FIRST}), tmp_path / "out")
    (tmp_path / "out" / "sub" / "c.bin").mkdir()  # a directory where a file must go: found late
    with pytest.raises(DlcError, match="cannot be written"):
        install(artifact({**SECOND}), tmp_path / "out")
    assert contents(tmp_path / "out") == FIRST
    (tmp_path / "file").write_text("x")
    with pytest.raises(DlcError, match="cannot be written"):
        install(artifact({**FIRST}), tmp_path / "file")


def slow(source: Path, path: Path) -> None:
    """Copying a file that takes long."""
    time.sleep(60)


@pytest.mark.parametrize("name", ["", "../x", "/x", "a/../../x"])
def test_names_that_lead_out_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DlcError, match=r"returned the file name .*, which is not inside the program's directory"):
        install(artifact({name: b""}), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_process_killed_while_it_writes_leaves_nothing_that_looks_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(artifact({**FIRST}), tmp_path / "old")
    monkeypatch.setattr(dlc.runtime.install, "_copy", slow)
    for out in ("old", "new"):
        pid = os.fork()
        if pid == 0:
            try:
                install(artifact({**SECOND, "z.bin": Path("large")}), tmp_path / out)
            finally:
                os._exit(1)
        stages = f"{out}/.dlc-*" if out == "old" else f".{out}-dlc-*"
        while not list(tmp_path.glob(f"{stages}/new/sub/c.bin")):
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert list(tmp_path.glob(stages))
    assert {k: v for k, v in contents(tmp_path / "old").items() if not k.startswith(".")} == FIRST
    assert not (tmp_path / "new").exists()
    for out in ("old", "new"):
        install(artifact({**SECOND}), tmp_path / out)
    assert {p.name for p in tmp_path.iterdir()} == {"old", "new"}
    assert contents(tmp_path / "old") == {**FIRST, **SECOND} and contents(tmp_path / "new") == SECOND


def test_the_stage_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    with stage_in(tmp_path, ".s-") as mine:
        (mine / "work").write_text("x")
        pid = os.fork()
        if pid == 0:
            try:
                with stage_in(tmp_path, ".s-"):
                    os._exit(0 if (mine / "work").exists() else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert (mine / "work").exists()
        held = os.open(mine, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(held)
    with stage_in(tmp_path, ".s-"):
        assert len(list(tmp_path.iterdir())) == 1  # the child's, which ended without cleaning up, is gone


def test_a_file_system_without_locks_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".dlc-of-another").mkdir()
    install(artifact({**FIRST}), tmp_path / "out")
    assert contents(tmp_path / "out") == FIRST
    assert (tmp_path / "out" / ".dlc-of-another").exists()


def test_stored_files_are_written_only_where_they_are_not(tmp_path: Path) -> None:
    cache = Cache(MemoryStore(), "rw")
    record = cache.save(Key.of(step="s"), {**FIRST}, {})
    files = dict(record.outputs)
    install_stored(cache, files, tmp_path / "out")
    assert contents(tmp_path / "out") == FIRST
    before = {name: (tmp_path / "out" / name).stat().st_ino for name in FIRST}
    (tmp_path / "out" / "a.c").write_bytes(b"mine")
    install_stored(cache, files, tmp_path / "out")
    assert contents(tmp_path / "out") == FIRST
    assert (tmp_path / "out" / "sub" / "b.bin").stat().st_ino == before["sub/b.bin"]
    with pytest.raises(Lost):
        install_stored(cache, {**files, "more": "0" * 64}, tmp_path / "out")
    with pytest.raises(Lost):
        install_stored(cache, {**files, "more": "0" * 64}, tmp_path / "fresh")
    assert contents(tmp_path / "out") == FIRST and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_link_in_the_output_is_replaced_not_followed(tmp_path: Path) -> None:
    cache = Cache(MemoryStore(), "rw")
    files = dict(cache.save(Key.of(step="s"), {**FIRST}, {}).outputs)
    install_stored(cache, files, tmp_path / "out")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(FIRST["a.c"])
    (tmp_path / "out" / "a.c").unlink()
    (tmp_path / "out" / "a.c").symlink_to(elsewhere)
    install_stored(cache, files, tmp_path / "out")
    assert not (tmp_path / "out" / "a.c").is_symlink() and contents(tmp_path / "out") == FIRST


def test_a_file_is_hashed_once_while_it_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counting(path: Path, algorithm: str) -> str:
        read.append(path)
        return file_sha256(path)

    monkeypatch.setattr("dlc.cache.files.settled_digest", counting)
    cache, path = Cache(MemoryStore(), "rw"), tmp_path / "model"
    path.write_bytes(b"one")
    with monkeypatch.context() as patch:
        patch.setattr("dlc.files.inputs.SETTLED", 10**12)  # however slow the machine is
        assert cache.file_sha256(path) == cache.file_sha256(path)
    assert len(read) == 2  # so new that another change could have the same time
    time.sleep(0.15)
    first = [cache.file_sha256(path) for _ in range(3)]
    assert len(read) == 3 and len(set(first)) == 1
    times = path.stat().st_mtime_ns
    path.write_bytes(b"two")
    os.utime(path, ns=(times, times))  # the same size and time; the change time tells
    assert cache.file_sha256(path) != first[0]
    os.replace(path, tmp_path / "moved")
    path.write_bytes(b"one")
    assert cache.file_sha256(path) == first[0]
