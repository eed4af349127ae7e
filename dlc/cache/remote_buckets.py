"""A level in a bucket of S3, Google Cloud Storage or Azure, or of a server that speaks like one, through obstore."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import obstore
from obstore import exceptions
from obstore.store import from_url

from dlc.base.cache_levels import Level
from dlc.cache.remote import LevelFailed, Received
from dlc.cache.store import CHUNK

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore


_UPLOAD: Final = 6  # time limits of a request that one has which uploads up to 5 MiB


class BucketRemote:
    """A `Remote` below a prefix of a bucket. Credentials, region and endpoint come from the provider's usual
    environment variables (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …) or the machine's role."""

    def __init__(self, level: Level, timeout: float) -> None:
        if level.has_credentials:
            raise LevelFailed("the URL of a bucket takes no credentials", lasting=True)
        with _failures():
            self._store = _opened(level.url, timeout, timeout)
            self._uploads = _opened(level.url, timeout, _UPLOAD * timeout)

    def get(self, place: str, into: Received) -> bool:
        """See `Remote.get`."""
        try:
            with _failures():
                size = obstore.head(self._store, place)["size"]
            into.expect(size)
            for start in range(0, size, CHUNK):  # a limit for each: that of a whole object would depend on its size
                with _failures():
                    piece = obstore.get_range(self._store, place, start=start, end=min(start + CHUNK, size))
                into.write(memoryview(piece))
        except FileNotFoundError:
            return False
        return True

    def has(self, place: str) -> bool:
        """See `Remote.has`."""
        try:
            with _failures():
                obstore.head(self._store, place)
        except FileNotFoundError:
            return False
        return True

    def put(self, place: str, content: memoryview) -> None:
        """See `Remote.put`."""
        try:
            with _failures():
                obstore.put(self._uploads, place, content)
        except FileNotFoundError:
            raise LevelFailed("there is no such bucket", lasting=True) from None

    def close(self) -> None:
        """See `Remote.close`: the library keeps its connections."""


def _opened(url: str, connect: float, request: float) -> ObjectStore:
    options: ClientConfig = {
        "connect_timeout": timedelta(seconds=connect),
        "timeout": timedelta(seconds=request),
        "allow_http": True,  # only to an endpoint that the user's environment names so
    }
    return from_url(url, client_options=options, retry_config={"max_retries": 0})


@contextmanager
def _failures() -> Generator[None]:
    # The words are ours: the library's quote the request, and what the server sent.
    try:
        yield
    except FileNotFoundError:
        raise
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
        raise LevelFailed("refused the credentials", lasting=True) from None
    except (exceptions.BaseError, OSError, ValueError) as failure:
        text = str(failure)
        if "kind: Timeout" in text:
            raise LevelFailed("no answer in time", lasting=True) from None
        what = "connection failed" if "kind: Connect" in text else f"a request failed ({type(failure).__name__})"
        raise LevelFailed(what, again=True) from None
