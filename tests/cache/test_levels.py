"""Levels behind the local cache: what one machine makes, another finds; what a server does wrong changes nothing."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dlc.base.cache_levels import Level, Levels, parse_levels
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cache import Cache, CacheMode, Key, Record, open_cache
from dlc.cache.counts import Counts, LevelCounts
from dlc.cache.envelope import seal
from dlc.cache.guard import Breaker
from dlc.cache.signing import EVERYTHING, Policy, read_signer, write_key
from tests.cache.faulty import FAULTS, READING, FaultyServer, serving

KEY = Key.of(step="fuse{max-ops=8}", code="dlc 0.1.0 91be", input="graph 3f2a")
EVIL = Key.of(step="evil")
LARGE = bytes(range(256)) * 400
OUTPUTS = {"c": b"int x;", "o": LARGE, "empty": b""}


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with serving() as found:
        yield found


def opened(
    home: Path,
    *urls: str,
    mode: CacheMode = "rw",
    timeout: float = 5.0,
    upload_time: float = 10.0,
    policy: Policy = EVERYTHING,
) -> Cache:
    """The cache of one machine."""
    return open_cache(home, mode, levels=Levels(parse_levels(urls), timeout, upload_time), policy=policy)


def make(home: Path, *urls: str) -> Record:
    """A machine that makes the result and shares it."""
    with opened(home, *(f"{url}#rw" for url in urls)) as cache:
        return cache.save(KEY, OUTPUTS, {"ms": "12.5"})


def contents(cache: Cache, record: Record) -> dict[str, bytes | None]:
    return {name: cache.read(digest) for name, digest in record.outputs}


def test_what_one_machine_makes_another_finds_and_keeps(server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    assert {path.split("/")[-2] for path in server.kept} == {"ac", "cas"}
    with opened(tmp_path / "b", server.url) as cache:
        assert cache.lookup(KEY) == made
        assert contents(cache, made) == OUTPUTS
        assert cache.warnings == ()
        (level,) = cache.counts.levels
        assert (level.hits, level.ms_saved, level.failures) == (1, 12.5, 0)
        assert level.bytes_read > len(LARGE)
        assert level.bytes_written == 0
    asked = len(server.asked)
    with opened(tmp_path / "b") as cache:
        assert cache.lookup(KEY) == made
        assert contents(cache, made) == OUTPUTS
        assert [level.level for level in cache.statistics().total.levels] == [server.url]
    assert len(server.asked) == asked


@pytest.mark.parametrize("mode", ["ro", "require"])
def test_a_machine_that_writes_nothing_reads_levels(mode: CacheMode, server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    with opened(tmp_path / "b", f"{server.url}#rw", mode=mode) as cache:
        assert cache.lookup(KEY) == made
        assert contents(cache, made) == OUTPUTS
        assert bytes(cache.view(made.output("o")) or b"") == LARGE
        assert cache.export(made.output("o"), tmp_path / "out")
        cache.save(Key.of(step="other"), {"c": b"new"}, {})
        assert cache.warnings == ()
    assert (tmp_path / "out").read_bytes() == LARGE
    assert not (tmp_path / "b").exists()
    assert not any(hashlib.sha256(b"new").hexdigest() in path for path in server.kept)


def test_files_beyond_memory_go_to_disk(server: FaultyServer, tmp_path: Path) -> None:
    source = tmp_path / "weights"
    source.write_bytes(bytes(17 << 20))
    with opened(tmp_path / "a", f"{server.url}#rw") as cache:
        made = cache.save(KEY, {"w": source}, {})
    for mode in ("rw", "ro"):
        with opened(tmp_path / mode, server.url, mode=mode) as cache:
            view = cache.view(made.output("w"))
            assert view is not None
            assert view == source.read_bytes()


def test_builds_write_to_no_level_unless_they_are_told(server: FaultyServer, tmp_path: Path) -> None:
    with opened(tmp_path / "a", server.url) as cache:
        cache.save(KEY, OUTPUTS, {})
    assert not server.paths("PUT")


def test_what_concerns_this_machine_alone_is_not_asked_for_or_sent(server: FaultyServer, tmp_path: Path) -> None:
    source = tmp_path / "model"
    source.write_bytes(b"model")
    with opened(tmp_path / "a", f"{server.url}#rw") as cache:
        cache.file_sha256(source)
        cache.source_digest(source)
        cache.remember_file(source, hashlib.sha256(b"model").hexdigest())
    assert not server.asked


def test_levels_between_are_filled(server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    with serving() as near:
        with opened(tmp_path / "b", f"{near.url}#rw", server.url) as cache:
            assert cache.lookup(KEY) == made
            assert contents(cache, made) == OUTPUTS
        assert near.kept == server.kept
        with opened(tmp_path / "c", near.url) as cache:
            assert cache.lookup(KEY) == made


def test_refresh_replaces_what_a_level_has(server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    path = f"/team/dlc/cas/{made.output('c')}"
    server.kept[path] = b"rotten"
    with opened(tmp_path / "b", f"{server.url}#rw", mode="refresh") as cache:
        assert cache.lookup(KEY) is None
        cache.save(KEY, OUTPUTS, {})
    assert server.kept[path] == b"int x;"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_reading_is_a_miss_and_one_warning(fault: str, server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    server.asked.clear()
    server.fault = lambda method, path: fault
    with opened(tmp_path / "b", server.url, timeout=0.2) as cache:
        for k in range(8):
            record = cache.lookup(KEY if k == 0 else Key.of(step=f"another{k}"))
            assert record is None
        assert all(cache.read(made.output(name)) is None for name in ("c", "o"))
        (warning,) = cache.warnings
        assert warning.code == "cache-level"
        assert server.url in warning.message
        assert "\x1b" not in str(warning)
        assert cache.counts.levels[0].failures > 0
    if fault not in READING:  # it is left alone; others give right answers between
        assert len(server.asked) < 8
    with opened(tmp_path / "b") as cache:
        assert cache.lookup(KEY) is None
        assert cache.verify().bad == ()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in READING])
def test_a_fault_in_writing_is_one_warning(fault: str, server: FaultyServer, tmp_path: Path) -> None:
    server.fault = lambda method, path: fault if method == "PUT" else ""
    with opened(tmp_path / "a", f"{server.url}#rw", timeout=0.2) as cache:
        for k in range(20):
            cache.save(Key.of(step=f"step{k}"), {"c": bytes([k])}, {})
    assert [warning.code for warning in cache.warnings] == ["cache-level"]
    assert len(server.paths("PUT")) < 12
    with opened(tmp_path / "a") as cache:
        assert cache.lookup(Key.of(step="step7")) is not None


@pytest.mark.parametrize("fault", ["500", "hang up", "short"])
def test_one_bad_answer_is_tried_again(fault: str, server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    bad = {"GET": 1, "HEAD": 1, "PUT": 1}

    def once(method: str, path: str) -> str:
        bad[method] -= 1
        return fault if bad[method] == 0 else ""

    server.fault = once
    with opened(tmp_path / "b", f"{server.url}#rw") as cache:
        assert cache.lookup(KEY) == made
        assert contents(cache, made) == OUTPUTS
        cache.save(Key.of(step="other"), {"c": b"new"}, {})
    assert cache.warnings == ()
    assert f"/team/dlc/ac/{Key.of(step='other').digest}" in server.kept


def test_connections_that_the_server_has_closed_are_opened_anew(server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    together = threading.Barrier(4)

    def leaves(method: str, path: str) -> str:
        if not together.broken:
            together.wait(5)
        return "leaves"

    server.fault = leaves
    with opened(tmp_path / "b", server.url) as cache:
        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(cache.lookup, Key.of(step=f"another{k}")) for k in range(4)]
            assert [future.result() for future in found] == [None] * 4
        together.abort()
        assert cache.lookup(KEY) == made
        assert contents(cache, made) == OUTPUTS
        assert cache.warnings == ()


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with serving() as gone:
        pass
    with opened(tmp_path / "a", f"{gone.url}#rw") as cache:
        assert cache.lookup(KEY) is None
        cache.save(KEY, OUTPUTS, {})
    (warning,) = cache.warnings
    assert "connection refused" in warning.notes[0]


def test_a_full_server_is_still_read(server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    server.fault = lambda method, path: "507" if method == "PUT" else ""
    with opened(tmp_path / "b", f"{server.url}#rw") as cache:
        for k in range(4):
            cache.save(Key.of(step=f"step{k}"), {"c": bytes([k])}, {})
        cache.store.settle()
        assert cache.lookup(KEY) == made
        assert contents(cache, made) == OUTPUTS
    assert len(cache.warnings) == 1


def other_record(made: Record) -> bytes:
    return seal("record", EVIL.digest, Record(EVIL.text, made.outputs).to_bytes())


FORGED: dict[str, Callable[[Record], bytes]] = {
    "key of another": lambda made: seal("record", KEY.digest, Record(EVIL.text, made.outputs).to_bytes()),
    "another's record": other_record,
    "another table": lambda made: seal("object", KEY.digest, made.to_bytes()),
    "no record": lambda made: seal("record", KEY.digest, b"{}"),
    "without envelope": lambda made: made.to_bytes(),
    "nothing": lambda made: b"",
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_record_that_is_not_the_one_asked_for(forged: str, server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    server.kept[f"/team/dlc/ac/{KEY.digest}"] = FORGED[forged](made)
    with opened(tmp_path / "b", server.url) as cache:
        assert cache.lookup(KEY) is None
        assert len(cache.warnings) == 1
    with opened(tmp_path / "b") as cache:
        assert cache.statistics().records == 0


def test_objects_that_changed_places(server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    one, two = (f"/team/dlc/cas/{made.output(name)}" for name in ("c", "o"))
    server.kept[one], server.kept[two] = server.kept[two], server.kept[one]
    with opened(tmp_path / "b", server.url) as cache:
        assert cache.lookup(KEY) == made
        assert contents(cache, made) == {"c": None, "o": None, "empty": b""}
        assert len(cache.warnings) == 1


def test_a_record_whose_objects_are_gone_is_a_miss(server: FaultyServer, tmp_path: Path) -> None:
    made = make(tmp_path / "a", server.url)
    del server.kept[f"/team/dlc/cas/{made.output('o')}"]
    with opened(tmp_path / "b", server.url) as cache:
        assert cache.lookup(KEY) is None
        assert cache.warnings == ()
    with opened(tmp_path / "b", server.url, mode="require") as cache, pytest.raises(DlcError) as caught:
        cache.lookup(KEY)
    assert caught.value.exit_code is ExitCode.CACHE_MISS


def test_credentials_go_to_their_host_only(server: FaultyServer, tmp_path: Path) -> None:
    make(tmp_path / "a", server.url)
    with serving() as other:
        server.elsewhere = other.url
        server.fault = lambda method, path: "redirect"
        server.asked.clear()
        with opened(tmp_path / "b", server.url.replace("//", "//ci:s3cret%2F@")) as cache:
            assert cache.lookup(KEY) is None
        assert not other.asked
    assert [headers["Authorization"] for _, _, headers in server.asked] == ["Basic Y2k6czNjcmV0Lw=="]
    (warning,) = cache.warnings
    assert "redirect" in warning.notes[0]
    shown = f"{warning} {cache.counts} {cache.store.levels}"
    assert "s3cret" not in shown
    assert "ci:" not in shown
    assert all("s3cret" not in str(file.read_bytes()) for file in (tmp_path / "b").rglob("*") if file.is_file())


def test_uploads_end_in_time(server: FaultyServer, tmp_path: Path) -> None:
    server.fault = lambda method, path: "slow"
    start = time.monotonic()
    with opened(tmp_path / "a", f"{server.url}#rw", upload_time=0.2) as cache:
        for k in range(4):
            cache.save(Key.of(step=f"step{k}"), {"c": bytes([k])}, {})
        saved = time.monotonic()
    assert saved - start < 0.9  # behind the build
    assert time.monotonic() - saved < 0.9
    (warning,) = cache.warnings
    assert "4 results were not uploaded" in warning.notes[0]


def test_a_breaker_opens_and_tries_again() -> None:
    now = [0.0]
    breaker = Breaker(clock=lambda: now[0])
    for _ in range(2):
        breaker.failed(lasting=False)
    breaker.worked()
    for _ in range(2):
        breaker.failed(lasting=False)
        assert breaker.allows()
    breaker.failed(lasting=False)
    assert not breaker.allows()
    now[0] = 30.0
    assert [breaker.allows() for _ in range(2)] == [True, False]  # one at a time
    breaker.failed(lasting=False)
    now[0] = 89.0
    assert not breaker.allows()
    now[0] = 90.0
    assert breaker.allows()
    breaker.worked()
    assert all(breaker.allows() for _ in range(3))
    breaker.failed(lasting=True)
    assert not breaker.allows()


def test_counts_of_levels_are_added_by_level() -> None:
    one = Counts(hits=1, levels=(LevelCounts("a", hits=1, ms_saved=2.0), LevelCounts("b", failures=1)))
    two = Counts(levels=(LevelCounts("b", failures=2), LevelCounts("c")))
    total = one + two
    assert total.levels == (LevelCounts("a", hits=1, ms_saved=2.0), LevelCounts("b", failures=3))
    assert total - total == Counts()
    assert Counts.from_bytes(total.to_bytes()) == total
    assert Counts.from_bytes(b'{"hits":2,"levels":[1,{"hits":1},{"level":"x","hits":-1}]}') == Counts(
        hits=2, levels=(LevelCounts("x"),)
    )


@pytest.mark.parametrize(
    ("text", "label", "writes"),
    [
        ("https://cache.example/dlc", "https://cache.example/dlc", False),
        ("https://cache.example/dlc#ro", "https://cache.example/dlc", False),
        ("https://u:p@cache.example:8080/#rw", "https://cache.example:8080/", True),
        ("http://[::1]:80/x#rw", "http://[::1]:80/x", True),
        ("s3://bucket/pre/fix#rw", "s3://bucket/pre/fix", True),
        ("redis://:pw@host/0", "redis://host/0", False),
    ],
)
def test_a_level_by_its_url(text: str, label: str, writes: bool) -> None:
    level = Level.parse(text)
    assert (level.label, level.writes) == (label, writes)
    assert not {"u:p", "pw"} & set(repr(level).split("'"))


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (["ftp://u:hidden@x/"], "ftp://x/"),
        (["https://x/", "disk"], "disk"),
        (["https:///path"], "host"),
        (["https://x/#wr"], "#wr"),
        (["https://u:hidden@x/?token=hidden"], "query"),
        (["https://u:hidden@[x/"], "URL"),
        (["https://x:hidden/"], "URL"),
        (["https://x/", "https://u:hidden@x/#rw"], "twice"),
        (["https://x/a\x1bb"], "host"),
        (["https://x/\u00e9"], "ASCII"),
    ],
)
def test_what_is_no_level(texts: list[str], word: str) -> None:
    with pytest.raises(ValueError, match="level") as caught:
        parse_levels(texts)
    assert word in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_the_disk_is_the_first_level() -> None:
    assert parse_levels(["disk"]) == ()
    assert parse_levels(["disk", "https://x/"]) == parse_levels(["https://x/"])


def test_signed_results_of_a_level_replace_what_is_not_used_here(server: FaultyServer, tmp_path: Path) -> None:
    """A machine that turns keys on has its own unsigned results; they must not hide those that CI has signed."""
    public = write_key(tmp_path / "key")
    signing, verifying = Policy(signer=read_signer(tmp_path / "key")), Policy(frozenset([public]))
    with opened(tmp_path / "ci", f"{server.url}#rw", policy=signing) as cache:
        made = cache.save(KEY, OUTPUTS, {"ms": "1"})
    make(tmp_path / "own")
    with opened(tmp_path / "own", server.url, policy=verifying) as cache:
        assert cache.lookup(KEY) == made
        assert cache.counts.refused == {}
    with opened(tmp_path / "own", policy=verifying) as cache:
        assert cache.lookup(KEY) == made


def test_who_signs_heals_a_poisoned_level(server: FaultyServer, tmp_path: Path) -> None:
    public = write_key(tmp_path / "key")
    signing = Policy(frozenset([public]), signer=read_signer(tmp_path / "key"))
    make(tmp_path / "attacker", server.url)
    with opened(tmp_path / "ci", f"{server.url}#rw", policy=signing) as cache:
        assert cache.lookup(KEY) is None
        assert cache.counts.refused == {"unsigned": 1}
        made = cache.save(KEY, OUTPUTS, {"ms": "1"})
    with opened(tmp_path / "other", server.url, policy=Policy(frozenset([public]))) as cache:
        assert cache.lookup(KEY) == made
