"""Results of steps kept between builds: keyed by labelled text, verified on every read, never in the way of a build."""

from dlc.cache.cache import DEFAULT_SIZE_LIMIT, Cache, Mode, Payload, open_cache
from dlc.cache.counts import Counts
from dlc.cache.envelope import Damaged, Table
from dlc.cache.key import Key, diff_keys
from dlc.cache.local import LocalStore
from dlc.cache.location import cache_directory
from dlc.cache.memory import MemoryStore
from dlc.cache.record import Record
from dlc.cache.store import Entry, Store
from dlc.cache.upkeep import Statistics, Trimmed, Verification

__all__ = [
    "DEFAULT_SIZE_LIMIT",
    "Cache",
    "Counts",
    "Damaged",
    "Entry",
    "Key",
    "LocalStore",
    "MemoryStore",
    "Mode",
    "Payload",
    "Record",
    "Statistics",
    "Store",
    "Table",
    "Trimmed",
    "Verification",
    "cache_directory",
    "diff_keys",
    "open_cache",
]
