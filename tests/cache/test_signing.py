"""Signed results: used with a trusted key's signature only, and only as they were signed."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cache import Cache, Counts, Damaged, Key, MemoryStore, Record
from dlc.cache.bundle import chosen, export_bundle, import_bundle
from dlc.cache.signing import CAUSES, Policy, Signer, policy_of, read_signer, write_key

ROOT = Path(__file__).parents[2]
KEY = Key.of(step="fuse{max-ops=8}", code="dlc 0.1.0 91be", input="graph 3f2a")
RECORD = Record(KEY.text, (("c", "1" * 64), ("o", "2" * 64)), (("ms", "1.5"), ("digest", "ab")))


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Signer, Signer]:
    place = tmp_path_factory.mktemp("keys")
    for name in "ab":
        write_key(place / name)
    return read_signer(place / "a"), read_signer(place / "b")


def test_what_is_signed(signers: tuple[Signer, Signer], tmp_path: Path) -> None:
    """Checked with the library alone: the format is documented, not an accident."""
    signer, _ = signers
    signature = signer.signed(RECORD, now=1_790_000_000.9).signature
    assert signature is not None
    assert signature.time == 1_790_000_000
    message = b"dlc cache record, signature 1\n" + bytes.fromhex(KEY.digest)
    message += (1_790_000_000).to_bytes(8, "little") + RECORD.to_bytes()
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer.public.removeprefix("ed25519:")))
    public.verify(bytes.fromhex(signature.value), message)


def test_signed_records_print_and_parse(signers: tuple[Signer, Signer]) -> None:
    signed = signers[0].signed(RECORD, now=7)
    assert Record.from_bytes(signed.to_bytes()) == signed
    assert b"signature" not in RECORD.to_bytes()
    assert replace(signed, signature=None) == RECORD


def test_each_cause(signers: tuple[Signer, Signer]) -> None:
    ours, other = signers
    policy = Policy(frozenset([ours.public]), since=100)
    signed = ours.signed(RECORD, now=100)
    assert policy.refusal(signed) == ""
    assert Policy().refusal(RECORD) == ""
    assert policy.refusal(RECORD) == "unsigned"
    assert policy.refusal(other.signed(RECORD, now=100)) == "unknown_key"
    assert policy.refusal(ours.signed(RECORD, now=99)) == "outdated"
    assert replace(policy, signer=other).refusal(other.signed(RECORD, now=100)) == ""
    signature = signed.signature
    assert signature is not None
    altered = [
        replace(signed, outputs=RECORD.outputs[::-1]),
        replace(signed, outputs=RECORD.outputs[:1]),
        replace(signed, meta=(*RECORD.meta[:1], ("digest", "ac"))),
        replace(signed, key_text=Key.of(step="fuse{max-ops=9}").text),
        replace(signed, signature=replace(signature, time=101)),
        replace(signed, signature=replace(signature, value="0" * 128)),
        replace(signed, signature=other.signed(RECORD, now=100).signature and replace(signature, value="f" * 128)),
    ]
    assert [policy.refusal(record) for record in altered] == ["bad_signature"] * len(altered)
    assert set(CAUSES) <= {field.name for field in fields(Counts)}


@pytest.mark.parametrize(
    "signature",
    [None, [], ["k", 1], ["k", "1", "0" * 128], ["k", -1, "0" * 128], ["k", 1 << 70, "0" * 128], ["k", 1, "z"]],
)
def test_malformed_signatures_are_damage(signature: object) -> None:
    record = json.dumps({**json.loads(RECORD.to_bytes()), "signature": signature}).encode()
    with pytest.raises(Damaged):
        Record.from_bytes(record)


def test_misses_are_counted_and_explained(signers: tuple[Signer, Signer], tmp_path: Path) -> None:
    ours, other = signers
    store = MemoryStore()
    Cache(store, "rw").save(KEY, {"c": b"x"}, {})
    cache = Cache(store, "rw", policy=Policy(frozenset([ours.public])))
    assert cache.lookup(KEY) is None
    assert cache.peek(KEY.digest) is None
    assert cache.recall([KEY.digest]) is None
    assert (cache.counts.misses, cache.counts.refused) == (1, {"unsigned": 1})
    assert [(w.code, w.severity) for w in cache.warnings] == [("cache-untrusted", "warning")]
    assert cache.why(KEY) == "fuse: cached, but not signed"
    cache.close()
    assert Cache(store, "ro").statistics().total.unsigned == 1
    with pytest.raises(DlcError, match="cached, but not signed") as caught:
        Cache(store, "require", policy=cache.policy).lookup(KEY)
    assert caught.value.exit_code == ExitCode.CACHE_MISS
    Cache(store, "rw", policy=Policy(signer=other)).save(KEY, {"c": b"x"}, {})
    assert cache.lookup(KEY) is None
    assert cache.counts.refused == {"unsigned": 1, "unknown_key": 1}
    Cache(store, "rw", policy=Policy(signer=ours)).save(KEY, {"c": b"x"}, {})
    assert cache.lookup(KEY) is not None
    assert Cache(store, "require").lookup(KEY) is not None, "without keys, signed results are used as others"


def test_digests_of_files_are_believed_only_if_signed(signers: tuple[Signer, Signer], tmp_path: Path) -> None:
    """Who could plant one would give the model another's result."""
    ours, _ = signers
    model = tmp_path / "model"
    model.write_bytes(b"model")
    os.utime(model, ns=(10**18 + 1, 10**18 + 1))  # a file system that keeps nanoseconds
    verifying = Policy(frozenset([ours.public]))
    for signer, believed in ((None, False), (ours, True)):
        store = MemoryStore()
        writer = Cache(store, "rw", policy=Policy(signer=signer))
        while not any(kind == "record" for kind in store.kinds.values()):
            writer.remember_file(model, "0" * 64)  # kept once the file has lain long enough
        assert (Cache(store, "ro", policy=verifying).file_sha256(model) == "0" * 64) == believed
        assert Cache(store, "ro").file_sha256(model) == "0" * 64


def test_bundles_carry_signatures_and_replace_what_is_not_used(signers: tuple[Signer, Signer], tmp_path: Path) -> None:
    ours, other = signers
    source, target = MemoryStore(), MemoryStore()
    for number, signer in enumerate((ours, ours, other, None)):
        Cache(source, "rw", policy=Policy(signer=signer)).save(Key.of(step=f"s{number}"), {"c": b"x%d" % number}, {})
    export_bundle(source, chosen(source, None), tmp_path / "b")
    Cache(target, "rw").save(Key.of(step="s0"), {"c": b"poison"}, {})
    policy = Policy(frozenset([ours.public]))
    found = import_bundle(target, tmp_path / "b", 1 << 20, policy)
    assert (found.new_records, found.refused) == (2, {"unknown_key": 1, "unsigned": 1})
    with Cache(target, "require", policy=policy) as cache:
        for number in (0, 1):
            record = cache.lookup(Key.of(step=f"s{number}"))
            assert record is not None
            assert cache.read(record.output("c")) == b"x%d" % number


def test_keys_are_files_of_their_owner(tmp_path: Path) -> None:
    public = write_key(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert read_signer(tmp_path / "key").public == public
    load_pem_private_key((tmp_path / "key").read_bytes(), None)  # as any other program reads it
    with pytest.raises(DlcError, match="File exists"):
        write_key(tmp_path / "key")
    assert "private" not in repr(read_signer(tmp_path / "key")).lower()


def pem(content: str) -> bytes:
    return f"-----BEGIN PRIVATE KEY-----\n{content}\n-----END PRIVATE KEY-----\n".encode()


X25519 = pem("MC4CAQAwBQYDK2VuBCIEIGFvWnZR92cabwnC0lj2PAk8aYtfHf13d5u3nk6Nj3eL")


@pytest.mark.parametrize(
    ("keys", "since", "private", "message"),
    [
        (["ed25519:12"], "", None, "'ed25519:12' is no public key"),
        (["rsa:" + "0" * 64], "", None, "is no public key"),
        ([], "yesterday", None, "'yesterday' is no date or time"),
        ([], "", b"", "is no private key in PEM"),
        ([], "", pem("AAAA"), "is no private key in PEM"),
        ([], "", X25519, "another kind than Ed25519"),
        ([], "", "absent", "cannot be read: No such file"),
    ],
)
def test_bad_settings(keys: list[str], since: str, private: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    if isinstance(private, bytes):
        path.write_bytes(private)
    with pytest.raises(DlcError, match=message) as caught:
        policy_of(keys, since, None if private is None else path)
    assert caught.value.exit_code == ExitCode.USAGE


def test_dates_and_times() -> None:
    texts = ("", "1970-01-02", "1970-01-01T01:00", "1970-01-01T01:00+01:00")
    assert [policy_of((), text, None).since for text in texts] == [0, 86400, 3600, 0]


def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.cache.signing.find_spec", dict[str, object]().get)
    with pytest.raises(DlcError, match=r"dlc\[sign\]"):
        policy_of(["ed25519:" + "0" * 64], "", None)
    assert policy_of((), "", None) == Policy()


def test_poisoned_stores_are_missed() -> None:
    """A few tries of each attack; `benchmarks/cache_poison.py` itself makes a hundred."""
    command = [sys.executable, "benchmarks/cache_poison.py", "--tries", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 9
    assert all("with keys 2 of 2 not used, a build gives the same program" in line for line in lines[:-1])
    assert lines[0].startswith("consistent ")
    assert lines[0].endswith("without keys 2 of 2 used")
