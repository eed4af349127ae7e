"""The hardened diskcache by itself: every path of the library over hostile rows, next to what the library would do."""

import os
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import diskcache
import pytest

from dlc.cache.envelope import Damaged
from dlc.cache.rows import SETTINGS
from dlc.cache.safedisk import SafeDisk, Writer

NAME, OTHER = "a" * 64, "b" * 64


class Bomb:
    """Unpickling this creates a directory."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.target,)


def plant(directory: Path, column: str, value: object) -> None:
    connection = sqlite3.connect(directory / "cache.db", isolation_level=None)
    connection.execute(f"UPDATE Cache SET {column} = ?", (value,))
    connection.close()


def test_the_library_alone_runs_and_removes(tmp_path: Path) -> None:
    """The reason for all this; if it ever fails, the hardening can be reconsidered."""
    (tmp_path / "victim").touch()
    with diskcache.Cache(str(tmp_path / "c")) as plain:
        plain.set(NAME, b"x")
        plant(tmp_path / "c", "filename", "../victim")
        plain.delete(NAME)
        assert not (tmp_path / "victim").exists()
        plain.set(NAME, pickle.dumps(Bomb(tmp_path / "executed")))
        plant(tmp_path / "c", "mode", 4)
        plain.get(NAME)
        assert (tmp_path / "executed").exists()


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    directory = tmp_path / "c"
    directory.mkdir()
    made = Writer(directory, 1.0)
    made.put_row(NAME, b"sealed", "object")
    made.put_row(OTHER, b"sealed too", "record")
    return made


def test_rows_come_back(writer: Writer) -> None:
    assert (writer.get(NAME), writer.get(OTHER), sorted(writer)) == (b"sealed", b"sealed too", [NAME, OTHER])


def test_pickled_values_are_refused(writer: Writer, tmp_path: Path) -> None:
    plant(tmp_path / "c", "value", pickle.dumps(Bomb(tmp_path / "executed")))
    for mode in (0, 2, 3, 4, "4", None):
        plant(tmp_path / "c", "mode", mode)
        with pytest.raises(Damaged):
            writer.get(NAME)
    assert not (tmp_path / "executed").exists()


def test_pickled_names_are_refused_in_iteration(writer: Writer, tmp_path: Path) -> None:
    writer.delete(OTHER)
    plant(tmp_path / "c", "key", pickle.dumps(Bomb(tmp_path / "executed")))
    plant(tmp_path / "c", "raw", 0)
    for walk in (iter(writer), writer.iterkeys(), writer.iterkeys(reverse=True)):
        with pytest.raises(Damaged):
            list(walk)
    assert not (tmp_path / "executed").exists()


def test_no_path_removes_a_named_file(writer: Writer, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    inside = tmp_path / "c" / "aa" / "bb" / f"{'0' * 28}.val"
    inside.parent.mkdir(parents=True)
    inside.touch()
    for name in ("../victim", str(tmp_path / "victim"), "aa/bb/" + inside.name):
        writer.put_row(NAME, b"sealed", "object")
        plant(tmp_path / "c", "filename", name)
        with pytest.raises(Damaged):
            writer.get(NAME)
        writer.set(NAME, b"replaced")
        plant(tmp_path / "c", "filename", name)
        writer.delete(NAME)
        writer.put_row(NAME, b"sealed", "object")
        plant(tmp_path / "c", "filename", name)
        plant(tmp_path / "c", "expire_time", 1.0)
        writer.cull()
        writer.put_row(NAME, b"sealed", "object")
        plant(tmp_path / "c", "filename", name)
        writer.clear_rows()
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert inside.exists()


@pytest.mark.parametrize("name", ["", "A" * 64, "a" * 63, "../" + "a" * 61, b"a" * 64, 7, None, ("a",)])
def test_only_hex_names_are_accepted(writer: Writer, name: Any) -> None:
    with pytest.raises(Damaged):
        writer.set(name, b"x")
    with pytest.raises(Damaged):
        writer.get(name)
    with pytest.raises(Damaged):
        writer.delete(name)


@pytest.mark.parametrize("value", ["text", 1, 1.5, None, {}, bytearray(b"x")])
def test_only_bytes_are_accepted(writer: Writer, value: Any) -> None:
    with pytest.raises(Damaged):
        writer.set(NAME, value)
    with pytest.raises(Damaged):
        SafeDisk(".").store(b"x", True)
    with pytest.raises(Damaged):
        SafeDisk(".").filename()


def test_settings_planted_after_opening_are_not_applied_to_a_new_connection(writer: Writer, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "c" / "cache.db", isolation_level=None)
    connection.execute("INSERT INTO Settings VALUES ('sqlite_user_version', 7), ('disk_remove', 'x')")
    connection.execute("UPDATE Settings SET value = 'delete' WHERE key = 'sqlite_journal_mode'")
    writer.close()
    assert writer.get(NAME) == b"sealed"
    assert connection.execute("PRAGMA user_version").fetchone() == (0,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    assert SETTINGS["sqlite_journal_mode"] == "wal"
