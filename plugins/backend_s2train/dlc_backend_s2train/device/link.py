"""A device that a command is: the host's side of the protocol."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc_backend_s2train.device.protocol import MOST, REPLY, REQUEST, TIME, Ask, Space, Status

PATIENCE = 600.0
"""Seconds that a reply may take."""


class Link:
    """The five requests; `command` is for messages."""

    def __init__(self, process: subprocess.Popen[bytes], command: str) -> None:
        self._process, self._command = process, command

    def write(self, space: Space, address: int, data: bytes) -> None:
        """Put bytes there."""
        for at in range(0, len(data), MOST):
            part = data[at : at + MOST]
            self._send(REQUEST.pack(Ask.WRITE, space, len(part), address + at) + part)

    def read(self, space: Space, address: int, size: int) -> bytes:
        """The bytes there."""
        found: list[bytes] = []
        for at in range(0, size, MOST):
            part = min(size - at, MOST)
            self._send(REQUEST.pack(Ask.READ, space, part, address + at))
            found.append(self._answer(part))
        return b"".join(found)

    def start(self) -> None:
        """The operation in the registers begins."""
        self._send(REQUEST.pack(Ask.START, 0, 0, 0))

    def wait(self) -> Status:
        """Until it has ended: OK or UNSUPPORTED."""
        self._send(REQUEST.pack(Ask.WAIT, 0, 0, 0))
        status, data = self._reply()
        if status is Status.UNSUPPORTED:
            return status
        self._check(status, data, 0)
        return status

    def time(self) -> int:
        """Cycles since the device was switched on."""
        self._send(REQUEST.pack(Ask.TIME, 0, 0, 0))
        return int(TIME.unpack(self._answer(TIME.size))[0])

    def _answer(self, size: int) -> bytes:
        status, data = self._reply()
        self._check(status, data, size)
        return data

    def _check(self, status: Status, data: bytes, size: int) -> None:
        if status is not Status.OK:
            text = data.decode("utf-8", "replace") or "without a reason"
            raise self._failed(f"it answered {status.name.lower()}: {text}")
        if len(data) != size:
            raise self._failed(f"it answered {len(data)} bytes, not {size}")

    def _reply(self) -> tuple[Status, bytes]:
        status, size = REPLY.unpack(self._received(REPLY.size))
        if size > MOST or status not in frozenset(Status):
            raise self._failed(f"it answered status {status} and {size} bytes, which is no reply of the protocol")
        return Status(status), self._received(size)

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError:
            raise self._failed(f"it has ended{self._exit()}") from None

    def _received(self, size: int) -> bytes:
        assert self._process.stdout is not None
        found = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while len(found) < size:
                if not selector.select(PATIENCE):
                    raise self._failed(f"it has not answered for {PATIENCE:.0f} seconds")
                data = os.read(self._process.stdout.fileno(), size - len(found))
                if not data:
                    raise self._failed(f"it ended before it answered{self._exit()}")
                found += data
        return found

    def _exit(self) -> str:
        try:
            return f" with status {self._process.wait(5)}"
        except subprocess.TimeoutExpired:
            return ""

    def _failed(self, why: str) -> DlcError:
        return error(
            "device-failed",
            f"--device {self._command}: {why}",
            help="see docs/s2train-host.md for what a device has to answer; its own messages are on stderr",
            exit_code=ExitCode.TOOL,
        )


@contextmanager
def linked(command: str) -> Generator[Link]:
    """A device for as long as it is used; its command runs in a shell, with its messages on stderr."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
    )
    try:
        yield Link(process, command)
    finally:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
