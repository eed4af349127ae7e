"""`Session.step`: the one combinator around every stage — look up, run, time, store, tell observers.

A step's result is found by its key (what ran, with which code, on which input), so a build whose steps all hit follows
a chain of digests and loads nothing but the artifact at its end.
"""

from __future__ import annotations

import errno
import mmap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from dlc.api.artifact import Artifact, Job
from dlc.base import budget
from dlc.base.budget import Budget
from dlc.base.code_digest import code_digest
from dlc.base.diagnostics import DlcError, ExitCode, Location, error
from dlc.base.libraries import versions
from dlc.base.report import Report
from dlc.base.table import Table
from dlc.base.uses import NUMPY, noting
from dlc.cache.envelope import Damaged
from dlc.cache.step_record import Handle, StepRecord
from dlc.driver.left_out import LeftOut, lines_of, needs_meta, needs_of, restored, told, told_report
from dlc.files.hashing import OwnedFile
from dlc.files.inputs import Inputs, active
from dlc.version import __version__

if TYPE_CHECKING:
    from dlc.cache import Cache, Key, Record
    from dlc.driver.codec import Context, Payload, State

S = TypeVar("S")
T = TypeVar("T")

Made: TypeAlias = "tuple[StepRecord[T], Mapping[str, Payload]]"
"""A step that ran, and the state that it gave as payloads for the cache."""
Done: TypeAlias = tuple[bytes, bool, float]
"""The result of a sub-step, whether the cache had it, and the milliseconds that it took when it ran."""
Lines = tuple[tuple[str, str], ...]
"""(label, value) pairs of a key."""

WAITS = "waits for another process that does the same"
"""What is shown of a step or sub-step in place of its subject."""
_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG


@dataclass(frozen=True)
class Stage(Generic[S, T]):
    """A function with everything its result depends on."""

    spec: str
    """Canonical spec text: the step's name and options."""
    package: str
    """Package whose code runs, beside dlc itself."""
    run: Callable[[S, Report], T]
    extra: tuple[tuple[str, str], ...] = ()
    """Further key lines: ("toolchain", …)."""
    title: str = ""
    """What people call it: its spec text without options that have their defaults."""
    compares: frozenset[str] | None = None
    """Words that names of inputs, outputs and parameters are compared with; all else that a name does is to be handed
    on. None: names are read, so that all of them are in the key."""
    numpy: bool = True
    """Whether the code calls numpy itself; else only what evaluates ops does, which notes it."""


class StepFailed(Exception):
    """A stage broke with something that is not a DlcError: a bug in dlc or a plugin, not in the model."""

    def __init__(self, spec: str, input_text: str, package: str = "dlc", nodes: tuple[str, ...] = ()) -> None:
        """What ran on which input, the package whose code it is, and the model's nodes it was at, where known."""
        super().__init__(f"internal error in {spec}")
        self.spec, self.input_text, self.package, self.nodes = spec, input_text, package, nodes


@dataclass(frozen=True)
class Running:
    """What is about to run: a step, or one of the sub-steps of one."""

    step: str
    """The step's title; of a sub-step, its kind: "compile"."""
    subject: str = ""
    """What a sub-step works on."""
    number: int = 0
    """Of a sub-step, from 1."""
    total: int = 0
    """How many sub-steps there are; 0 for a step."""


def _ignore(running: Running) -> None:
    del running


@dataclass
class Session:
    """Everything that steps share. Threads may share one."""

    cache: Cache
    context: Context
    observers: Sequence[Callable[[StepRecord[Any]], None]] = ()
    on_start: Callable[[Running], None] = _ignore
    """Told every step and sub-step that is about to run; by any thread."""
    jobs: int = 2
    """Sub-steps that run at once."""
    acting: tuple[str, ...] = ()
    """Packages of plugins whose ops and rules may occur in any step: their code is part of every key."""
    op_packs: str = ""
    """Digest of the op packs that no plugin brings: part of every key."""
    inputs: Inputs = field(default_factory=active)
    """The files that the steps read; nothing is kept once one of them changed."""
    budget: Budget = field(default_factory=Budget)
    """What a build may cost."""

    def key(self, spec: str, package: str, given: str, extra: tuple[tuple[str, str], ...] = ()) -> Key:
        """The key of a step on an input `kind digest`."""
        from dlc.cache import Key

        packs = (("op-packs", self.op_packs),) if self.op_packs else ()
        return Key((("step", spec), *code_lines(package, *self.acting), *packs, *extra, ("input", given)))

    def step(self, stage: Stage[S, T], given: Handle[S], function: str = "") -> StepRecord[T]:
        """The stage's result on an input, from the cache if its key is known there.

        Args:
            stage: What runs.
            given: Its input.
            function: See `StepRecord.function`.
        """
        with self.inputs.active():
            done = replace(self._stepped(stage, given), function=function)
        for observer in self.observers:
            observer(done)
        return done

    def _stepped(self, stage: Stage[S, T], given: Handle[S]) -> StepRecord[T]:
        """The result without names, where the stage may do without and they would have changed nothing."""
        left_out = given.left_out
        if isinstance(left_out, LeftOut) and stage.compares is not None and not left_out.has(stage.compares):
            done = self._looked_up(self._asked(stage, given, bare=True))
            placeholders = done.handle.placeholders
            if placeholders is None or not left_out.clashes(placeholders):
                return replace(done, report=told_report(done.report, lambda: left_out.table))
        return self._looked_up(self._asked(stage, given, bare=False))

    def _asked(self, stage: Stage[S, T], given: Handle[S], *, bare: bool) -> _Asked[S, T]:
        lines = (
            (("names", given.placeholders.pattern),) if bare and given.placeholders is not None else given.named_lines
        )
        numpy = (("library", versions((NUMPY,))),) if stage.numpy else ()
        extra = (*numpy, *stage.extra, *lines)
        key = self.key(stage.spec, stage.package, f"{given.kind} {given.digest}", extra)
        return _Asked(stage, given, bare, key)

    def _looked_up(self, asked: _Asked[S, T]) -> StepRecord[T]:
        start = time.perf_counter()
        with self.cache.flight(asked.key):
            asked, record = self._followed(asked)
            if (found := self._known(asked, record, start)) is not None:
                return found
            title = asked.stage.title or asked.stage.spec
            with self.cache.alone(asked.key, lambda: self.on_start(Running(title, WAITS))) as others:
                if others:
                    asked, record = self._followed(asked)
                    if (found := self._known(asked, record, start)) is not None:
                        return found
                return self._made(asked)[0]

    def _known(self, asked: _Asked[S, T], record: Record | None, start: float) -> StepRecord[T] | None:
        if record is not None:
            with suppress(Damaged):
                return replace(self._found(asked, record), milliseconds=(time.perf_counter() - start) * 1000)
        return None

    def _followed(self, asked: _Asked[S, T]) -> tuple[_Asked[S, T], Record | None]:
        """The key with all that records say that it needs, and what is there."""
        while (record := self.cache.lookup(asked.key)) is not None:
            if (needs := needs_of(record)) is None:
                return asked, record
            with suppress(Damaged, ValueError):
                if not needs <= asked.needs:
                    asked = asked.with_needs(needs)
                    continue
            break  # of another version
        return asked, None

    def _made(self, asked: _Asked[S, T]) -> Made[T]:
        """The result of running the stage, saved under its key."""
        stage, given = asked.stage, asked.given
        self.on_start(Running(stage.title or stage.spec))
        value_in = given.bare if asked.bare else given.value  # loading it may run an earlier step again
        record, payloads, asked = self._run(asked, value_in)
        if not record.report.passing:
            self.cache.save(asked.key, payloads, record.to_meta())
        return record, payloads

    def _run(self, asked: _Asked[S, T], value: S) -> tuple[StepRecord[T], Mapping[str, Payload], _Asked[S, T]]:
        """Run the stage and encode what it gave, which is no state when a plugin does not keep to its interface."""
        from dlc.plugins.owner import origin_of, owner_of

        stage, table = asked.stage, asked.table

        def nodes_of(problem: BaseException) -> tuple[str, ...]:
            return tuple(map(table().text, origin_of(problem, value)))

        try:
            with budget.at(stage.title or stage.spec):
                return self._making(asked, value)
        except DlcError as problem:
            if problem.diagnostics[0].code == budget.CODE:
                raise _at_node(told(problem, table), nodes_of(problem)) from None
            if problem.exit_code is not ExitCode.BUG or owner_of(problem, stage.package) is None:
                if (named := told(problem, table)) is not problem:
                    raise named from problem.__cause__
                raise
            broken: BaseException = problem
        # Anything else is a bug, and so is a step that ends the process: it is re-raised with the input that reproduces
        # it, for the reporter of bugs.
        except (Exception, SystemExit) as bug:  # noqa: BLE001
            if isinstance(bug, OSError) and bug.errno in _FULL:
                raise _no_space(stage.spec, bug) from None
            broken = bug
        raise StepFailed(stage.spec, _readable(asked.given.value), stage.package, nodes_of(broken)) from broken

    def _making(self, asked: _Asked[S, T], given: S) -> tuple[StepRecord[T], Mapping[str, Payload], _Asked[S, T]]:
        """What a stage gives, as value and as bytes, and what its key then is."""
        from dlc.driver.stored import stored

        stage, report = asked.stage, Report()
        start = time.perf_counter()
        with noting() as noted:
            value = stage.run(given, report)
        _check_size(value)
        elapsed = (time.perf_counter() - start) * 1000
        handle, payloads = stored(cast("State", value), asked.given, bare=asked.bare, reads=noted)
        more = frozenset(noted) - asked.needs - ({NUMPY} if stage.numpy else set[str]())
        if more:
            if not report.passing:
                self.cache.save(asked.key, {}, needs_meta(more))
            asked = asked.with_needs(more)
        report.parts += asked.before  # who keeps the result keeps what leads to it
        return StepRecord(asked.key, handle, elapsed, elapsed, report=report, title=stage.title), payloads, asked

    def _found(self, asked: _Asked[S, T], record: Record) -> StepRecord[T]:
        """What a record says. Raises Damaged where it is not that of a step."""
        objects = dict(record.outputs)
        remade: list[Made[T]] = []
        lock = threading.Lock()

        def again() -> Made[T]:
            # What the record promised is lost or unreadable. Nothing but time depends on it: the step runs again.
            with lock, self.inputs.active():
                if not remade:
                    remade.append(self._made(asked))
            return remade[0]

        def read(name: str) -> memoryview | None:
            if name not in objects:
                return None
            found = self.cache.view(objects[name])
            return _view(again()[1][name]) if found is None else found

        def file(name: str) -> Payload | None:
            return (self.cache.file(objects[name]) if name in objects else None) or read(name)

        def load() -> T:
            from dlc.driver.codec import decode

            table = handle.left_out.load if isinstance(handle.left_out, LeftOut) else Table
            try:
                with self.inputs.active():
                    state = decode(handle.kind, read, tuple(objects), self.context, file, table)
                    return cast("T", state)
            except Damaged:
                return again()[0].handle.bare

        def lost_table() -> Table:
            made = again()[0].handle.left_out
            return made.table if isinstance(made, LeftOut) else Table()

        found = StepRecord[T].of(record, load)
        handle = restored(found.handle, asked.given, lambda given: self._table(read, given, lost_table))
        return replace(found, handle=handle)

    def _table(self, read: Callable[[str], memoryview | None], given: Table | None, lost: Callable[[], Table]) -> Table:
        """The table that a record has, or the given one with what the record adds to it."""
        from dlc.driver.codec import decode_table

        try:
            with self.inputs.active():
                return decode_table(read, self.context, given)
        except Damaged:
            return lost()

    # ---- sub-steps: what backends build in parallel ----
    def run_jobs(self, jobs: Sequence[Job], report: Report, code: Lines = ()) -> list[bytes]:
        """The results of jobs, from the cache or made, in the order given; `code` as in `job_key`.

        Jobs that call tools run several at once; those that depend on code are computed in this thread, because Python
        would only take turns.
        """
        running = [Running(job.step, job.subject, k, len(jobs)) for k, job in enumerate(jobs, 1)]
        work = [(job, job_key(job, code), each) for job, each in zip(jobs, running, strict=True)]
        report.parts += [key.digest for _, key, _ in work]
        found = [self._job(*each) for each in work] if code else self._at_once(work)
        for job, (_, cached, ms) in zip(jobs, found, strict=True):
            report.count(f"{jobs[0].step} hits" if cached else f"{jobs[0].step} runs")
            report.jobs.append((job.step, job.subject, round(ms, 3), cached))
        return [content for content, _, _ in found]

    def _at_once(self, work: Sequence[tuple[Job, Key, Running]]) -> list[Done]:
        from concurrent.futures import CancelledError, ThreadPoolExecutor
        from threading import Event

        failed = Event()

        def attempt(job: Job, key: Key, running: Running) -> Done:
            # An interruption ends the tools that run; their threads must not start the next ones meanwhile. Jobs start
            # in order, so the result that is asked for first is never one that was left out here.
            if failed.is_set():
                raise CancelledError
            try:
                return self._job(job, key, running)
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(max(1, self.jobs)) as pool:
            futures = [pool.submit(copy_context().run, attempt, *each) for each in work]
            try:
                return [f.result() for f in futures]
            except BaseException:
                for f in futures:
                    f.cancel()
                raise

    def _job(self, job: Job, key: Key, running: Running) -> Done:
        with self.cache.flight(key):
            if (found := self._job_result(key)) is not None:
                return found
            with self.cache.alone(key, lambda: self.on_start(replace(running, subject=WAITS))) as others:
                if others and (found := self._job_result(key)) is not None:
                    return found
                self.on_start(running)
                start = time.perf_counter()
                made = job.make()
                ms = (time.perf_counter() - start) * 1000
                self.cache.save(key, {"result": made}, {"ms": f"{ms:.3f}", "subject": job.subject})
                return made, False, ms

    def _job_result(self, key: Key) -> Done | None:
        record = self.cache.lookup(key)
        for _, digest in record.outputs if record is not None else ():
            content = self.cache.read(digest)
            if content is not None and record is not None:
                return content, True, record.milliseconds
        return None


@dataclass(frozen=True)
class _Asked(Generic[S, T]):
    """A step on an input, and its key as far as it is known."""

    stage: Stage[S, T]
    given: Handle[S]
    bare: bool
    """Whether it runs without names and weights."""
    key: Key
    needs: frozenset[str] = frozenset()
    """What of these, and of libraries, its key has none the less."""
    before: tuple[str, ...] = ()
    """Digests of the keys that it was found by."""

    def table(self) -> Table:
        """The names and weights that are left out."""
        return self.given.left_out.table if self.bare and isinstance(self.given.left_out, LeftOut) else Table()

    def with_needs(self, needs: frozenset[str]) -> _Asked[S, T]:
        """With more in the key. Raises Damaged where the input has nothing of the kind."""
        from dlc.cache import Key

        key = Key((*self.key.lines, *lines_of(needs - self.needs, self.table())))
        return replace(self, key=key, needs=self.needs | needs, before=(*self.before, self.key.digest))


def _check_size(state: object) -> None:
    """Raise DlcError (LIMIT): a graph, or the graph of a plan, has more ops or kernels than the budget allows."""
    from dlc.graph.graph import Graph

    graph = getattr(state, "graph", state)
    if isinstance(graph, Graph):
        budget.limit("nodes", len(graph.ops), "the graph")
        budget.limit("kernels", sum(op.runs for op in graph.ops), "the program")


def _at_node(problem: DlcError, nodes: tuple[str, ...]) -> DlcError:
    """The error with the node of the model that the step was at, where it names none and that is known."""
    first = problem.diagnostics[0]
    if first.location is not None or not nodes:
        return problem
    return DlcError(replace(first, location=Location(node=nodes[0])), exit_code=problem.exit_code)


def code_lines(*packages: str) -> Lines:
    """Key lines for what depends on the code of dlc and of these packages."""
    others = [p for p in dict.fromkeys(packages) if p != "dlc"]
    lines = [("code", f"dlc {__version__} {code_digest('dlc')[:32]}")]
    lines += [("code", f"{p} {code_digest(p)[:32]}") for p in others]
    return tuple(lines)


def job_key(job: Job, code: Lines = ()) -> Key:
    """The key of a sub-step.

    Compiling has no lines of code: the text that it works on is part of the key, so an unrelated change to the compiler
    leaves every compiled kernel valid. What makes that text has those of dlc and the backend.
    """
    from dlc.cache import Key

    return Key((("step", job.step), *code, *job.key))


@dataclass(frozen=True)
class SessionWorkshop:
    """The `Workshop` that a session lends to a backend."""

    session: Session
    report: Report
    code: Lines = ()
    """Key lines for the code that the results depend on; none where they depend on text and tools only."""

    def file(self, name: str, size: int) -> OwnedFile:
        """See `Workshop.file`."""
        return OwnedFile.create(name, self.session.cache.scratch(size))

    def cached(self, jobs: Sequence[Job]) -> list[bytes]:
        """See `Workshop.cached`."""
        return self.session.run_jobs(jobs, self.report, self.code) if jobs else []


def _no_space(spec: str, problem: OSError) -> DlcError:
    return error(
        "no-space",
        f"{spec.partition('{')[0]}: its files cannot be written: {problem.strerror}",
        help="free space in the directories of temporary files (TMPDIR) and of the cache (--cache-dir), or set others",
    )


def _view(payload: Payload) -> memoryview:
    if not isinstance(payload, Path):
        return memoryview(payload)
    with payload.open("rb") as file:  # mapped, because it may be larger than memory
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if payload.stat().st_size else b"")


def _readable(value: object) -> str:
    """What reproduces a step, where text can: an artifact's files are no input of `dlc opt`."""
    from dlc.driver.state_text import print_state

    return "" if isinstance(value, Artifact) else print_state(value)
