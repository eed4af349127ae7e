"""Where kernels are tuned: this process, or workers of a Dask cluster. One kernel at a time on each computer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from dlc.base.diagnostics import ExitCode, error
from dlc.tune.place import Failed, Place, Request, Say, Tuned, tune_here

LOCAL: Final = "local"
_DASK: Final = "dask"
TIMEOUT: Final = "10s"
"""In which a scheduler answers."""


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
    executor: Executor
    remote: bool = True

    def submit(self, request: Request) -> Future[Tuned | Failed]:
        """See `Lane.submit`."""
        return self.executor.submit(tune_here, request)


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
        DlcError: (USAGE) the text means nothing, or the package distributed is not installed; (TOOL) there is no
            scheduler, or it has no workers.
    """
    if text == LOCAL:
        return Lanes((local(),))
    parts = urlsplit(text)
    if parts.scheme != _DASK or not parts.netloc:
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
    return _of_cluster(f"tcp://{parts.netloc}", text)


def _of_cluster(address: str, text: str) -> Lanes:
    import distributed  # pyright: ignore

    library: Any = distributed
    try:
        client: Any = library.Client(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, TimeoutError) as problem:
        raise error(
            "no-scheduler",
            f"--executor {text}: no scheduler answers: {problem}",
            help="start one with dask scheduler, and workers with dask worker tcp://HOST:PORT",
            exit_code=ExitCode.TOOL,
        ) from None
    workers: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    chosen: dict[str, str] = {}
    for worker in sorted(workers):
        chosen.setdefault(str(workers[worker].get("host", worker)), worker)
    if not chosen:
        client.close()
        raise error(
            "no-workers",
            f"--executor {text}: the scheduler has no workers",
            help="start some with dask worker tcp://HOST:PORT",
            exit_code=ExitCode.TOOL,
        )
    lanes = [
        Worker(host, client.get_executor(workers=[worker], allow_other_workers=False, pure=False, retries=0))
        for host, worker in chosen.items()
    ]
    idle = len(workers) - len(chosen)
    notes = (f"{idle} more workers on the same computers are not used: they would disturb measurements",)
    return Lanes(lanes, client.close, notes if idle else ())
