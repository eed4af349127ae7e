"""Uploads behind a build: the results of steps go to a level while the build goes on."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from dlc.cache.guard import GuardedLevel
from dlc.cache.record import Record
from dlc.cache.remote import LevelFailed
from dlc.cache.store import Store

_THREADS: Final = 2


@dataclass(frozen=True)
class Upload:
    """One result: its record goes last, so that whoever finds it finds its objects."""

    digest: str
    """Of its key."""
    record: Record
    replace: bool = False
    """Whether what the level has is replaced."""


class Uploads:
    """Results on their way from a store to a level. Their objects are read from the store when their turn comes, so a
    queue takes no memory; what the store has lost by then stays where it is."""

    def __init__(self, level: GuardedLevel, store: Store) -> None:
        self._level, self._store = level, store
        self._changed = threading.Condition()  # guards the four below
        self._waiting: deque[Upload] = deque()
        self._unfinished = 0
        self._threads = 0
        self._sent: set[str] = set()

    def add(self, upload: Upload) -> None:
        """Send a result when its turn comes."""
        with self._changed:
            self._waiting.append(upload)
            self._unfinished += 1
            if self._threads < min(_THREADS, len(self._waiting)):
                self._threads += 1
                # A daemon: what a server keeps waiting does not keep the process from ending.
                threading.Thread(target=self._run, name="dlc-upload", daemon=True).start()

    def drain(self, until: float) -> None:
        """Wait for what was added, until a time of `time.monotonic`; what is left then is given up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished, max(0.0, until - time.monotonic()))
            left, self._unfinished = self._unfinished, 0
            self._waiting.clear()
        if left:
            results = "1 result was" if left == 1 else f"{left} results were"
            help = "set cache.upload-time to more seconds in dlc.toml"
            self._level.trouble(LevelFailed(f"{results} not uploaded in time", help=help))

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._threads -= 1
                    return
                upload = self._waiting.popleft()
            try:
                self._send(upload)
            finally:
                with self._changed:
                    self._unfinished = max(0, self._unfinished - 1)
                    self._changed.notify_all()

    def _send(self, upload: Upload) -> None:
        for _, digest in upload.record.outputs:
            if digest in self._sent:
                continue
            there = False if upload.replace else self._level.has(digest)
            if there is None:
                return
            if not there:
                content = self._store.view(digest)
                if content is None or not self._level.put_object(digest, content):
                    return
            self._sent.add(digest)
        self._level.put_record(upload.digest, upload.record.to_bytes())
