"""Processes that share a cache make each result once; nobody waits for the dead, or for ever."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlc.cache import Key, open_cache
from dlc.cache.flights import Flights

KEY = Key.of(step="test", input="0")
HOLDER = """
import sys, time
from pathlib import Path
from dlc.cache.flights import Flights
with Flights(Path(sys.argv[1])).alone(sys.argv[2], lambda: None):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(name="holder")
def fixture_holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that makes the result of the key."""
    line = [sys.executable, "-c", HOLDER, str(tmp_path), KEY.digest]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_who_is_killed_frees_the_lock(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    waiting = threading.Event()
    threading.Thread(target=lambda: (waiting.wait(20), holder.kill())).start()
    start = time.monotonic()
    with Flights(tmp_path).alone(KEY.digest, waiting.set) as waited:
        assert waited and waiting.is_set()
    assert time.monotonic() - start < 20


def test_other_keys_do_not_wait(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    assert holder.poll() is None
    with Flights(tmp_path).alone("0" * 64, pytest.fail) as waited:
        assert not waited


def test_nobody_waits_for_ever(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    told: list[str] = []
    with Flights(tmp_path).alone(KEY.digest, lambda: told.append("waits"), patience=0.05) as waited:
        assert waited and told == ["waits"] and holder.poll() is None


@pytest.mark.parametrize("problem", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_nobody_waits_where_there_are_no_locks(problem: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(problem, "no locks")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with Flights(tmp_path).alone(KEY.digest, pytest.fail) as waited:
        assert not waited


@pytest.mark.parametrize("mode", ["ro", "require", "refresh", "off"])
def test_who_does_not_read_and_write_does_not_wait(mode: Any, holder: subprocess.Popen[str], tmp_path: Path) -> None:
    open_cache(tmp_path / "cache", "rw").close()
    with open_cache(tmp_path / "cache", mode) as cache, cache.alone(KEY, pytest.fail) as others:
        assert not others and holder.poll() is None


def test_what_was_made_meanwhile_is_looked_for(tmp_path: Path) -> None:
    with open_cache(tmp_path / "cache", "rw") as cache:
        with cache.alone(KEY, pytest.fail) as others:
            assert not others
        cache.save(KEY, {"x": b"1"}, {})
        with cache.alone(KEY, pytest.fail) as others:
            assert others
