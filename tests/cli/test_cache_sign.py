"""`dlc cache keygen | sign | audit`, and builds that use signed results only."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cache import CacheMode, LocalStore, Record
from dlc.cache.own_key import UserKey
from dlc.cache.upkeep import records
from dlc.driver.program import Compiler
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden

TARGET = ("-t", "c{lib=none}")
OTHER_DIGITS = str.maketrans("0123456789", "1234567890")
BUILD = ("build", "small.onnx", "-q", *TARGET, "-o", "out")


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def keygen(dlc: Dlc, name: str = "key") -> str:
    return dlc("cache", "keygen", "-o", name, "--json").document["public_key"]


def test_a_build_signs_and_others_use_it(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    public = keygen(dlc)
    dlc(*BUILD)
    monkeypatch.setenv("DLC_CACHE_TRUSTED_KEYS", public)
    assert dlc(*BUILD, "--cache", "require").code == ExitCode.CACHE_MISS
    why = dlc("cache", "why", "small.onnx", *TARGET).out.splitlines()
    assert why[0].endswith("(not signed)")
    monkeypatch.setenv("DLC_CACHE_SIGNING_KEY", "key")
    assert "results of the cache were not used: " in dlc(*BUILD).err
    monkeypatch.delenv("DLC_CACHE_SIGNING_KEY")
    assert dlc(*BUILD, "--cache", "require").code == ExitCode.OK
    assert dlc(*BUILD, "--cache", "require", "--explain", "fuse").code == ExitCode.OK
    assert {f["state"] for f in dlc("cache", "why", "small.onnx", *TARGET, "--json").document["findings"]} == {"hit"}
    assert dlc("cache", "stats", "--json").document["total"]["unsigned"] > 5
    assert " results were there and not used: " in dlc("cache", "stats").out
    monkeypatch.setenv("DLC_CACHE_SIGNED_SINCE", "2999-01-01")
    ran = dlc(*BUILD, "--cache", "require")
    assert ran.code == ExitCode.CACHE_MISS
    assert "cached, but signed before cache.signed-since" in ran.err


def test_keys_of_a_project_need_trust(dlc: Dlc, golden: Golden, tmp_path: Path) -> None:
    """A pull request that changes the list of keys would say whose compiled programs are installed."""
    public = keygen(dlc)
    Path("dlc.toml").write_text(f'[cache]\ntrusted-keys = ["{public}"]\n')
    refused = dlc(*BUILD)
    golden("cache/untrusted_keys.txt", refused.transcript().replace(str(tmp_path), "DIR"))
    assert refused.code == ExitCode.USAGE
    assert dlc(*BUILD, "--trust-config").code == ExitCode.OK
    assert f"cache.trusted-keys={public}" in dlc("trust").out
    assert dlc(*BUILD).code == ExitCode.OK
    Path("dlc.toml").write_text(f'[cache]\ntrusted-keys = ["{public}", "{public}"]\n')
    assert dlc(*BUILD).code == ExitCode.USAGE


def test_a_project_names_no_private_key(dlc: Dlc) -> None:
    Path("dlc.toml").write_text('[cache]\nsigning-key = "key"\n')
    assert "there is no key cache.signing-key" in dlc(*BUILD).err


def test_the_environment_overrides_a_project(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    public = keygen(dlc)
    Path("dlc.toml").write_text('[cache]\ntrusted-keys = []\nsigned-since = "2020-01-01"\n')
    dlc(*BUILD)
    monkeypatch.setenv("DLC_CACHE_TRUSTED_KEYS", public)
    assert dlc(*BUILD, "--cache", "require").code == ExitCode.CACHE_MISS


def test_sign_what_is_there(dlc: Dlc, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    public = keygen(dlc)
    dlc(*BUILD)
    golden("cache/sign_errors.txt", "\n\n".join(dlc("cache", "sign", *f).transcript() for f in ((), ("--as-is",))))
    monkeypatch.setenv("DLC_CACHE_SIGNING_KEY", "key")
    first = dlc("cache", "sign", "--as-is", "--json").document
    again = dlc("cache", "sign", "--as-is", "--json").document
    assert first["signed"] > 10
    assert (again["signed"], again["before"]) == (0, first["signed"])
    monkeypatch.delenv("DLC_CACHE_SIGNING_KEY")
    monkeypatch.setenv("DLC_CACHE_TRUSTED_KEYS", public)
    assert dlc(*BUILD, "--cache", "require").code == ExitCode.OK


def altered(store: LocalStore, step: str, how: str) -> tuple[Record, Record]:
    """One result of a step, and the same poisoned consistently: the bytes that it names are in the store."""
    named = (r for _, r in records(store) if r.key.step_name.startswith(step))
    victim = next(r for r in named if how != "output" or r.outputs)
    if how != "output":
        meta = {**dict(victim.meta), how: dict(victim.meta)[how].translate(OTHER_DIGITS)}
        return victim, replace(victim, meta=tuple(meta.items()))
    name, digest = victim.outputs[-1]
    content = (store.get(digest) or b"") + b" "
    new = hashlib.sha256(content).hexdigest()
    store.put(new, content)
    return victim, replace(victim, outputs=(*victim.outputs[:-1], (name, new)))


def test_an_audit_finds_what_was_altered(dlc: Dlc, tmp_path: Path) -> None:
    dlc(*BUILD)
    sound = dlc("cache", "audit", "small.onnx", *TARGET, "--json").document
    assert (sound["ok"], sound["differences"]) == (True, [])
    assert sound["rebuilt"] == sound["results"] > 10
    before = dlc("cache", "stats", "--json").document
    store = LocalStore(tmp_path / "cache")
    kinds = {"onnx": "output", "generate": "output", "emit c": "output", "fuse": "digest", "request": "build"}
    for step, how in kinds.items():
        victim, poisoned = altered(store, step, how)
        assert poisoned != victim
        # By somebody who has the user's key: without it the result would be a miss.
        store.put(victim.key.digest, UserKey().get().marked(poisoned).to_bytes(), "record")
        ran = dlc("cache", "audit", "small.onnx", *TARGET)
        assert ran.code == ExitCode.MISMATCH
        assert f"  {victim.key.digest}  {step}" in ran.out
        store.put(victim.key.digest, victim.to_bytes(), "record")
    store.close()
    after = dlc("cache", "stats", "--json").document
    assert (after["records"], after["total"]) == (before["records"], before["total"]), "an audit writes nothing"


def test_samples(dlc: Dlc, golden: Golden) -> None:
    golden("cache/audit_nothing.txt", dlc("cache", "audit", "small.onnx", *TARGET).transcript())
    dlc(*BUILD)

    def rebuilt(share: str, seed: int) -> int:
        flags = ("--sample", share, "--seed", seed, "--json")
        return dlc("cache", "audit", "small.onnx", *TARGET, *flags).document["rebuilt"]

    few = [rebuilt("20%", seed) for seed in (1, 1, 2, 3)]
    assert few[0] == few[1]
    assert max(few) < rebuilt("100%", 1)
    for share in ("0%", "101%", "x%", "0.5", "nan%"):
        assert dlc("cache", "audit", "small.onnx", "--sample", share).code == ExitCode.USAGE


def test_python_builds_with_keys(dlc: Dlc, tmp_path: Path) -> None:
    public = keygen(dlc)
    place = tmp_path / "python"

    def built(mode: CacheMode, *, trusted: bool, signs: bool = False) -> None:
        keys, key = (public,) if trusted else (), "key" if signs else None
        compiler = Compiler.open(place, mode, trusted_keys=keys, signing_key=key)
        compiler.artifact(Source(Path("small.onnx")), TARGET[1])
        compiler.cache.close()

    built("rw", trusted=False)
    with pytest.raises(DlcError, match="cached, but not signed"):
        built("require", trusted=True)
    built("refresh", trusted=False, signs=True)
    built("require", trusted=True)


def test_without_a_cache_there_is_nothing_to_sign(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_CACHE_TRUSTED_KEYS", "no key")
    assert dlc(*BUILD).code == ExitCode.USAGE
    assert dlc(*BUILD, "--cache", "off").code == ExitCode.OK
