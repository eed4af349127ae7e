"""Bundles: everything that a store has arrives, the same bytes each time; a bad file is an error with its place."""

import errno
import random
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from dlc.cache import Cache, Key, LocalStore, Record, open_cache
from dlc.cache.bundle import chosen, export_bundle, import_bundle
from dlc.cache.envelope import pack_header, seal
from dlc.cache.running import past_uses
from dlc.files.linking import LINK_ABOVE

LIMIT = 1 << 30
BIG = bytes(range(256)) * 1000
KEYS = [Key.of(step=f"s{{n={n}}}", code="dlc 0.1.0") for n in range(4)]


def fill(directory: Path, keys: list[Key] = KEYS) -> None:
    with open_cache(directory, "rw") as cache:
        for key in keys:
            own = key.text.encode()
            cache.save(key, {"c": b"int x;" + own, "o": BIG + own, "same": BIG, "empty": b""}, {"ms": "1"})


def exported(directory: Path, target: Path) -> bytes:
    store = LocalStore(directory, readonly=True)
    export_bundle(store, chosen(store, None), target)
    return target.read_bytes()


def contents(directory: Path) -> dict[str, tuple[str, bytes]]:
    """Digest → table and payload of everything but statistics."""
    store = LocalStore(directory, readonly=True)
    entries = [entry for entry in store.entries() if entry.table != "stat"]
    return {entry.digest: (entry.table, store.get(entry.digest, entry.table) or b"lost") for entry in entries}


def damage(path: Path, store: LocalStore) -> DlcError | None:
    """The error that reading a bundle ends with."""
    try:
        import_bundle(store, path, LIMIT)
    except DlcError as problem:
        return problem
    return None


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundle")
    fill(place / "c")
    exported(place / "c", place / "b.dlccache")
    return place / "b.dlccache"


def test_everything_arrives_once(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    first = exported(tmp_path / "a", tmp_path / "1.dlccache")
    store = LocalStore(tmp_path / "b")
    found = import_bundle(store, tmp_path / "1.dlccache", LIMIT)
    again = import_bundle(store, tmp_path / "1.dlccache", LIMIT)
    store.close()
    assert (found.members, found.new, found.new_records) == (14, 14, 4)
    assert (again.members, again.new) == (14, 0)
    assert contents(tmp_path / "b") == contents(tmp_path / "a")
    assert exported(tmp_path / "b", tmp_path / "2.dlccache") == first
    with open_cache(tmp_path / "b", "require") as cache:
        for key in KEYS:
            record = cache.lookup(key)
            assert record is not None
            assert cache.read(record.output("o")) == BIG + key.text.encode()


def test_the_order_of_builds_changes_no_byte(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    fill(tmp_path / "b", KEYS[::-1])
    assert exported(tmp_path / "a", tmp_path / "1") == exported(tmp_path / "b", tmp_path / "2")


def test_large_objects_are_not_held_in_memory(tmp_path: Path) -> None:
    content = b"weights " * (LINK_ABOVE // 8) + b"end"
    with open_cache(tmp_path / "a", "rw") as cache:
        digest = cache.save(KEYS[0], {"w": content}, {}).output("w")
    exported(tmp_path / "a", tmp_path / "b.dlccache")
    store = LocalStore(tmp_path / "b")
    import_bundle(store, tmp_path / "b.dlccache", LIMIT)
    assert store.get(digest) == content
    assert list((tmp_path / "b/tmp").iterdir()) == []


def test_what_the_last_build_used_is_known(tmp_path: Path) -> None:
    fill(tmp_path / "c", KEYS[:2])
    fill(tmp_path / "c", KEYS[2:3])
    with open_cache(tmp_path / "c", "rw") as cache:
        assert cache.lookup(KEYS[1]) is not None
        cache.save(KEYS[3], {"c": b"new"}, {})
    with open_cache(tmp_path / "c", "rw") as cache:
        cache.trim(LIMIT)  # uses nothing, so it was no build
    store = LocalStore(tmp_path / "c", readonly=True)
    assert [r.key for r in chosen(store, past_uses(tmp_path / "c"))] == [KEYS[1], KEYS[3]]
    assert [r.key for r in chosen(store, past_uses(tmp_path / "c", 0.0))] == KEYS
    assert past_uses(tmp_path / "c", 1e11) is None


def test_uses_of_ended_builds_are_kept_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.cache.running._PAST_KEPT", 3)
    for number in range(5):
        with open_cache(tmp_path / "c", "rw") as cache:
            cache.save(Key.of(step=f"s{number}"), {}, {})
    assert len(list((tmp_path / "c/used").iterdir())) == 3
    assert list((tmp_path / "c/running").iterdir()) == []
    with open_cache(tmp_path / "c", "rw") as cache:
        cache.clear()
    assert past_uses(tmp_path / "c") is None


def test_digests_of_files_stay_at_home(tmp_path: Path) -> None:
    fill(tmp_path / "c", KEYS[:1])
    store = LocalStore(tmp_path / "c")
    own = Record(Key.of(step="file", path="/home/alice/model.onnx").text, (), (("digest", "0" * 64),))
    store.put(own.key.digest, own.to_bytes(), "record")
    assert [r.key for r in chosen(store, None)] == KEYS[:1]
    export_bundle(store, [own], tmp_path / "b")
    problem = damage(tmp_path / "b", LocalStore(tmp_path / "d"))
    assert problem is not None
    assert "about a file of another machine" in str(problem)


def test_what_was_evicted_is_counted(tmp_path: Path) -> None:
    fill(tmp_path / "c")
    store = LocalStore(tmp_path / "c")
    record = chosen(store, None)[0]
    store.delete([record.output("o")])
    made = export_bundle(store, chosen(store, None), tmp_path / "b")
    assert (made.records, made.objects, made.lacking) == (4, 9, 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_truncated_bundle_leaves_what_stood_before(bundle: Path, tmp_path: Path, seed: int) -> None:
    content, choose = bundle.read_bytes(), random.Random(seed)
    for number in range(6):
        length = choose.randrange(16, len(content))
        (tmp_path / "short").write_bytes(content[:length])
        store = LocalStore(tmp_path / f"c{number}")
        problem = damage(tmp_path / "short", store)
        assert problem is not None
        (diagnostic,) = problem.diagnostics
        assert diagnostic.code == "bad-bundle"
        assert diagnostic.location is not None
        assert diagnostic.location.byte == length
        cache = Cache(store, "rw")
        assert cache.verify().bad == ()
        assert cache.verify().dangling == 0
        assert set(contents(store.directory).items()) <= set(contents(bundle.parent / "c").items())


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_flipped_byte_never_gives_other_entries(bundle: Path, data: st.DataObject) -> None:
    content = bytearray(bundle.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1), label="offset")
    content[at] ^= data.draw(st.integers(1, 255), label="bits")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "b").write_bytes(content)
        problem = damage(Path(folder) / "b", LocalStore(Path(folder) / "c"))
        assert problem is not None
        assert problem.diagnostics[0].location is not None
        assert 0 <= problem.diagnostics[0].location.byte <= len(content)
        assert set(contents(Path(folder) / "c").items()) <= set(contents(bundle.parent / "c").items())


@settings(max_examples=40, deadline=None)
@given(junk=st.binary(max_size=300), head=st.booleans(), packed=st.booleans())
def test_junk_is_no_bundle(bundle: Path, junk: bytes, head: bool, packed: bool) -> None:
    body = zlib.compress(junk) if packed else junk
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "b").write_bytes(bundle.read_bytes()[:16] * head + body)
        problem = damage(Path(folder) / "b", LocalStore(Path(folder) / "c"))
        assert problem is not None
        assert problem.diagnostics[0].code == "bad-bundle"


def packed(*members: bytes) -> bytes:
    """A bundle with an end that fits nothing."""
    return b"dlc\xf0\x9f\x93\xa6\n" + (1).to_bytes(4, "little") + bytes(4) + zlib.compress(b"".join(members))


RECORD = Record(KEYS[0].text, (), ())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a bundle"),
        (b"PK\3\4 something else", "not a bundle"),
        (b"dlc\xf0\x9f\x93\xa6\n" + bytes([9, 0, 0, 0, 0, 0, 0, 0]), "version 9"),
        (packed(), "truncated"),
        (packed(pack_header("object", "0" * 64, 1 << 62, "0" * 64)), "longer than the cache may be"),
        (packed(pack_header("record", "0" * 64, 1 << 62, "0" * 64)), "the longest has"),
        (packed(pack_header("object", "0" * 64, 9, "1" * 64), b"some text"), "its own SHA-256"),
        (packed(pack_header("object", "0" * 64, 9, "0" * 64), b"some text"), "header says"),
        (packed(seal("stat", "0" * 64, b"{}")), "neither a result nor an object"),
        (packed(seal("record", "0" * 64, RECORD.to_bytes())), "SHA-256 of its key"),
        (packed(seal("record", "0" * 64, b"{}")), "another version"),
        (packed(seal("record", RECORD.key.digest, RECORD.to_bytes()), b"dlc-end\n" + bytes(120)), "its end"),
    ],
)
def test_hostile_bundles(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "b").write_bytes(content)
    problem = damage(tmp_path / "b", LocalStore(tmp_path / "c"))
    assert problem is not None
    assert message in str(problem)
    assert {path.name for path in tmp_path.iterdir()} == {"b", "c"}


def test_nothing_may_stand_behind_the_end(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(bundle.read_bytes() + b"x")
    assert "behind its end" in str(damage(tmp_path / "b", LocalStore(tmp_path / "c")))


def test_a_bomb_ends_at_the_limit(tmp_path: Path) -> None:
    """A gigabyte of zeros takes a megabyte."""
    (tmp_path / "b").write_bytes(packed(pack_header("object", "0" * 64, 1 << 30, "0" * 64), bytes(1 << 20)))
    with pytest.raises(DlcError, match="longer than the cache may be") as caught:
        import_bundle(LocalStore(tmp_path / "c"), tmp_path / "b", 1 << 20)
    assert caught.value.diagnostics[0].code == "cache-limit"


def test_a_cache_that_cannot_be_written_is_an_error(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "c")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store._blobs.__class__, "write", full)
    problem = damage(bundle, store)
    assert problem is not None
    assert "no space left" in str(problem)
