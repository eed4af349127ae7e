"""Where kernels are tuned: this process, or workers of a Dask cluster. One kernel at a time on each computer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from dlc.tune.place import Failed, Place, Request, Say, Tuned

if TYPE_CHECKING:
    from dlc.driver.executors.cluster import ClusterWorker

LOCAL: Final = "local"


class Lane(Protocol):
    """A computer, on which one kernel is tuned at a time."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def remote(self) -> bool:
        """Whether a process of its own may break off without harm to this one."""
        ...

    def submit(self, request: Request) -> Future[Tuned | Failed]:
        """Tune a kernel there."""
        ...


@dataclass(frozen=True)
class Here:
    """This process: `submit` returns when it is done, so that an interruption reaches what runs."""

    place: Place
    say: Say
    name: str = LOCAL
    remote: bool = False

    def submit(self, request: Request) -> Future[Tuned | Failed]:
        """See `Lane.submit`; an interruption is raised, anything else is the future's."""
        done: Future[Tuned | Failed] = Future()
        try:
            done.set_result(self.place.attempt(request, self.say))
        except Exception as problem:  # noqa: BLE001  # as an executor hands on whatever a task raises
            done.set_exception(problem)
        return done


@dataclass(frozen=True)
class Worker:
    """A worker of a cluster."""

    name: str
    worker: ClusterWorker
    remote: bool = True

    def submit(self, request: Request) -> Future[Tuned | Failed]:
        """See `Lane.submit`."""
        from dlc.tune.messages import found_of, request_text

        done: Future[Tuned | Failed] = Future()

        def ended(answer: Future[str]) -> None:
            try:
                done.set_result(found_of(answer.result()))
            except Exception as problem:  # noqa: BLE001  # whatever the worker has raised, or its loss
                done.set_exception(problem)

        self.worker.submit("tune", request_text(request)).add_done_callback(ended)
        return done


@dataclass(frozen=True)
class Lanes:
    """All computers."""

    all: Sequence[Lane]
    close: Callable[[], object] = lambda: None
    """Give up what runs, and let go of the cluster."""
    notes: tuple[str, ...] = ()


def opened(text: str, local: Callable[[], Lane]) -> Lanes:
    """The computers that --executor names.

    Args:
        text: local, or dask://HOST:PORT of a scheduler.
        local: Makes the lane of this process.

    Raises:
        DlcError: as `opened_cluster` and `equal_workers` do.
    """
    if text == LOCAL:
        return Lanes((local(),))
    from dlc.driver.executors.cluster import equal_workers, opened_cluster

    cluster = opened_cluster(text)
    try:
        workers, warnings = equal_workers(cluster.workers(), text)
    except BaseException:
        cluster.close()
        raise
    chosen: dict[str, ClusterWorker] = {}
    for worker in workers:
        chosen.setdefault(worker.host, worker)
    notes = [f"{w.message}: {'; '.join(w.notes)}" for w in warnings]
    if idle := len(workers) - len(chosen):
        notes.append(f"{idle} more workers on the same computers are not used: they would disturb measurements")
    return Lanes([Worker(host, worker) for host, worker in chosen.items()], cluster.close, tuple(notes))
