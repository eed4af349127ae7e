"""The cache of a real build, damaged in every file: a miss, never another artifact, never foreign code."""

import os
import pickle
import random
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlc.cli.frame import run
from tests.session.building import SMALL, Layer, contents, conv_net, save

TARGET = "c{flags=-O0}"


@dataclass(frozen=True)
class Real:
    """A cache that a build filled, and what the build gave."""

    place: Path
    expected: dict[str, bytes]
    dumped: dict[str, bytes]

    @property
    def cache(self) -> Path:
        return self.place / "cache"

    def build(self, output: Path, cache: Path, mode: str = "ro", *more: str) -> int:
        given = ["-t", TARGET, "-o", str(output), "-q", "--cache-dir", str(cache), "--cache", mode]
        return run(["build", str(self.place / "net.onnx"), *given, *more])

    def check(self, output: Path, cache: Path, mode: str, dumps: bool) -> None:
        """A build is right, whatever the cache holds; with dumps every step's state is loaded too."""
        shutil.rmtree(output, ignore_errors=True)
        assert self.build(output, cache, mode, *(["--dump-ir", "all"] if dumps else [])) == 0
        assert contents(output) == ({**self.expected, **self.dumped} if dumps else self.expected)


def filled(place: Path, *layers: Layer) -> Real:
    """The cache of two builds of a network."""
    save(conv_net((*SMALL, *layers), size=8), place / "net.onnx")
    found = Real(place, {}, {})
    assert found.build(place / "plain", found.cache, "rw") == 0
    assert found.build(place / "all", found.cache, "rw", "--dump-ir", "all") == 0
    found.expected.update(contents(place / "plain"))
    found.dumped.update({k: v for k, v in contents(place / "all").items() if k.startswith("ir/")})
    assert found.dumped
    return found


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    """Only the library is too large for a row of the index: every build reads the one object that is a file."""
    return filled(tmp_path_factory.mktemp("real"), Layer(16), Layer(24))


def flip(file: Path, position: int, bit: int) -> None:
    with file.open("r+b") as raw:
        raw.seek(position)
        byte = raw.read(1)[0]
        raw.seek(position)
        raw.write(bytes([byte ^ 1 << bit]))


def test_a_bit_flipped_in_any_file_of_a_real_cache(
    real: Real, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choose = random.Random(1)
    files = sorted(path for path in real.cache.rglob("*") if path.is_file())
    assert {f.name for f in files} >= {"cache.db", "CACHEDIR.TAG"}
    for number, file in enumerate(files):
        size = file.stat().st_size
        count = 8 if file.name == "cache.db" else 2
        for k in range(min(count, size)):
            # The first page of the database is read in every build.
            position, bit = choose.randrange(min(size, 128) if k % 4 == 0 else size), choose.randrange(8)
            flip(file, position, bit)
            real.check(tmp_path / "out", real.cache, "ro", dumps=(number + k) % 3 == 0)
            flip(file, position, bit)
    capsys.readouterr()
    objects = [file for file in files if "objects" in file.parts]
    assert len(objects) == 1
    for file in objects:  # what a build reads of the cache, it checks
        flip(file, 0, 0)
        for dumps in (False, True):
            real.check(tmp_path / "out", real.cache, "ro", dumps)
        assert "warning[cache-" in capsys.readouterr().err
        flip(file, 0, 0)
    assert run(["cache", "verify", "--cache-dir", str(real.cache)]) == 0


def test_a_damaged_cache_is_repaired_by_building(tmp_path: Path) -> None:
    """Also where one step has several damaged objects, of which it meets only the first before it runs again."""
    real = filled(tmp_path, Layer(64), Layer(32))
    cache = tmp_path / "damaged"
    shutil.copytree(real.cache, cache)
    damaged = sorted(cache.rglob("objects/*/*"))
    assert len(damaged) > 2
    for file in damaged:
        flip(file, file.stat().st_size // 2, 3)
    real.check(tmp_path / "out", cache, "rw", dumps=True)
    assert run(["cache", "verify", "--cache-dir", str(cache)]) == 0
    real.check(tmp_path / "out", cache, "require", dumps=True)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("filename", [None, "../../victim.txt"])
def test_planted_rows_are_neither_unpickled_nor_followed(real: Real, tmp_path: Path, filename: str | None) -> None:
    """Every row of a real store asks diskcache to unpickle its value, or to read and remove a file."""
    cache, exploded, victim = tmp_path / "cache", tmp_path / "exploded", tmp_path / "victim.txt"
    shutil.copytree(real.cache, cache)
    victim.write_text("precious")
    with sqlite3.connect(cache / "index-0" / "cache.db") as database:
        value = pickle.dumps(Bomb(exploded))
        database.execute("UPDATE Cache SET mode = 4, value = ?, filename = ?", (value, filename))
        database.execute("INSERT INTO Cache (key, raw, mode, value) VALUES (?, 0, 4, ?)", (value, value))
    database.close()
    real.check(tmp_path / "out", cache, "rw", dumps=True)
    for command in (["verify"], ["stats"], ["trim", "1KiB"], ["clear", "--yes"]):
        assert run(["cache", *command, "--cache-dir", str(cache)]) in (0, 1)  # 1: verify has found damage
    assert not exploded.exists() and victim.read_text() == "precious"
