"""Results of steps kept between builds: keyed by labelled text, verified on every read, never in the way of a build."""

from dlc.base.cache_settings import DEFAULT_SIZE, CacheMode
from dlc.cache.cache import Cache, Payload, open_cache
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
    "DEFAULT_SIZE",
    "Cache",
    "CacheMode",
    "Counts",
    "Damaged",
    "Entry",
    "Key",
    "LocalStore",
    "MemoryStore",
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
