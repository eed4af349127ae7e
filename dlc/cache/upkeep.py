"""Looking over a whole store: why a step missed, how much there is, whether it is sound, and making room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

from dlc.cache.counts import Counts
from dlc.cache.envelope import Damaged
from dlc.cache.key import Key, diff_keys, equal_lines
from dlc.cache.record import Record
from dlc.cache.signing import CAUSES, EVERYTHING, Policy
from dlc.cache.store import Entry, Store


@dataclass(frozen=True)
class Statistics:
    """What `dlc cache stats` prints."""

    session: Counts  # of this process
    total: Counts  # of all processes, this one included
    records: int
    objects: int
    size: int  # bytes of all entries
    set_aside: int  # damaged things kept for inspection


@dataclass(frozen=True)
class Verification:
    """What `dlc cache verify` prints."""

    checked: int  # entries re-hashed
    size: int  # bytes of them
    bad: tuple[str, ...]  # digests of damaged entries; they are misses from now on
    kept: tuple[str, ...]  # those of them that could not be set aside
    dangling: int  # records whose objects were evicted: misses, but no damage


@dataclass(frozen=True)
class Trimmed:
    """What `dlc cache trim` and `clear` print: what they did, which may be less than what they were to do."""

    removed: int  # entries
    freed: int  # bytes
    left: int  # bytes
    kept: int = 0  # entries that were to go and could not be removed


def records(store: Store) -> Iterator[tuple[Entry, Record]]:
    """Every readable record with its entry; damaged ones are left out (and set aside by the store)."""
    for entry in store.entries():
        if entry.table == "record" and (payload := store.get(entry.digest, "record")) is not None:
            try:
                yield entry, Record.from_bytes(payload)
            except Damaged:  # sealed well, so written by another version of dlc
                continue


def complete(store: Store, record: Record) -> bool:
    """Whether all outputs of a record are present. They are verified only when read."""
    return all(store.has(digest) for _, digest in record.outputs)


def why(store: Store, key: Key, policy: Policy = EVERYTHING) -> str:
    """Why `key` is a miss: the nearest earlier record of the same step, and the lines in which it differs.

    Nearest: same `subject` line, then most equal lines, then last used.
    """
    step, best, nearest = key.step_name or "(unnamed step)", (False, -1, 0.0), None
    for entry, record in records(store):
        if record.key_text == key.text:
            if cause := policy.refusal(record):
                return f"{step}: cached, but {CAUSES[cause]}"
            gone = [name for name, digest in record.outputs if not store.has(digest)]
            return f"{step}: " + (f"cached, but its outputs were evicted: {', '.join(gone)}" if gone else "cached")
        if record.key.step_name == key.step_name and not record.leads_on:
            subject = record.key.value("subject") == key.value("subject")
            rank = (subject, equal_lines(record.key, key), entry.used)
            if rank > best:
                best, nearest = rank, record.key
    if nearest is None:
        return f"{step}: nothing is cached for this step"
    head = f"{step}: the nearest earlier result has {best[1]} of {len(key.lines)} lines equal; these differ:"
    return "\n".join([head, *(f"  {line}" for line in diff_keys(nearest, key))])


def survey(store: Store, *, session: Counts, unsaved: Counts) -> Statistics:
    """What the store holds; `unsaved` is the part of `session` that is not in the store's own counts yet."""
    total, numbers, size = unsaved, {"record": 0, "object": 0, "stat": 0}, 0
    for entry in store.entries():
        numbers[entry.table] += 1
        size += entry.size
        if entry.table == "stat" and (payload := store.get(entry.digest, "stat")) is not None:
            total += Counts.from_bytes(payload)
    return Statistics(session, total, numbers["record"], numbers["object"], size, store.set_aside())


def verify(store: Store) -> Verification:
    """Re-hash every entry. Damaged ones are set aside, where that is allowed."""
    checked, size, dangling = 0, 0, 0
    bad: list[str] = []
    for entry in store.entries():
        checked, size, errors = checked + 1, size + entry.size, store.errors
        # An entry that another process evicted since it was listed is absent, not damaged.
        if not store.check(entry.digest, entry.table) and store.errors > errors:
            bad.append(entry.digest)
    for entry, record in records(store):
        if entry.digest != record.key.digest:
            bad.append(entry.digest)
        elif not complete(store, record):
            dangling += 1
    kept = tuple(digest for digest in bad if store.has(digest))
    return Verification(checked, size, tuple(bad), kept, dangling)


def _size(entry: Entry) -> int:
    return entry.size


def trim(store: Store, max_bytes: int, keep: Set[str] = frozenset(), size: Callable[[Entry], int] = _size) -> Trimmed:
    """Evict the least recently used entries until all take at most `max_bytes`, or none is left that may go.

    Statistics stay, and so do `keep` and what builds that are running in other processes use. `size` says how many
    bytes an entry counts for; one that counts for none stays.
    """
    store.sweep()
    keep = keep | store.held_elsewhere()
    entries = sorted(store.entries(), key=lambda entry: entry.used)
    left = sum(map(size, entries))
    victims: list[Entry] = []
    for entry in entries:
        if left <= max_bytes:
            break
        if entry.table != "stat" and entry.digest not in keep and size(entry):
            victims.append(entry)
            left -= size(entry)
    return _removed(store, entries, victims)


def clear(store: Store) -> Trimmed:
    """Remove everything, statistics and things set aside included; the numbers are those of results and objects."""
    entries = list(store.entries())
    done = _removed(store, entries, [entry for entry in entries if entry.table != "stat"])
    store.delete([entry.digest for entry in entries if entry.table == "stat"])
    store.clear()
    return done


def _removed(store: Store, entries: Sequence[Entry], victims: Sequence[Entry]) -> Trimmed:
    """What removing `victims`, some of all `entries`, has led to."""
    gone = store.delete([entry.digest for entry in victims])
    went = [entry.size for entry in victims if entry.digest in gone]
    return Trimmed(len(went), sum(went), sum(entry.size for entry in entries) - sum(went), len(victims) - len(went))
