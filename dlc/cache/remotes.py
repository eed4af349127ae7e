"""Which module serves which kind of level. Each is imported when a level of its kind is asked, as its packages are."""

from __future__ import annotations

import hashlib

from dlc.base.cache_levels import Level
from dlc.cache.remote import LevelFailed, Remote


def probe(level: Level, timeout: float) -> LevelFailed | None:
    """What is wrong with a level that is asked for an object now; None if it answers."""
    try:
        remote = open_remote(level, timeout)
        remote.has(f"cas/{hashlib.sha256().hexdigest()}")
        remote.close()
    except LevelFailed as failure:
        return failure
    return None


def open_remote(level: Level, timeout: float) -> Remote:
    """The server of a level; nothing is connected yet. LevelFailed if a package is missing that its kind needs.

    `timeout`: seconds without an answer that are too many.
    """
    scheme = level.url.partition(":")[0]
    try:
        if scheme in ("http", "https"):
            from dlc.cache.remote_http import HttpRemote

            return HttpRemote(level, timeout)
        if scheme in ("redis", "rediss"):
            from dlc.cache.remote_redis import RedisRemote

            return RedisRemote(level, timeout)
        from dlc.cache.remote_buckets import BucketRemote

        return BucketRemote(level, timeout)
    except ModuleNotFoundError as missing:
        extra = "redis" if scheme in ("redis", "rediss") else "remote"
        what = f"the package {missing.name} is not installed"
        raise LevelFailed(what, lasting=True, help=f'pip install "dlc[{extra}]"') from None
