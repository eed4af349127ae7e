"""Records in the cache: by kernel and by where they were measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlc.api.tuning import Fingerprint, Record, Tuning
from dlc.base.diagnostics import DlcError
from dlc.cache.key import Key

if TYPE_CHECKING:
    from dlc.cache import Cache

_STEP, _OUTPUT = "tune", "record"


def key_of(kernel: str, fingerprint: Fingerprint) -> Key:
    """Under which a record is kept."""
    return Key.of(
        step=_STEP,
        kernel=kernel,
        machine=fingerprint.machine,
        compiler=fingerprint.compiler,
        processor=fingerprint.processor,
    )


def remember(cache: Cache, record: Record) -> None:
    """Keep a record in place of the one that there was."""
    text = Tuning([record]).text
    cache.save(key_of(record.kernel, record.fingerprint), {_OUTPUT: text.encode("ascii")}, {"ms": "0"})


def recalled(cache: Cache, kernels: Iterable[str], fingerprint: Fingerprint) -> list[Record]:
    """What the cache has of kernels, measured with this fingerprint."""
    found: list[Record] = []
    for kernel in kernels:
        record = cache.peek(key_of(kernel, fingerprint).digest)
        for _, digest in record.outputs if record is not None else ():
            content = cache.read(digest)
            if content is not None:
                try:
                    found += Tuning.parse(content.decode("ascii", "replace"), "the cache").records
                except DlcError:
                    continue  # of another version of dlc
    return found
