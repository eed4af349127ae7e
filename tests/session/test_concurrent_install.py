"""Many processes, one output directory: it is wholly of one of them, whoever looks and whoever is killed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dlc.files.locking
import dlc.runtime.install
from dlc import Artifact, DlcError, Signature
from dlc.cache import Cache, Key, MemoryStore
from dlc.files.locking import directory_lock
from dlc.runtime.install import install, install_stored
from tests.session.building import contents

MANIFEST = "manifest.json"


def program(which: int) -> dict[str, bytes]:
    """The files of a model; all but one name are the same for all models, and so is one content."""
    files = {f"part{k}.bin": f"model {which} part {k}".encode() * 50 for k in range(6)}
    files |= {"common.h": b"the same in all", "deep/part.bin": bytes([which]) * 3000, f"only{which}.c": b"x"}
    text = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return {**files, MANIFEST: json.dumps(text).encode()}


def whole(directory: Path) -> bool:
    """Whether every file is the one that the manifest describes."""
    text = json.loads((directory / MANIFEST).read_bytes())
    return all(hashlib.sha256((directory / name).read_bytes()).hexdigest() == d for name, d in text.items())


def children(tasks: list[Callable[[], object]]) -> list[int]:
    """A process for each task; it ends with status 0 if the task does not raise."""
    started: list[int] = []
    for task in tasks:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                task()
                status = 0
            finally:
                os._exit(status)
        started.append(pid)
    return started


def statuses(started: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started]


def installer(which: int, out: Path, rounds: int, *, stored: bool) -> Callable[[], object]:
    """Installs a model so often: from memory, or from a cache, where what is in place stays."""

    def task() -> None:
        cache = Cache(MemoryStore(), "rw")
        digests = dict(cache.save(Key.of(step="s"), {**program(which)}, {}).outputs)
        for _ in range(rounds):
            if stored:
                install_stored(cache, digests, out)
            else:
                install(Artifact("t", {**program(which)}, "", Signature((), ())), out)

    return task


def watcher(out: Path, looks: int) -> Callable[[], object]:
    """Looks at the directory while it is locked for readers; raises if it is a mixture."""

    def task() -> None:
        while not out.exists():
            time.sleep(0.001)
        for _ in range(looks):
            with directory_lock(out, shared=True):
                assert whole(out)

    return task


@pytest.mark.parametrize("models", [1, 2])
def test_installers_of_one_directory_take_turns(models: int, tmp_path: Path) -> None:
    for attempt in range(2):
        out = tmp_path / f"deep{attempt}" / "out"
        tasks = [installer(k % models, out, 12, stored=k % 3 > 0) for k in range(8)]
        started = children([*tasks, watcher(out, 150), watcher(out, 150)])
        assert statuses(started) == [0] * len(started)
        assert whole(out) and sorted(os.listdir(out.parent)) == ["out"]
        found = contents(out)
        which = next(k for k in range(models) if found[MANIFEST] == program(k)[MANIFEST])
        assert {name: found[name] for name in program(which)} == program(which)
        assert set(found) == {name for k in range(models) for name in program(k)}


def test_the_first_of_many_makes_the_directory_and_none_fails(tmp_path: Path) -> None:
    for attempt in range(5):
        out = tmp_path / f"a{attempt}" / "b" / "out"
        assert statuses(children([installer(k % 2, out, 1, stored=False) for k in range(6)])) == [0] * 6
        assert whole(out)


def test_killed_installers_leave_a_whole_directory_or_one_without_manifest(tmp_path: Path) -> None:
    out, chance = tmp_path / "out", random.Random(5)
    for _ in range(6):
        started = children([installer(k % 2, out, 50, stored=k == 2) for k in range(3)])
        time.sleep(chance.uniform(0.002, 0.03))
        for pid in started:
            os.kill(pid, signal.SIGKILL)
        assert set(statuses(started)) <= {0, -signal.SIGKILL}
        if (out / MANIFEST).exists():
            assert whole(out)
    installer(1, out, 1, stored=False)()  # cleans up after them, because it has something to write
    assert whole(out) and not [name for name in os.listdir(out) if name.startswith(".")]
    assert os.listdir(tmp_path) == ["out"]


def test_a_failing_installer_takes_nothing_from_the_others(tmp_path: Path) -> None:
    """What it undoes is its own: not the directories that others use, nor the files that they installed meanwhile."""

    def failing(out: Path) -> Callable[[], object]:
        def task() -> None:
            for _ in range(12):
                with pytest.raises(DlcError, match="cannot be written"):
                    broken = {**program(2), "z.bin": tmp_path / "no such file"}
                    install(Artifact("t", broken, "", Signature((), ())), out)
                with pytest.raises(DlcError, match="cannot be written"):  # found when half of it is replaced
                    late = {**program(2), "trap": b"a directory is there"}
                    install(Artifact("t", late, "", Signature((), ())), out.parent / "other")

        return task

    other = tmp_path / "other"
    (other / "trap").mkdir(parents=True)
    for attempt in range(3):
        out = tmp_path / f"d{attempt}" / "out"
        (out.parent / "other" / "trap").mkdir(parents=True)
        inside = out.parent / "other"
        tasks = [*(failing(out) for _ in range(2)), *(installer(k, inside, 12, stored=k == 1) for k in range(2))]
        started = children([*tasks, installer(0, out, 12, stored=False)])
        assert statuses(started) == [0] * len(started)
        assert whole(out) and whole(inside) and not (inside / "only2.c").exists()


def test_a_lock_that_another_program_keeps_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlc.files.locking, "_PATIENCE", 0.05)
    installer(0, tmp_path / "out", 1, stored=False)()
    held = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(DlcError, match="another process has held the lock"):
        installer(1, tmp_path / "out", 1, stored=False)()
    os.close(held)
    assert contents(tmp_path / "out") == program(0)


def test_without_locks_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    for which in (0, 1):
        installer(which, tmp_path / "out", 2, stored=True)()
        assert whole(tmp_path / "out")


def test_a_directory_that_appears_while_one_is_made_is_installed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def late(source: Path, target: Path) -> None:
        if not target.exists():
            monkeypatch.setattr(os, "rename", real)
            installer(0, target, 1, stored=False)()
        real(source, target)

    monkeypatch.setattr(dlc.runtime.install.os, "rename", late)
    installer(1, tmp_path / "out", 1, stored=False)()
    assert contents(tmp_path / "out") == {**program(0), **program(1)}
