"""A level in Redis or a server that speaks like it: one value per entry, read in pieces."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import redis

from dlc.base.cache_levels import Level
from dlc.cache.remote import LevelFailed, Received
from dlc.cache.store import CHUNK

_LARGEST: Final = 512 << 20  # bytes of a value, of which Redis takes no more
_PREFIX: Final = "dlc/"


class RedisRemote:
    """A `Remote` in the database of a URL, under keys that begin with `dlc/`."""

    def __init__(self, level: Level, timeout: float) -> None:
        self._timeout = timeout
        with self._failures():
            self._client: Any = redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
                level.url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=None, protocol=2
            )

    def get(self, place: str, into: Received) -> bool:
        """See `Remote.get`."""
        with self._failures():
            if not self._client.exists(_PREFIX + place):
                return False
            size = int(self._client.strlen(_PREFIX + place))
        into.expect(size)
        for start in range(0, size, CHUNK):
            with self._failures():
                chunk: bytes = self._client.getrange(_PREFIX + place, start, min(start + CHUNK, size) - 1)
            into.write(chunk)
        return True

    def has(self, place: str) -> bool:
        """See `Remote.has`."""
        with self._failures():
            return bool(self._client.exists(_PREFIX + place))

    def put(self, place: str, content: memoryview) -> None:
        """See `Remote.put`. An object that Redis cannot hold is a failure of its own kind, which stops nothing else."""
        if content.nbytes > _LARGEST:
            raise LevelFailed(f"takes at most {_LARGEST:,} bytes of one object")
        with self._failures():
            self._client.set(_PREFIX + place, bytes(content))

    def close(self) -> None:
        """See `Remote.close`."""
        with self._failures():
            self._client.close()

    @contextmanager
    def _failures(self) -> Generator[None]:
        # The words are ours: the client's may hold the password.
        try:
            yield
        except redis.TimeoutError:
            raise LevelFailed(f"no answer within {self._timeout:g} s", lasting=True) from None
        except redis.AuthenticationError:
            raise LevelFailed("refused the credentials", lasting=True) from None
        except redis.OutOfMemoryError:
            raise LevelFailed("is full", lasting=True) from None
        except redis.ConnectionError:
            raise LevelFailed("connection failed", again=True) from None
        except (redis.RedisError, OSError, ValueError, TypeError) as failure:
            raise LevelFailed(f"refused a command ({type(failure).__name__})", lasting=True) from None
