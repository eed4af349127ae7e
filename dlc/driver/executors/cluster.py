"""Workers of a Dask cluster as lanes: each does one piece of work at a time, and it is noticed when one is gone."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, error
from dlc.driver.executors.lane import WorkerLost, perform
from dlc.driver.executors.skew import differences, facts_text

SCHEME: Final = "dask"
TIMEOUT: Final = "10s"
"""In which a scheduler answers."""
_PROBE: Final = 60.0
"""Seconds in which a worker says what it runs: the first work imports dlc."""
_LOOK: Final = 0.5
"""Seconds between two looks at which workers are left."""


class ClusterWorker:
    """One worker process."""

    def __init__(self, cluster: Cluster, address: str, host: str) -> None:
        """Of a cluster."""
        self.name, self.address, self.host = address.partition("://")[2] or address, address, host
        self._cluster = cluster

    def submit(self, work: str, text: str) -> Future[str]:
        """See `Lane.submit`."""
        return self._cluster.submit(self.address, work, text)


class Cluster:
    """A connection to a scheduler."""

    def __init__(self, client: Any) -> None:
        """Of a client of distributed."""
        self._client = client
        self._running: dict[Future[str], tuple[str, Any]] = {}
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._watch = threading.Thread(target=self._watched, name="dlc-cluster", daemon=True)
        self._watch.start()

    def workers(self) -> list[ClusterWorker]:
        """Those that are there, by address."""
        found = self._addresses()
        return [ClusterWorker(self, w, str(found[w].get("host", w))) for w in sorted(found)]

    def submit(self, address: str, work: str, text: str) -> Future[str]:
        """Have a worker, and no other, do a piece of work."""
        done: Future[str] = Future()
        done.set_running_or_notify_cancel()
        try:
            task = self._client.submit(
                perform, work, text, workers=[address], allow_other_workers=False, pure=False, retries=0
            )
        except Exception as problem:  # noqa: BLE001  # whatever a client raises whose scheduler is gone
            done.set_exception(WorkerLost(f"the scheduler does not answer: {problem}"))
            return done
        with self._lock:
            self._running[done] = address, task

        def ended(task: Any) -> None:
            self._ended(done, task)

        task.add_done_callback(ended)
        return done

    def close(self) -> None:
        """Cancel what has not begun, and let go of the cluster; workers stay."""
        self._closed.set()
        with self._lock:
            tasks = [task for _, task in self._running.values()]
            self._running.clear()
        if tasks:
            self._client.cancel(tasks)
        self._client.close(timeout=2)

    def _addresses(self) -> Mapping[str, Mapping[str, Any]]:
        return self._client.scheduler_info(n_workers=-1)["workers"]

    def _ended(self, done: Future[str], task: Any) -> None:
        with self._lock:
            if self._running.pop(done, None) is None:
                return  # its worker was lost, or nobody waits any more
        if task.cancelled():
            done.set_exception(WorkerLost("its work was cancelled"))
            return
        problem = task.exception()
        if problem is None:
            done.set_result(str(task.result()))
        elif type(problem).__name__ in ("KilledWorker", "CommClosedError"):
            done.set_exception(WorkerLost(str(problem)))
        else:
            done.set_exception(problem)

    def _watched(self) -> None:
        """A worker that is gone does not end what it was given: the scheduler waits for one of the same address."""
        while not self._closed.wait(_LOOK):
            with self._lock:
                running = bool(self._running)
            if not running:
                continue
            try:
                there = set(self._addresses())
            except Exception:  # noqa: BLE001  # the scheduler is gone, with all its workers
                there = set[str]()
            with self._lock:
                lost = [(f, a, t) for f, (a, t) in self._running.items() if a not in there]
                for future, _, _ in lost:
                    del self._running[future]
            for future, address, _ in lost:
                future.set_exception(WorkerLost(f"worker {address} is gone"))
            if lost:
                self._client.cancel([task for _, _, task in lost])


def opened_cluster(text: str) -> Cluster:
    """The cluster that `dask://HOST:PORT` names.

    Raises:
        DlcError: (USAGE) the text means nothing, or the package distributed is not installed; (TOOL) there is no
            scheduler, or it has no workers.
    """
    parts = urlsplit(text)
    if parts.scheme != SCHEME or not parts.netloc:
        raise error(
            "bad-option",
            f"--executor {text}: there is no such executor",
            help="local, or dask://HOST:PORT with the address of a Dask scheduler",
            exit_code=ExitCode.USAGE,
        )
    if not find_spec("distributed"):
        raise error(
            "no-package",
            f"--executor {text}: the Python package distributed is not installed",
            help="pip install 'dlc[distributed]', here and for the workers",
            exit_code=ExitCode.USAGE,
        )
    import distributed  # pyright: ignore

    library: Any = distributed
    try:
        client: Any = library.Client(f"tcp://{parts.netloc}", timeout=TIMEOUT, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as problem:
        raise error(
            "no-scheduler",
            f"--executor {text}: no scheduler answers: {problem}",
            help="start one with dask scheduler, and workers with dask worker tcp://HOST:PORT",
            exit_code=ExitCode.TOOL,
        ) from None
    found = Cluster(client)
    if not found.workers():
        found.close()
        raise error(
            "no-workers",
            f"--executor {text}: the scheduler has no workers",
            help="start some with dask worker tcp://HOST:PORT",
            exit_code=ExitCode.TOOL,
        )
    return found


def equal_workers(workers: list[ClusterWorker], text: str) -> tuple[list[ClusterWorker], tuple[Diagnostic, ...]]:
    """(the workers that run the same as this process, warnings on the others).

    Raises:
        DlcError: (TOOL) none does.
    """
    here = json.loads(facts_text())
    asked = [(w, w.submit("facts", "")) for w in workers]
    equal: list[ClusterWorker] = []
    warnings: list[Diagnostic] = []
    for worker, future in asked:
        try:
            notes = differences(here, json.loads(future.result(_PROBE)))
        except Exception as problem:  # noqa: BLE001  # a worker may lack dlc, be lost, or hang
            notes = [f"{type(problem).__name__}: {problem}"]
        if not notes:
            equal.append(worker)
            continue
        help = "install the same versions there as here, and start the worker again"
        message = f"worker {worker.name} is not used: it does not run the same dlc"
        warnings.append(Diagnostic("other-version", message, "warning", notes=tuple(notes), help=help))
    if not equal:
        raise DlcError(
            *warnings,
            *error("no-workers", f"--executor {text}: no worker runs the same dlc as this computer").diagnostics,
            exit_code=ExitCode.TOOL,
        )
    return equal, tuple(warnings)
