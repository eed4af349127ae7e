"""Results carry the key of the user: what a directory brings along, or what was altered, is a miss."""

import hmac
import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cache import Cache, Key, LocalStore, MemoryStore, Record
from dlc.cache.bundle import chosen, export_bundle, import_bundle
from dlc.cache.envelope import Damaged
from dlc.cache.own_key import OwnKey, UserKey
from dlc.cache.signing import CAUSES, Policy

KEY = Key.of(step="fuse{max-ops=8}", code="dlc 0.1.0 91be", input="graph 3f2a")
RECORD = Record(KEY.text, (("c", "1" * 64), ("o", "2" * 64)), (("ms", "1.5"), ("digest", "ab")))


def test_what_is_marked() -> None:
    """Checked with the standard library alone: the format is documented, not an accident."""
    secret = bytes(range(32))
    mac = OwnKey.of(secret).marked(RECORD).mac
    assert mac is not None
    message = b"dlc cache record, mac 1\n" + bytes.fromhex(KEY.digest) + RECORD.to_bytes()
    assert mac.value == hmac.new(secret, message, "sha256").hexdigest()
    marked = OwnKey.of(secret).marked(RECORD)
    assert Record.from_bytes(marked.to_bytes()) == marked and replace(marked, mac=None) == RECORD


def test_each_cause() -> None:
    ours, other = OwnKey.of(b"a" * 32), OwnKey.of(b"b" * 32)
    marked = ours.marked(RECORD)
    assert marked.mac is not None
    assert ours.refusal(marked) == ""
    assert ours.refusal(RECORD) == ours.refusal(other.marked(RECORD)) == "foreign"
    altered = [
        replace(marked, outputs=RECORD.outputs[::-1]),
        replace(marked, meta=(*RECORD.meta[:1], ("digest", "ac"))),
        replace(marked, key_text=Key.of(step="fuse{max-ops=9}").text),
        replace(marked, mac=replace(marked.mac, value="0" * 64)),
        replace(other.marked(RECORD), mac=replace(marked.mac, value=other.marked(RECORD).mac.value)),  # type: ignore[union-attr]
    ]
    assert [ours.refusal(record) for record in altered] == ["altered"] * len(altered)
    assert {"foreign", "altered"} <= set(CAUSES)


def test_no_altered_byte_of_a_record_is_used() -> None:
    ours, choose = OwnKey.of(b"a" * 32), random.Random(0)
    content = ours.marked(RECORD).to_bytes()
    used = 0
    for _ in range(500):
        other = bytearray(content)
        other[choose.randrange(len(other))] ^= 1 << choose.randrange(8)
        try:
            used += not ours.refusal(Record.from_bytes(bytes(other)))
        except (Damaged, UnicodeDecodeError):
            continue
    assert not used


def test_the_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    places = [UserKey(directory=tmp_path / "state") for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        keys = {key.secret for key in pool.map(UserKey.get, places)}
    file = tmp_path / "state" / "cache.key"
    assert keys == {file.read_bytes()} and len(file.read_bytes()) == 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["cache.key"]


def test_looking_makes_no_key(tmp_path: Path) -> None:
    assert UserKey(directory=tmp_path / "state").refusal(OwnKey.of(b"a" * 32).marked(RECORD)) == "foreign"
    assert not (tmp_path / "state").exists()


def readable_by_others(file: Path) -> None:
    file.chmod(0o644)


def truncated(file: Path) -> None:
    file.write_bytes(b"short")


def linked(file: Path) -> None:
    os.rename(file, file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


@pytest.mark.parametrize("spoil", [readable_by_others, truncated, linked])
def test_a_key_that_others_may_know_is_not_used(spoil: object, tmp_path: Path) -> None:
    assert callable(spoil)
    secret = UserKey(directory=tmp_path).get().secret
    spoil(tmp_path / "cache.key")
    key = UserKey(directory=tmp_path)
    assert key.get().secret != secret and key.get() == key.get()
    (warning,) = key.warnings
    assert warning.code == "cache-no-key" and "DLC_CACHE_KEY" in warning.help


def test_a_short_text_is_no_secret() -> None:
    with pytest.raises(DlcError) as caught:
        UserKey("password")
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_a_cache_of_somebody_else_is_missed_and_built_anew(mode: str, tmp_path: Path) -> None:
    mine, theirs = (Policy(own=UserKey(directory=tmp_path / name)) for name in ("me", "them"))
    with Cache(LocalStore(tmp_path / "c"), "rw", policy=theirs) as cache:
        cache.save(KEY, {"c": b"their library"}, {})
        assert cache.lookup(KEY) is not None
    with Cache(LocalStore(tmp_path / "c"), mode, policy=mine) as cache:  # type: ignore[arg-type]
        assert cache.lookup(KEY) is None and cache.peek(KEY.digest) is None
        assert "somebody else" in cache.why(KEY)
        assert cache.counts.refused == {"foreign": 1}
        assert any(w.code == "cache-untrusted" for w in cache.warnings)
        cache.save(KEY, {"c": b"my library"}, {})
        found = cache.lookup(KEY)
        assert (found is not None) == (mode == "rw")
        assert found is None or cache.read(found.output("c")) == b"my library"


def test_a_text_is_a_key_on_every_machine(tmp_path: Path) -> None:
    first, second, other = (UserKey(text, tmp_path / "none") for text in ("x" * 20, "x" * 20, "y" * 20))
    marked = first.get().marked(RECORD)
    assert second.refusal(marked) == "" and other.refusal(marked) == "foreign"
    assert not (tmp_path / "none").exists()


def test_with_trusted_keys_signatures_count_alone(tmp_path: Path) -> None:
    policy = Policy(frozenset(["ed25519:" + "0" * 64]), own=UserKey(directory=tmp_path))
    assert policy.refusal(policy.signed(RECORD)) == "unsigned"


def test_a_bundle_that_is_imported_becomes_the_users_own(tmp_path: Path) -> None:
    mine, theirs = (Policy(own=UserKey(directory=tmp_path / name)) for name in ("me", "them"))
    source, target = MemoryStore(), MemoryStore()
    Cache(source, "rw", policy=theirs).save(KEY, {"c": b"x"}, {})
    export_bundle(source, chosen(source, None), tmp_path / "b")
    Cache(source, "rw", policy=mine).save(KEY, {"c": b"x"}, {})
    export_bundle(source, chosen(source, None), tmp_path / "b2")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "b2").read_bytes()  # whoever made it
    import_bundle(target, tmp_path / "b", 1 << 20, mine)
    assert Cache(target, "ro", policy=mine).lookup(KEY) is not None
    stored = json.loads(target.get(KEY.digest, "record") or b"")
    assert stored["mac"][0] == UserKey(directory=tmp_path / "me").get().name
