"""A place where kernels are tuned: candidates are built, compared with the default one's results, and timed in turn."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dlc.api.artifact import Job
from dlc.api.tuning import Record, Trial
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.report import Report
from dlc.cache.step_record import Handle
from dlc.driver import steps
from dlc.driver.backend_flags import with_schedules
from dlc.driver.part_digests import part_digests
from dlc.driver.pipeline import resolve_steps
from dlc.driver.program import session_of
from dlc.driver.session import code_lines
from dlc.driver.state_text import op_classes
from dlc.graph.graph import Graph
from dlc.graph.tensor import LazyData, Tensor
from dlc.graph.text import parse_graph
from dlc.runtime.install import install
from dlc.runtime.loading import load
from dlc.spec import Spec
from dlc.tune.calls import Calls
from dlc.tune.kernels import ProgramKernel
from dlc.tune.race import WORTH, duel, race, winner
from dlc.version import __version__

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.api.profile import Profiler
    from dlc.api.program import Program
    from dlc.api.tuning import Tuner
    from dlc.base.types import Type
    from dlc.driver.session import Session
    from dlc.plugins.registry import Registry

_BUILDING: Final = 0.5
"""Of the time of a kernel, for building candidates."""
TITLE: Final = "tuned"
"""What names in the programs of candidates begin with."""

Say = Callable[[str], None]
"""Told what is done now."""


@dataclass(frozen=True)
class Request:
    """A kernel to be tuned, as it is sent to a place."""

    kernel: ProgramKernel
    backend: str
    """Spec text, without measured schedules."""
    pipeline: str
    """Passes that lead from a graph of kernels to what the backend consumes."""
    most: int
    """Candidates, the default one included."""
    seed: int
    seconds: float
    """That it may take; the default and the first candidates are measured in any case."""
    version: str = __version__


@dataclass(frozen=True)
class Tuned:
    """What was found of a kernel."""

    record: Record
    measured: int
    """Candidates that were timed, the default one included."""
    wrong: tuple[str, ...] = ()
    """Schedules that gave other results: bugs."""
    failed: tuple[tuple[str, str], ...] = ()
    """(schedule, message) of those that could not be built."""


@dataclass(frozen=True)
class Failed:
    """Nothing was found of a kernel."""

    message: str


def _ignore(text: str) -> None:
    del text


@dataclass
class Place:
    """This process."""

    registry: Registry
    session: Session
    """With the cache that keeps what is compiled."""
    clock: Callable[[], float] = time.monotonic
    _profilers: dict[str, tuple[Backend, Profiler, Tuner]] = field(default_factory=dict[str, Any])

    def attempt(self, request: Request, say: Say = _ignore) -> Tuned | Failed:
        """As `tune`; what it raises as a value, which any process can hand on."""
        try:
            return self.tune(request, say)
        except DlcError as problem:
            return Failed(problem.diagnostics[0].message)

    def tune(self, request: Request, say: Say = _ignore) -> Tuned:
        """The fastest schedule of a kernel.

        Raises:
            DlcError: the backend cannot measure, or the default schedule cannot be built.
        """
        if request.version != __version__:
            message = f"a worker has dlc {__version__}, and {request.version} asks it"
            raise error("other-version", message, help="install the same version everywhere", exit_code=ExitCode.USAGE)
        profiled, profiler, tuner = self._equipped(request.backend)
        begin = self.clock()
        trials = self._trials(request, tuner)
        with ExitStack() as stack:
            builder = _Builder(self.registry, self.session, request, profiled, stack)
            built: list[tuple[Trial, Program]] = []
            failed: list[tuple[str, str]] = []
            together = max(1, self.session.jobs)
            for first in range(0, len(trials), together):
                if first and self.clock() - begin > _BUILDING * request.seconds:
                    break
                say(f"building {first + 1} of {len(trials)}")
                for trial, made in builder.built(trials[first : first + together], default=trials[0]):
                    if not isinstance(made, DlcError):
                        built.append((trial, made))
                    elif trial is trials[0]:
                        raise made
                    else:
                        failed.append((trial.schedule, made.diagnostics[0].message))
            say(f"measuring {len(built)} schedules")
            call = Calls(request.kernel, request.seed, profiler)
            right, wrong = call.compared(built, profiled.tolerance)
            runs = [call.timed(program) for _, program in right]
            over = lambda: self.clock() - begin > request.seconds  # noqa: E731
            times = race(runs, over)
            best = winner(times)
            default, tuned = duel(runs[0], runs[best], over) if best else (statistics.median(times[0]),) * 2
        if tuned > WORTH * default:
            best, tuned = 0, default
        record = Record(
            request.kernel.digest,
            tuner.fingerprint(),
            request.kernel.nodes,
            right[best][0].schedule,
            trials[0].schedule,
            right[best][0].cycles,
            round(default * 1e9),
            round(tuned * 1e9),
        )
        return Tuned(record, len(right), tuple(wrong), tuple(failed))

    def _trials(self, request: Request, tuner: Tuner) -> list[Trial]:
        """The candidates, from the cache if it has them: their loops are made to be estimated, which takes a while."""
        kernel = request.kernel.kernel
        spec = Spec.parse(request.backend)
        key = (
            ("kernel", kernel.digest),
            ("backend", request.backend),
            ("processor", self.registry.backend(spec).processor()),
            ("most", str(request.most)),
            ("seed", str(request.seed)),
        )

        def make() -> bytes:
            return json.dumps([astuple(t) for t in tuner.trials(kernel, request.most, request.seed)]).encode()

        code = code_lines(self.registry.find("backends", spec).package)
        (found,) = self.session.run_jobs([Job("candidates", kernel.digest, key, make)], Report(), code)
        return [Trial(*fields) for fields in json.loads(found)]

    def _equipped(self, backend: str) -> tuple[Backend, Profiler, Tuner]:
        """The backend whose programs tell times, and what it knows of schedules; made once."""
        if backend not in self._profilers:
            found = self.registry.backend(Spec.parse(backend))
            measuring, tuner = found.profiler(), found.tuner()
            if measuring is None or tuner is None:
                raise cannot_tune(found)
            self._profilers[backend] = (*measuring, tuner)
        return self._profilers[backend]


def cannot_tune(backend: Backend) -> DlcError:
    """A backend has no schedules, or does not measure them."""
    message = f"{backend.name} does not measure schedules of kernels"
    return error("no-effect", message, help="tune for another target, such as c", exit_code=ExitCode.USAGE)


def tune_here(request: Request) -> Tuned | Failed:
    """`Place.attempt` in a process of its own, as a worker of a cluster runs it; what is compiled is kept there."""
    return _own_place().attempt(request)


def _own_place() -> Place:
    if not _OWN:
        from dlc.cache import Cache, MemoryStore
        from dlc.plugins.discovery import load_registry

        registry = load_registry()
        _OWN.append(Place(registry, session_of(registry, Cache(MemoryStore(), "rw"), Path())))
    return _OWN[0]


_OWN: list[Place] = []
"""Of this process, where it is a worker."""


@dataclass(frozen=True)
class _Builder:
    """Builds programs of one kernel."""

    registry: Registry
    session: Session
    request: Request
    backend: Backend
    """Whose programs tell times."""
    stack: ExitStack
    """Where their directories are kept."""

    @property
    def graph(self) -> Graph:
        """A call of the kernel."""
        kernel = self.request.kernel

        def tensor(type: Type, digest: str) -> Tensor | None:
            content = kernel.tensors.get(digest)
            if content is None:
                return None
            return Tensor(type, digest, LazyData(lambda: np.frombuffer(content, type.dtype.numpy).reshape(type.shape)))

        return parse_graph(kernel.graph, op_classes(self.registry), tensor, "kernel")

    def built(self, trials: Sequence[Trial], default: Trial) -> list[tuple[Trial, Program | DlcError]]:
        """Programs of candidates, compiled at once; what went wrong with those that cannot be built."""
        emitted = [(t, self._emitted("" if t is default else t.schedule)) for t in trials]
        with ThreadPoolExecutor(max(1, len(trials))) as pool:
            done = pool.map(self._compiled, [text for _, text in emitted])
            return [(t, made) for (t, _), made in zip(emitted, done, strict=True)]

    def _emitted(self, schedule: str) -> tuple[Handle[Any], Backend] | DlcError:
        """The text of a program; Python takes turns, so one after another."""
        spec = self.backend.to_spec()
        if schedule:
            spec = with_schedules(spec, [f"{self.request.kernel.digest}={schedule}"], type(self.backend))
        backend = self.registry.backend(spec)
        package = self.registry.find("backends", spec).package
        graph = self.graph
        handle: Handle[Any] = Handle("graph", graph.digest, lambda: graph, part_digests(graph))
        passes = resolve_steps(self.registry, Spec.parse_pipeline(self.request.pipeline), backend=backend)
        try:
            for step in (
                steps.schedule_kernels(backend, package),
                *map(steps.apply, passes),
                steps.emit(backend, package, TITLE),
            ):
                handle = step.run(handle, self.session).handle
        except DlcError as problem:
            return problem
        return handle, backend

    def _compiled(self, emitted: tuple[Handle[Any], Backend] | DlcError) -> Program | DlcError:
        if isinstance(emitted, DlcError):
            return emitted
        text, backend = emitted
        package = self.registry.find("backends", backend.to_spec()).package
        directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="dlc-")))
        try:
            made = steps.compile_artifact(backend, package).run(text, self.session)
            install(made.handle.value, directory)
            return load(directory, self.registry)
        except DlcError as problem:
            return problem
