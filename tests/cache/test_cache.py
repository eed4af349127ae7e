"""What the session sees: modes, reasons of misses, counts, eviction. The same on every store."""

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cache import Cache, CacheMode, Key, LocalStore, MemoryStore, Record, Store, open_cache
from dlc.cache.counts import Counts

Open = Callable[[CacheMode], Cache]
KEY = Key.of(step="fuse{max-ops=8}", code="dlc 0.1.0 91be", subject="resnet", input="graph 3f2a")
BIG = bytes(range(256)) * 1000


@pytest.fixture(params=["memory", "local"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    memory = MemoryStore()

    def open_in(mode: CacheMode) -> Cache:
        local = request.param == "local"
        store: Store = (
            LocalStore(tmp_path / "c", readonly=mode in ("ro", "require"), touch_after=0.0) if local else memory
        )
        return Cache(store, mode)

    return open_in


def test_second_lookup_hits_with_the_same_bytes(opened: Open) -> None:
    with opened("rw") as cache:
        assert cache.lookup(KEY) is None
        saved = cache.save(KEY, {"c": b"int x;", "o": BIG, "empty": b""}, {"ms": "12.5"})
    with opened("rw") as cache:
        record = cache.lookup(KEY)
        assert record is not None
        assert record == saved
        assert record.milliseconds == 12.5
        assert [cache.read(digest) for _, digest in record.outputs] == [b"int x;", BIG, b""]
        assert bytes(cache.view(record.output("o")) or b"") == BIG
        assert bytes(cache.view(record.output("c")) or b"") == b"int x;"
        assert cache.warnings == ()


def test_files_go_in_and_out_without_loading(opened: Open, tmp_path: Path) -> None:
    for name, content in (("big", BIG), ("small", b"tiny")):
        source, target = tmp_path / name, tmp_path / f"{name}.out"
        source.write_bytes(content)
        with opened("rw") as cache:
            record = cache.save(Key.of(step=name), {"blob": source}, {})
            assert record.output("blob") == hashlib.sha256(content).hexdigest()
            assert cache.export(record.output("blob"), target)
            assert target.read_bytes() == content
            assert cache.export("0" * 64, target) is False
            assert target.read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "c") == [
        "big",
        "big.out",
        "small",
        "small.out",
    ]


def test_read_only_reads_but_saves_nothing(opened: Open) -> None:
    opened("rw").save(KEY, {"c": b"x"}, {})
    other = Key.of(step="other")
    with opened("ro") as cache:
        assert cache.lookup(KEY) is not None
        record = cache.save(other, {"c": b"new"}, {})
        assert record.output("c") == hashlib.sha256(b"new").hexdigest()
    with opened("rw") as cache:
        assert cache.lookup(other) is None
        assert cache.read(record.output("c")) is None


def test_off_neither_reads_nor_writes(opened: Open, tmp_path: Path) -> None:
    opened("rw").save(KEY, {"c": b"x"}, {})
    with opened("off") as cache:
        assert cache.lookup(KEY) is None
        record = cache.save(KEY, {"c": b"x"}, {})
        assert cache.read(record.output("c")) is None
    assert open_cache(tmp_path / "absent", "off").lookup(KEY) is None
    assert not (tmp_path / "absent").exists()


def test_refresh_rebuilds_and_overwrites(opened: Open) -> None:
    opened("rw").save(KEY, {"c": b"old"}, {})
    with opened("refresh") as cache:
        assert cache.lookup(KEY) is None
        cache.save(KEY, {"c": b"new"}, {})
    with opened("rw") as cache:
        record = cache.lookup(KEY)
        assert record is not None
        assert cache.read(record.output("c")) == b"new"


def test_require_hits_or_says_why_not(opened: Open) -> None:
    with opened("rw") as cache:
        cache.save(KEY, {"c": b"x"}, {})
    changed = Key(tuple((label, "dlc 0.1.1 77aa" if label == "code" else value) for label, value in KEY.lines))
    with opened("require") as cache:
        assert cache.lookup(KEY) is not None
        with pytest.raises(DlcError) as caught:
            cache.lookup(changed)
        with pytest.raises(DlcError) as lost:
            cache.read("0" * 64)
    assert caught.value.exit_code == lost.value.exit_code == ExitCode.CACHE_MISS
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "cache-miss"
    assert diagnostic.notes == (
        "fuse: the nearest earlier result has 3 of 4 lines equal; these differ:",
        "  code: dlc 0.1.0 91be → dlc 0.1.1 77aa",
    )


def test_why_prefers_the_same_subject_then_the_most_equal_lines(opened: Open) -> None:
    with opened("rw") as cache:
        assert cache.why(KEY) == "fuse: nothing is cached for this step"
        cache.save(Key.of(step="fuse{max-ops=8}", code="dlc 0.1.0 91be", subject="vgg", input="graph 3f2a"), {}, {})
        assert "subject: vgg → resnet" in cache.why(KEY)
        cache.save(Key.of(step="fuse{max-ops=4}", code="dlc 0.0.9 0000", subject="resnet", input="graph 3f2a"), {}, {})
        cache.save(Key.of(step="other", code="dlc 0.1.0 91be", subject="resnet", input="graph 3f2a"), {}, {})
        assert cache.why(KEY).splitlines()[1:] == [
            "  step: fuse{max-ops=4} → fuse{max-ops=8}",
            "  code: dlc 0.0.9 0000 → dlc 0.1.0 91be",
        ]
        record = cache.save(KEY, {"c": b"x"}, {})
        assert cache.why(KEY) == "fuse: cached"
        cache.store.delete([record.output("c")])
        assert cache.why(KEY) == "fuse: cached, but its outputs were evicted: c"


def test_a_record_without_its_objects_is_a_miss(opened: Open) -> None:
    with opened("rw") as cache:
        record = cache.save(KEY, {"a": b"x", "b": BIG}, {})
        cache.store.delete([record.output("b")])
        assert cache.lookup(KEY) is None
        assert cache.verify().dangling == 1


def test_a_record_under_a_foreign_digest_is_a_miss(opened: Open) -> None:
    with opened("rw") as cache:
        cache.store.put(KEY.digest, Record(Key.of(step="other").text, ()).to_bytes(), "record")
        assert cache.lookup(KEY) is None
        assert cache.verify().bad == (KEY.digest,)
        cache.store.put(KEY.digest, b'{"version":2}', "record")
        assert cache.lookup(KEY) is None


def test_counts_add_up_over_processes(opened: Open) -> None:
    for _ in range(3):
        with opened("rw") as cache:
            record = cache.lookup(KEY) or cache.save(KEY, {"c": b"12345"}, {"ms": "100"})
            cache.read(record.output("c"))
    statistics = opened("rw").statistics()
    assert statistics.total == Counts(hits=2, misses=1, bytes_read=15, bytes_written=5, ms_saved=200.0)
    assert statistics.session == Counts()
    assert (statistics.records, statistics.objects) == (1, 1)
    assert round(statistics.total.hit_rate, 2) == 0.67


def test_counts_are_compacted_without_loss(opened: Open) -> None:
    for _ in range(80):
        cache = opened("rw")
        cache.lookup(KEY)
        cache.close()
    cache = opened("rw")
    assert cache.statistics().total.misses == 80
    assert sum(1 for entry in cache.store.entries() if entry.table == "stat") < 80


def test_trim_evicts_the_least_recently_used(opened: Open) -> None:
    for number in range(4):
        with opened("rw") as cache:
            cache.save(Key.of(step="s", n=str(number)), {"c": bytes([number]) * 50_000}, {})
        time.sleep(0.02)
    with opened("rw") as cache:  # the oldest becomes the last used
        record = cache.lookup(Key.of(step="s", n="0"))
        assert record is not None
        assert cache.read(record.output("c"))
    with opened("rw") as cache:
        trimmed = cache.trim(120_000)
        assert trimmed.left <= 120_000
        kept = [n for n in range(4) if cache.lookup(Key.of(step="s", n=str(n)))]
        assert kept == [0, 3]
        assert cache.trim(0).left < 2000  # only statistics stay
        assert cache.statistics().records == 0


def test_close_keeps_to_the_size_limit(tmp_path: Path) -> None:
    with open_cache(tmp_path / "c", "rw", size_limit=200_000) as cache:
        for number in range(6):
            cache.save(Key.of(step="s", n=str(number)), {"c": bytes([number]) * 50_000}, {})
    statistics = open_cache(tmp_path / "c", "ro").statistics()
    assert statistics.size <= 200_000
    assert statistics.objects == 3


def test_a_build_never_evicts_what_it_uses(tmp_path: Path) -> None:
    for number in range(4):
        with open_cache(tmp_path / "c", "rw", size_limit=None) as cache:
            cache.save(Key.of(step="s", n=str(number)), {"c": bytes([number]) * 50_000}, {})
        time.sleep(0.02)
    with open_cache(tmp_path / "c", "rw", size_limit=120_000) as cache:
        assert cache.lookup(Key.of(step="s", n="0"))  # the oldest, and its use is not noted on the disk yet
        cache.save(Key.of(step="s", n="new"), {"c": b"n" * 50_000}, {})
    with open_cache(tmp_path / "c", "rw", size_limit=None) as cache:
        assert [n for n in ("0", "1", "2", "3", "new") if cache.lookup(Key.of(step="s", n=n))] == ["0", "new"]
        assert cache.warnings == ()


def test_what_exceeds_the_limit_is_refused_with_the_numbers(opened: Open) -> None:
    with opened("rw") as cache:
        cache.save(Key.of(step="old"), {"c": b"o" * 30_000}, {})
    store = opened("rw").store
    cache = Cache(store, "rw", size_limit=100_000)
    assert cache.lookup(Key.of(step="old"))
    assert cache.save(Key.of(step="fits"), {"c": b"f" * 60_000}, {}).outputs
    record = cache.save(Key.of(step="pack{x=1}"), {"c": b"p" * 50_000, "d": b"q" * 30_000}, {})
    assert [name for name, _ in record.outputs] == ["c", "d"]
    assert cache.lookup(Key.of(step="pack{x=1}")) is None
    assert not any(store.has(digest) for _, digest in record.outputs)
    cache.save(Key.of(step="small"), {"c": b"s"}, {})
    (report,) = cache.warnings
    cache.close()
    assert report.code == "cache-limit" and report.severity == "warning"
    text = "\n".join((report.message, *report.notes, report.help))
    assert all(part in text for part in ("100,000", "80,", "pack", "cache.size", "MiB"))
    with opened("rw") as cache:
        assert all(cache.lookup(Key.of(step=step)) for step in ("old", "fits", "small"))


@pytest.mark.parametrize("kind", ["saves", "looks up"])
def test_trimming_leaves_what_a_running_build_of_another_process_uses(tmp_path: Path, kind: str) -> None:
    with open_cache(tmp_path / "c", "rw") as cache:
        for name in ("used", "idle"):
            cache.save(Key.of(step=name), {"c": name.encode() * 20_000, "small": name.encode()}, {})
    script = """
import sys
from pathlib import Path
from dlc.cache import Key, open_cache
cache = open_cache(Path(sys.argv[1]), "rw")
if sys.argv[2] == "saves":
    cache.save(Key.of(step="used"), {"c": b"used" * 20_000, "small": b"used"}, {})
else:
    assert cache.lookup(Key.of(step="used"))
print("ready", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", script, str(tmp_path / "c"), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as build:
        assert build.stdout is not None and build.stdout.readline() == "ready\n"
        with open_cache(tmp_path / "c", "rw") as cache:
            cache.trim(0)
            assert cache.statistics().records == 1
            record = cache.lookup(Key.of(step="used"))
            assert record and cache.read(record.output("c")) == b"used" * 20_000
            assert cache.read(record.output("small")) == b"used"
        build.kill()  # its note is left over
    with open_cache(tmp_path / "c", "rw") as cache:
        cache.trim(0)
        assert cache.statistics().records == 0
    assert list((tmp_path / "c" / "running").iterdir()) == []


def test_clear_leaves_nothing(opened: Open) -> None:
    with opened("rw") as cache:
        cache.save(KEY, {"c": b"x", "o": BIG}, {})
    with opened("rw") as cache:
        cache.clear()
        assert list(cache.store.entries()) == []
        assert cache.lookup(KEY) is None
    assert opened("rw").statistics().total.misses == 1


def test_one_flight_per_key(tmp_path: Path) -> None:
    cache, builds = open_cache(tmp_path / "c", "rw"), list[int]()

    def build(number: int) -> None:
        with cache.flight(KEY):
            if cache.lookup(KEY) is None:
                builds.append(number)
                time.sleep(0.02)
                cache.save(KEY, {"c": b"x"}, {})

    threads = [threading.Thread(target=build, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert cache.statistics().session.hits == 5


def test_threads_share_a_cache(tmp_path: Path) -> None:
    cache, wrong = open_cache(tmp_path / "c", "rw"), list[int]()

    def work(seed: int) -> None:
        for number in range(seed, seed + 40):
            content = str(number).encode() * (1 + number % 3 * 20_000)
            record = cache.lookup(Key.of(n=str(number))) or cache.save(Key.of(n=str(number)), {"c": content}, {})
            if cache.read(record.output("c")) != content:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(0, 80, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.close()
    assert wrong == []
    assert cache.warnings == ()
