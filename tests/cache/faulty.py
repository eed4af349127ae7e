"""A cache server in this process, in Bazel's layout, that can be told to misbehave."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

READING: Final = ("wrong bytes", "short", "long", "huge", "endless")
"""Faults of answers that have content."""
FAULTS: Final = ("500", "403", "507", "redirect", "hang up", "not http", "slow", *READING)
SLOW: Final = 1.0
"""Seconds until a slow server answers."""


@dataclass
class FaultyServer:
    """What it keeps, what it was asked, and how it misbehaves."""

    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """By path."""
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list[tuple[str, str, dict[str, str]]])
    """Method, path and headers."""
    fault: Callable[[str, str], str] = lambda method, path: ""
    """One of `FAULTS` for a method and a path, or "", or "leaves": a right answer, and no other on that connection."""
    elsewhere: str = "http://127.0.0.1:9/"
    """Where a redirect leads."""
    url: str = ""

    def paths(self, method: str) -> list[str]:
        """Those that were asked for by a method."""
        return [path for how, path, _ in self.asked if how == method]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: FaultyServer

    def do_GET(self) -> None:
        self._serve(lambda: self.state.kept.get(self.path))

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))

        def keep() -> bytes:
            self.state.kept[self.path] = content
            return b""

        self._serve(keep)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args

    def _serve(self, work: Callable[[], bytes | None]) -> None:
        self.state.asked.append((self.command, self.path, dict(self.headers)))
        fault = self.state.fault(self.command, self.path)
        if fault.isdigit():
            self._answer(int(fault), b"no\x1b[2J")
        elif fault == "redirect":
            self._answer(307, b"", Location=self.state.elsewhere)
        elif fault in ("hang up", "not http"):
            self.wfile.write(b"" if fault == "hang up" else b"+OK hello\r\n\r\n")
            self.close_connection = True
        else:
            if fault == "slow":
                time.sleep(SLOW)
            content = work()
            self._answer(404 if content is None else 200, content or b"", fault if self.command == "GET" else "")
            self.close_connection = self.close_connection or fault == "leaves"

    def _answer(self, status: int, content: bytes, fault: str = "", **headers: str) -> None:
        fault = fault if status == 200 else ""
        sent = content
        if fault == "wrong bytes":
            sent = bytes(byte ^ 1 for byte in content[:1]) + content[1:] if content else b""
        length = {"short": len(content), "long": len(content) + 5, "huge": 1 << 50}.get(fault, len(sent))
        sent = {"short": content[: len(content) // 2], "long": content + b"extra"}.get(fault, sent)
        self.close_connection = self.close_connection or fault in ("short", "huge", "endless")
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if fault != "endless":
                self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(sent)
            while fault == "endless":
                self.wfile.write(bytes(1 << 20))
        except OSError:  # the client has enough
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of ours."""


@contextmanager
def serving(state: FaultyServer | None = None) -> Generator[FaultyServer]:
    """A server on a free port of this machine; its `url` has a path."""
    state = state or FaultyServer()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": state}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/team/dlc"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
