"""Poison a cache in every way that whoever can write to it has; whether signatures turn each into a miss.

    python benchmarks/cache_poison.py --tries 100

A model is built with a key that signs. Each try alters one random result in the store as an attacker would who has the
store, the public key and earlier signed records, but not the private key; then the key of the result is looked up with
and without trusted public keys. At the end of each attack the model is built from a poisoned store, and has to be what
it was. Exit status 0 means that no poison was used with signatures, and that the consistent one was without.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dlc.api.artifact import Artifact
from dlc.api.source import Source
from dlc.cache import Cache, CacheMode, LocalStore, Record, open_cache
from dlc.cache.envelope import pack_header
from dlc.cache.local import INLINE_LIMIT
from dlc.cache.record import Signature
from dlc.cache.signing import Policy, Signer, read_signer, write_key
from dlc.cache.upkeep import records
from dlc.driver.program import Compiler
from dlc.plugins.discovery import load_registry

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples/mnist.onnx"
EARLIER, SINCE, NOW = 1_600_000_000, 1_700_000_000, 1_790_000_000  # Unix seconds


@dataclass(frozen=True)
class Attacker:
    """What an attacker has."""

    store: LocalStore
    records: list[Record]
    """All signed ones."""
    key: Signer
    """The attacker's own."""
    trusted: Signer
    """Only to make records that were signed in the past."""
    choose: random.Random

    def file(self, digest: str, record: Record) -> None:
        """Put a record under a name."""
        self.store.put(digest, record.to_bytes(), "record")

    def poison(self, victim: Record) -> Record:
        """The victim with one output replaced by other bytes, which are in the store; all digests agree."""
        name, digest = self.choose.choice(victim.outputs)
        other = bytearray(self.store.get(digest) or b"")
        other += b"poison" + self.choose.randbytes(8)
        new = hashlib.sha256(other).hexdigest()
        self.store.put(new, bytes(other))
        return replace(victim, outputs=tuple((n, new if n == name else d) for n, d in victim.outputs))


def consistent(attacker: Attacker, victim: Record) -> None:
    """Record and object altered, the old signature kept."""
    attacker.file(victim.key.digest, attacker.poison(victim))


def stripped(attacker: Attacker, victim: Record) -> None:
    """The same without a signature."""
    attacker.file(victim.key.digest, replace(attacker.poison(victim), signature=None))


def another_key(attacker: Attacker, victim: Record) -> None:
    """The same, signed by the attacker."""
    attacker.file(victim.key.digest, attacker.key.signed(attacker.poison(victim), NOW))


def forged(attacker: Attacker, victim: Record) -> None:
    """The same, signed by the attacker and said to be by the trusted key."""
    made = attacker.key.signed(attacker.poison(victim), NOW)
    assert made.signature is not None
    attacker.file(victim.key.digest, replace(made, signature=replace(made.signature, key=attacker.trusted.public)))


def altered_record(attacker: Attacker, victim: Record) -> None:
    """What the record says of its state altered, so that later steps look elsewhere."""
    meta = tuple((k, attacker.choose.randbytes(16).hex() if k == "digest" else v) for k, v in victim.meta)
    attacker.file(victim.key.digest, replace(victim, meta=(*meta, ("more", ""))))


def altered_object(attacker: Attacker, victim: Record) -> None:
    """An object altered under its old name, with a header that fits it as far as one can."""
    _, digest = attacker.choose.choice(victim.outputs)
    content = bytearray(attacker.store.get(digest) or b"")
    if content:
        content[attacker.choose.randrange(len(content))] ^= 1 << attacker.choose.randrange(8)
    else:
        content = bytearray(b"poison")
    if len(content) > INLINE_LIMIT:
        attacker.store._blobs.write(digest, bytes(content))
    else:
        raw = pack_header("object", digest, len(content), digest) + content
        attacker.store._index.writer().put_row(digest, raw, "object")


def swapped(attacker: Attacker, victim: Record) -> None:
    """Another record that was signed, under the victim's name, with its own key's text or the victim's."""
    other = attacker.choose.choice([r for r in attacker.records if r != victim])
    own = attacker.choose.random() < 0.5
    attacker.file(victim.key.digest, other if own else replace(other, key_text=victim.key_text))


def replayed(attacker: Attacker, victim: Record) -> None:
    """A poisoned record that the trusted key has signed before `cache.signed-since`: of a machine that was broken into,
    or of a compiler that was wrong. Or one with the later time of the record in its place."""
    older = attacker.trusted.signed(attacker.poison(victim), EARLIER)
    if attacker.choose.random() < 0.5:
        assert older.signature is not None
        older = replace(older, signature=Signature(older.signature.key, NOW, older.signature.value))
    attacker.file(victim.key.digest, older)


Attack = Callable[[Attacker, Record], None]
ATTACKS: tuple[Attack, ...] = (
    consistent,
    stripped,
    another_key,
    forged,
    altered_record,
    altered_object,
    swapped,
    replayed,
)


@contextmanager
def poisoned(attacker: Attacker, attack: Attack, victim: Record) -> Iterator[None]:
    """The store with a poisoned result, restored in the end."""
    store = attacker.store
    objects = {digest: store.get(digest) or b"" for _, digest in victim.outputs}
    attack(attacker, victim)
    try:
        yield
    finally:
        for digest, content in objects.items():
            store.put(digest, content, replace=True)
        attacker.file(victim.key.digest, victim)


def uses(directory: Path, policy: Policy, victim: Record) -> bool:
    """Whether a cache gives something for the victim's key that differs from the victim."""
    cache = Cache(LocalStore(directory, readonly=True), "ro", policy=policy)
    record = cache.lookup(victim.key)
    content = [cache.read(digest) for _, digest in record.outputs] if record else []
    cache.store.close()
    if record is None or None in content:
        return False
    return (record.outputs, record.meta) != (victim.outputs, victim.meta)


def program(directory: Path, policy: Policy, mode: CacheMode) -> dict[str, str]:
    """SHA-256 of the files that a build makes."""
    with open_cache(directory, mode, policy=policy) as cache:
        artifact: Artifact = Compiler(load_registry(), cache, jobs=1).artifact(Source(MODEL), "c{lib=none}")
        return {
            name: hashlib.sha256(c.read_bytes() if isinstance(c, Path) else c).hexdigest()
            for name, c in artifact.files.items()
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("trusted", "attacker"):
            write_key(place / name)
        trusted, own = (read_signer(place / name) for name in ("trusted", "attacker"))
        clean = program(place / "cache", Policy(signer=trusted), "rw")
        verifying = Policy(frozenset([trusted.public]), since=SINCE)
        program(place / "cache", verifying, "require")  # what is not poisoned is used
        store = LocalStore(place / "cache")
        found = [record for _, record in records(store) if record.outputs]
        attacker = Attacker(store, found, own, trusted, random.Random(options.seed))
        (emit,) = (r for r in found if r.key.step_name.startswith("emit"))
        for attack in ATTACKS:
            missed = trusting = 0
            for _ in range(options.tries):
                victim = attacker.choose.choice(found)
                with poisoned(attacker, attack, victim):
                    missed += not uses(place / "cache", verifying, victim)
                    trusting += uses(place / "cache", Policy(), victim)
            with poisoned(attacker, attack, emit):
                same = program(place / "cache", verifying, "ro") == clean
            good = missed == options.tries and same and (attack is not consistent or trusting == options.tries)
            faults += not good
            built = "the same program" if same else "ANOTHER PROGRAM"
            with_keys = f"with keys {missed} of {options.tries} not used, a build gives {built}"
            print(f"{attack.__name__:15} {with_keys}; without keys {trusting} of {options.tries} used")
        store.close()
    print(f"{len(ATTACKS)} attacks on {len(found)} results: {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
