"""Damaged and hostile caches: never wrong bytes, never foreign code, never a foreign file."""

import os
import pickle
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from dlc.cache import Cache, Key, LocalStore, open_cache
from dlc.cache.envelope import seal
from dlc.cache.rows import SETTINGS

OUTPUTS = {"c": b"int x;", "o": bytes(range(256)) * 200}
KEYS = [Key.of(step=f"s{{n={n}}}", code="dlc 0.1.0") for n in range(3)]
NEVER = Key.of(step="never")


def fill(directory: Path) -> None:
    with open_cache(directory, "rw") as cache:
        for number, key in enumerate(KEYS):
            cache.save(key, {name: content + bytes([number]) for name, content in OUTPUTS.items()}, {"ms": "1"})


def use(cache: Cache) -> int:
    """Ask for everything; the number of right answers. Fails on a wrong one."""
    right = 0
    for number, key in enumerate(KEYS):
        record = cache.lookup(key)
        if record is not None:
            assert record.key_text == key.text
            for name, content in OUTPUTS.items():
                found = cache.read(record.output(name))
                assert found in (None, content + bytes([number]))
                right += found is not None
    assert cache.lookup(NEVER) is None
    return right


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def database(directory: Path) -> sqlite3.Connection:
    return sqlite3.connect(directory / "index-0" / "cache.db", isolation_level=None)


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_anywhere_never_gives_wrong_bytes(tmp_path: Path, seed: int) -> None:
    directory, choose, lost = tmp_path / "c", random.Random(seed), 0
    fill(directory)
    for file in files(directory):
        content = file.read_bytes()
        for _ in range(150 if file.name == "cache.db" else 25):
            position = choose.randrange(len(content))
            with file.open("r+b") as raw:
                raw.seek(position)
                raw.write(bytes([content[position] ^ 1 << choose.randrange(8)]))
            cache = open_cache(directory, "ro")
            lost += use(cache) < 6
            cache.close()
            file.write_bytes(content)
    assert lost > 50  # the flips did reach what is read
    cache = open_cache(directory, "ro")
    assert use(cache) == 6


def test_every_byte_of_an_object_file(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    with open_cache(directory, "rw") as cache:
        digest = cache.save(KEYS[0], {"o": OUTPUTS["o"]}, {}).output("o")
    store = LocalStore(directory, readonly=True)
    (file,) = (directory / "objects").rglob("??*/??*")
    content = file.read_bytes()
    for position in [*range(128), *range(128, len(content), 977), len(content) - 1]:
        with file.open("r+b") as raw:
            raw.seek(position)
            raw.write(bytes([content[position] ^ 4]))
        assert (store.get(digest), store.view(digest), store.check(digest)) == (None, None, False)
        assert not store.export(digest, tmp_path / "out")
        file.write_bytes(content)
    assert not (tmp_path / "out").exists()
    assert store.get(digest) == OUTPUTS["o"]


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_cache_heals_in_use(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    fill(tmp_path / "good")
    for number in range(12):
        directory = tmp_path / f"c{number}"
        shutil.copytree(tmp_path / "good", directory)
        for file in files(directory):
            content = bytearray(file.read_bytes())
            for _ in range(1 + len(content) // 4000):
                content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
            file.write_bytes(content if choose.random() < 0.8 else content[: choose.randrange(len(content))])
        for _ in range(3):  # an index that is lost hides damaged objects until the next build reads them
            with open_cache(directory, "rw") as cache:
                use(cache)
            fill(directory)
        with open_cache(directory, "rw") as cache:
            assert use(cache) == 6
            assert cache.warnings == ()


def test_a_damaged_object_is_set_aside_and_counted(tmp_path: Path) -> None:
    fill(tmp_path)
    for file in (tmp_path / "objects").rglob("??*/??*"):
        file.write_bytes(file.read_bytes()[:-1])
    with open_cache(tmp_path, "rw") as cache:
        assert use(cache) == 3
        statistics = cache.statistics()
        assert statistics.session.errors == 3
        assert statistics.set_aside == 3
        assert [warning.code for warning in cache.warnings] == ["cache-damaged-entry"]
    assert open_cache(tmp_path, "ro").statistics().total.errors == 3


def test_verify_names_the_damaged(tmp_path: Path) -> None:
    fill(tmp_path)
    (victim, *_) = (tmp_path / "objects").rglob("??*/??*")
    victim.write_bytes(victim.read_bytes()[:-1] + b"!")
    with open_cache(tmp_path, "rw") as cache:
        found = cache.verify()
        assert found.bad == (victim.parent.name + victim.name,)
        assert found.dangling == 1
        assert cache.verify().bad == ()


class Bomb:
    """Unpickling this creates a file."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("mode", [4, 3, 2, 0, "1", None, 1.5])
def test_a_planted_row_is_not_unpickled(tmp_path: Path, mode: object) -> None:
    directory, target = tmp_path / "c", tmp_path / "executed"
    fill(directory)
    with database(directory) as connection:
        connection.execute("UPDATE Cache SET mode = ?, value = ?", (mode, pickle.dumps(Bomb(str(target)))))
        connection.execute(
            "INSERT INTO Cache (key, raw, mode, value) VALUES (?, 0, 1, ?)",
            (pickle.dumps(Bomb(str(target))), pickle.dumps(Bomb(str(target)))),
        )
    exercise(directory)
    assert not target.exists()


def exercise(directory: Path) -> None:
    """Everything that looks at rows: reading, verifying, replacing, evicting, clearing."""
    for mode in ("ro", "rw"):
        with open_cache(directory, mode) as cache:
            use(cache)
            cache.why(KEYS[0])
            cache.statistics()
            cache.verify()
    fill(directory)
    with open_cache(directory, "rw") as cache:
        assert use(cache) == 6
        cache.trim(0)
        cache.clear()
        assert use(cache) == 0


@pytest.mark.parametrize("name", ["../../victim", "/etc/hostname", "../../../victim", "aa/bb/" + "0" * 28 + ".val"])
def test_a_planted_file_name_is_neither_read_nor_removed(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "c"
    fill(directory)
    victim = directory / "index-0" / name
    planted = not victim.exists()
    if planted:
        victim.parent.mkdir(parents=True, exist_ok=True)
        victim.write_bytes(seal("record", KEYS[0].digest, b"secret"))
    for mode in (1, 2, 3):
        with database(directory) as connection:
            connection.execute("UPDATE Cache SET filename = ?, mode = ?", (name, mode))
        exercise(directory)
        fill(directory)
        assert victim.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sqlite_journal_mode", "delete"),
        ("sqlite_user_version = 7; --", 1),
        ("sqlite_user_version", 7),
        ("disk_hash", "x"),
        ("disk_remove", "x"),
        ("disk_min_file_size", 0),
        ("disk_unknown", 1),
        ("close", "x"),
        ("_disk", "x"),
        ("_sql", "x"),
        ("size_limit", 0),
        ("cull_limit", 99),
        ("eviction_policy", "least-recently-stored"),
        ("count", "many"),
        (b"sqlite_x", 1),
        ("sqlite_cache_size", b"\xff"),
    ],
)
def test_planted_settings_are_not_applied(tmp_path: Path, key: str | bytes, value: object) -> None:
    fill(tmp_path)
    with database(tmp_path) as connection:
        connection.execute("INSERT OR REPLACE INTO Settings VALUES (?, ?)", (key, value))
    with open_cache(tmp_path, "rw") as cache:
        assert use(cache) == 6
        cache.save(Key.of(step="more"), {"c": b"more"}, {})
        assert cache.warnings == ()
    connection = database(tmp_path)
    found = dict(connection.execute("SELECT key, value FROM Settings").fetchall())
    assert {name: found[name] for name in SETTINGS} == SETTINGS
    assert set(found) - set(SETTINGS) == {"count", "size", "hits", "misses"}
    assert connection.execute("PRAGMA user_version").fetchone() == (0,)
    connection.close()
    with open_cache(tmp_path, "rw") as cache:
        assert use(cache) == 6


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE Cache RENAME TO Kept; CREATE VIEW Cache AS"
        " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS key FROM n",
        "CREATE TRIGGER evil AFTER INSERT ON Cache BEGIN DELETE FROM Cache; END",
        "CREATE TABLE extra (x)",
        "DROP TABLE Cache",
        "DROP TABLE Settings",
    ],
)
def test_a_foreign_schema_is_left_behind(tmp_path: Path, statement: str) -> None:
    fill(tmp_path)
    database(tmp_path).executescript(statement)
    exercise(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\0", b"not a database at all" * 400, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    fill(tmp_path)
    for file in (tmp_path / "index-0").iterdir():
        file.write_bytes(content)
    with open_cache(tmp_path, "ro") as cache:
        assert use(cache) == 0
    with open_cache(tmp_path, "rw") as cache:
        assert use(cache) == 0
        assert len(cache.warnings) <= 1
    fill(tmp_path)
    with open_cache(tmp_path, "rw") as cache:
        assert use(cache) == 6
        assert cache.warnings == ()
        cache.clear()
        assert cache.store.set_aside() == 0


def test_objects_that_are_no_files(tmp_path: Path) -> None:
    with open_cache(tmp_path / "c", "rw") as cache:
        digest = cache.save(KEYS[0], {"o": OUTPUTS["o"]}, {}).output("o")
    path = tmp_path / "c" / "objects" / digest[:2] / digest[2:]
    moved = tmp_path / "moved"
    path.rename(moved)

    def link() -> None:
        path.symlink_to(moved)

    def fifo() -> None:
        os.mkfifo(path)

    for plant in (link, fifo, path.mkdir):
        plant()
        with open_cache(tmp_path / "c", "rw") as cache:
            assert cache.read(digest) is None
            assert cache.lookup(KEYS[0]) is None
    assert moved.read_bytes().endswith(OUTPUTS["o"])
