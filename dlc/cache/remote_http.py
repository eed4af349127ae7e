"""A level over HTTP: GET, HEAD and PUT in the layout of Bazel's remote cache, as bazel-remote and nginx serve it."""

from __future__ import annotations

import base64
import http.client
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote, urlsplit

from dlc.base.cache_levels import Level
from dlc.cache.remote import LevelFailed, Received
from dlc.cache.store import CHUNK
from dlc.version import __version__

_ABSENT: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_REFUSED: Final = frozenset({401, 403, 405, 407, 429, 501, 507})  # the same for every request that follows
_DRAINED: Final = 64 << 10  # bytes of the body of an error that are read to keep the connection
_IDLE: Final = 8  # connections that are kept


class HttpRemote:
    """A `Remote` below a URL. Redirects are not followed: what a level's host is trusted with, another's is not."""

    def __init__(self, level: Level, timeout: float) -> None:
        parts = urlsplit(level.url)
        assert parts.hostname
        self._host, self._port, self._timeout = parts.hostname, parts.port, timeout
        self._secure = parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self._headers = {"User-Agent": f"dlc/{__version__}", "Accept-Encoding": "identity"}
        authorization = level.authorization
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        if authorization:
            self._headers["Authorization"] = authorization
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    def get(self, place: str, into: Received) -> bool:
        """See `Remote.get`."""
        with self._answer("GET", place) as answer:
            if answer.status in _ABSENT:
                return False
            _expect(answer, HTTPStatus.OK)
            announced = answer.length  # None for an answer in pieces
            if announced is not None:
                into.expect(announced)
            while chunk := _read(answer, CHUNK, self._timeout):
                into.write(chunk)
            if announced is not None and into.size != announced:
                raise LevelFailed(f"ended after {into.size:,} of {announced:,} bytes", again=True)
            return True

    def has(self, place: str) -> bool:
        """See `Remote.has`."""
        with self._answer("HEAD", place) as answer:
            if answer.status in _ABSENT:
                return False
            _expect(answer, HTTPStatus.OK)
            return True

    def put(self, place: str, content: memoryview) -> None:
        """See `Remote.put`."""
        with self._answer("PUT", place, content) as answer:
            _expect(answer, HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT)

    def close(self) -> None:
        """See `Remote.close`."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _answer(self, method: str, place: str, body: memoryview | None = None) -> Generator[http.client.HTTPResponse]:
        """The answer to one request. The connection is kept if all of the answer was read, and closed otherwise."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._connection()
        kept = False
        try:
            answer = self._asked(connection, method, f"{self._path}/{place}", body)
            yield answer
            with suppress(LevelFailed):  # the rest of what is not wanted
                if not answer.isclosed() and (answer.length or 0) <= _DRAINED:
                    _read(answer, _DRAINED, self._timeout)
                kept = answer.isclosed() and not answer.will_close
        except LevelFailed:
            self.close()  # what was idle may have been closed at the other end, like this one: the next one is new
            raise
        finally:
            with self._lock:
                if kept := kept and len(self._idle) < _IDLE:
                    self._idle.append(connection)
            if not kept:
                connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        import ssl

        context = ssl.create_default_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)

    def _asked(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: memoryview | None
    ) -> http.client.HTTPResponse:
        headers = dict(self._headers)
        if body is not None:
            headers |= {"Content-Length": str(body.nbytes), "Content-Type": "application/octet-stream"}
        with _failures(self._timeout):
            try:
                # In pieces: the time limit is that of one of them, not of all.
                connection.request(method, path, None if body is None else _pieces(body), headers)
            except (BrokenPipeError, ConnectionResetError):
                if body is None or connection.sock is None:
                    raise
                # Whoever refuses an upload may answer before it has all of it, and hang up.
            return connection.getresponse()


def _pieces(body: memoryview) -> Iterator[memoryview]:
    body = body.cast("B") if body.nbytes else body
    for start in range(0, body.nbytes, CHUNK):
        yield body[start : start + CHUNK]


def _read(answer: http.client.HTTPResponse, size: int, timeout: float) -> bytes:
    with _failures(timeout):
        return answer.read(size)


def _expect(answer: http.client.HTTPResponse, *wanted: HTTPStatus) -> None:
    """LevelFailed for another status. The words are ours: those of the answer could be anything."""
    status = answer.status
    if status in wanted:
        return
    if 300 <= status < 400:
        raise LevelFailed(f"answered {status}, a redirect, which is not followed", lasting=True)
    phrase = next((known.phrase for known in HTTPStatus if known == status), "")
    raise LevelFailed(f"answered {status} {phrase}".rstrip(), again=status >= 500, lasting=status in _REFUSED)


@contextmanager
def _failures(timeout: float) -> Generator[None]:
    """Trouble with a connection as LevelFailed."""
    import ssl

    try:
        yield
    except TimeoutError:
        raise LevelFailed(f"no answer within {timeout:g} s", lasting=True) from None
    except socket.gaierror:
        raise LevelFailed("no such host is known", lasting=True) from None
    except ConnectionRefusedError:
        raise LevelFailed("connection refused", again=True) from None
    except ssl.SSLCertVerificationError as failure:
        raise LevelFailed(f"its certificate is not valid: {failure.verify_message}", lasting=True) from None
    except OSError as failure:
        raise LevelFailed(f"connection failed: {failure.strerror or type(failure).__name__}", again=True) from None
    except (http.client.HTTPException, ValueError):  # the second: a length or a size of a piece that is no number
        raise LevelFailed("hung up, or answered something that is not HTTP", again=True) from None
