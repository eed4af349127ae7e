"""Digests of files on disk, remembered by what the file system says of them: a large model is hashed once.

As in git's index, a file is taken to be unchanged while device, inode, size and both times are the same. A program
cannot set the change time, so only a file that was written within the clock's resolution of being hashed could differ
unnoticed; such a file is hashed again next time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from dlc.cache.envelope import Damaged
from dlc.cache.key import Key
from dlc.cache.record import Record
from dlc.cache.signing import EVERYTHING, Policy
from dlc.cache.store import Store
from dlc.files.hashing import Algorithm, settled_digest
from dlc.files.inputs import SETTLED, Identity, Inputs
from dlc.files.linking import LINK_ABOVE

STEP: Final = "file"
"""Step of the records that hold these digests. They are facts about one machine's file system: they do not travel."""


def file_digest(store: Store, path: Path, algorithm: Algorithm, *, writes: bool, policy: Policy = EVERYTHING) -> str:
    """Digest of a file's content, from the memo if the file is the one it was made of. OSError as usual."""
    before = _key(path, algorithm)
    known = _known(store, before, policy)
    if known:
        return known
    digest = settled_digest(path, algorithm)
    if writes:
        remember_file(store, path, digest, algorithm, before, policy=policy)
    return digest


def input_digest(
    store: Store, inputs: Inputs, path: Path, algorithm: Algorithm, *, writes: bool, policy: Policy = EVERYTHING
) -> str:
    """The same for a file of a build: as the build read it, if it did. OSError as usual, DlcError if it changed."""
    known = "" if inputs.has(path) else _known(store, _key(path, algorithm), policy)
    if known:
        return known
    file = inputs.open(path)
    digest = file.digest(algorithm)
    if writes and file.is_file:
        remember_file(store, path, digest, algorithm, _key(path, algorithm, file.identity), policy=policy)
    return digest


def remember_file(
    store: Store,
    path: Path,
    digest: str,
    algorithm: Algorithm,
    expected: Key | None = None,
    *,
    policy: Policy = EVERYTHING,
) -> None:
    """Note the digest of a file, unless it was written so lately that its times could hide another change.

    `expected` is the key it had before it was read. OSError if it is not there.
    """
    if path.stat().st_size > LINK_ABOVE and not _settled(path):
        time.sleep(SETTLED / 1e9)  # less than reading it once more would take
    key = _key(path, algorithm)
    if _settled(path) and expected in (None, key):
        record = policy.signed(Record(key.text, (), (("digest", digest),)))
        store.put(key.digest, record.to_bytes(), "record")


def _known(store: Store, key: Key, policy: Policy) -> str:
    """The digest noted under a key by somebody who is trusted, or ""."""
    payload = store.get(key.digest, "record")
    if payload is None:
        return ""
    try:
        record = Record.from_bytes(payload)
    except Damaged:  # sealed well, so written by another version of dlc
        return ""
    usable = record.key_text == key.text and not policy.refusal(record)
    return dict(record.meta).get("digest", "") if usable else ""


def _key(path: Path, algorithm: Algorithm, identity: Identity | None = None) -> Key:
    facts = identity or Identity.of(path.stat())
    return Key.of(step=STEP, algorithm=algorithm, path=os.path.realpath(path), stat=" ".join(map(str, facts)))


def _settled(path: Path) -> bool:
    return Identity.of(path.stat()).is_settled(time.time_ns())
