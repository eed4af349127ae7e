"""The steps of a build: what each runs, and what its result depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dlc.api.artifact import Artifact
from dlc.api.backend import Backend
from dlc.api.frontend import Frontend
from dlc.api.inside import run_inside
from dlc.api.source import Source
from dlc.api.training import Bundle
from dlc.api.variants import Variants
from dlc.base.code_digest import code_digest
from dlc.base.diagnostics import Location, error
from dlc.base.libraries import versions
from dlc.base.report import Report
from dlc.cache.step_record import Handle, StepRecord
from dlc.driver.left import check_left
from dlc.driver.pipeline import ACCEPT, ACCEPT_VALUES, BUILD, EMIT, PARSE, SCHEDULE, Step
from dlc.driver.session import Lines, Session, SessionWorkshop, Stage, code_lines
from dlc.kernel.define import ShapeError
from dlc.runtime.manifest import with_manifest
from dlc.spec import OptionError

if TYPE_CHECKING:
    from dlc.graph.graph import Graph


@dataclass(frozen=True)
class BuildStep:
    """A step that a build will run."""

    name: str
    """As --stop-after calls it."""
    spec: str
    """Its text: options, or the backend's."""
    stage: Callable[[Session], Stage[Any, Any]]
    """What runs; asked for when its turn comes, because a backend looks at its tools for it."""

    def run(self, given: Handle[Any], session: Session, function: str = "") -> StepRecord[Any]:
        """What the step makes of a state."""
        return session.step(self.stage(session), given, function)


def source_handle(source: Source, frontend: Frontend) -> Handle[Source]:
    """The model's file. Files that it refers to are part of the digest."""
    files = [source.digest, *(f"{Path(c.name).name}:{c.digest}" for c in frontend.companions(source))]
    digest = files[0] if len(files) == 1 else sha256("\n".join(files).encode()).hexdigest()
    return Handle("source", digest, lambda: source)


def parse(source: Source, frontend: Frontend, package: str) -> BuildStep:
    """bytes → Graph."""

    def run(given: Source, report: Report) -> Graph:
        try:
            graph = frontend.graph(given, report)
        except ShapeError as problem:
            # What ops refuse is the model's fault; a frontend that says at which node does better.
            help = "the operands of an op in the model do not fit each other; mend the model"
            message = ": ".join(filter(None, (frontend.name, problem.op, str(problem))))
            notes = (f"the op is made in {_place(problem)}",)
            place = Location(given.name)
            raise error("operand-shapes", message, location=place, notes=notes, help=help) from problem
        report.count("nodes", len(graph.ops))
        check_left(graph, "ops", frontend.name)
        return graph

    def stage(session: Session) -> Stage[Source, Graph]:
        del session
        extra = [("library", versions(frontend.libraries))] if frontend.libraries else []
        extra += _code(frontend.packages(source))
        return Stage(str(frontend), package, run, tuple(extra), frontend.brief)

    return BuildStep(PARSE, PARSE, stage)


def _place(problem: BaseException) -> str:
    """The innermost line that is no op's: where a frontend makes the op."""
    import functools
    import traceback

    frames = reversed(traceback.extract_tb(problem.__traceback__))
    ours = tuple(str(Path(__file__).parents[1] / part) for part in ("graph", "kernel", "ops"))
    found = next((f for f in frames if not f.filename.startswith((*ours, functools.__file__, "<"))), None)
    return f"{Path(found.filename).name}, line {found.lineno}" if found else "the frontend"


def apply(step: Step) -> BuildStep:
    """One pass."""

    def run(state: Any, report: Report) -> Any:
        try:
            result = run_inside(step.stage, state, report)
        except OptionError as problem:
            raise (step.spec.pointed(problem) if step.spec else problem) from None
        # What a step gave back as it came was verified behind the step before.
        if result is not state or step.stage.level_in != step.stage.level_out:
            check_left(result, step.stage.level_out, step.name)
        if hasattr(result, "ops"):
            report.count("nodes", len(result.ops))
        return result

    spec, numpy = str(step.stage), not step.stage.is_structural

    def stage(session: Session) -> Stage[Any, Any]:
        del session
        extra = _code(step.stage.packages)
        return Stage(spec, step.package, run, extra, step.stage.brief, step.stage.compares(), numpy)

    return BuildStep(step.name, spec, stage)


def accept(backend: Backend, package: str) -> BuildStep:
    """The same graph, once the backend has said of every op that it can build it."""

    def run(graph: Graph, report: Report) -> Graph:
        from dlc.driver.legality import check_ops

        check_ops(graph, backend)
        report.count("nodes", len(graph.ops))
        return graph

    return _of_backend(ACCEPT, backend, package, lambda _: run, _answering(backend))


def accept_values(backend: Backend, package: str) -> BuildStep:
    """The same graph or plan, once the backend has said of every type and kernel in it that it can build it.

    Warns of values that the backend's types cannot hold.
    """

    def run(state: Any, report: Report) -> Any:
        from dlc.driver.legality import check_values
        from dlc.driver.stored_values import tell_stored

        check_values(state, backend)
        if backend.stores:
            tell_stored(state, backend, report)
        if hasattr(state, "ops"):
            report.count("nodes", len(state.ops))
        return state

    return _of_backend(ACCEPT_VALUES, backend, package, lambda _: run, _answering(backend))


def _answering(backend: Backend) -> Callable[[], list[tuple[str, str]]]:
    """Key lines for what answers questions about a model, where that is not the backend's own code."""

    def extra() -> list[tuple[str, str]]:
        tools = backend.toolchain() if backend.tools_decide else ""
        return [("toolchain", tools)] if tools else []

    return extra


def schedule_kernels(backend: Backend, package: str) -> BuildStep:
    """The same graph, with how its kernels become loops on the target, and the bytes that they work in."""

    def started(session: Session) -> Callable[[Graph, Report], Graph]:
        def run(graph: Graph, report: Report) -> Graph:
            from dlc.api.schedules import with_schedules

            report.count("nodes", len(graph.ops))
            return with_schedules(graph, with_jobs(backend, package, session, report), report)

        return run

    extra = lambda: [("processor", backend.processor()), *_families(backend)]  # noqa: E731
    return _of_backend(SCHEDULE, backend, package, started, extra)


def emit(backend: Backend, package: str, title: str) -> BuildStep:
    """What the pipeline left → program text and data. Generated names start from the title, a file's name."""

    def started(session: Session) -> Callable[[Any, Report], Artifact]:
        def run(state: Any, report: Report) -> Artifact:
            equipped = with_jobs(backend.for_model(title), package, session, report)
            written = next((write for kind, write in _EMITTERS.items() if isinstance(state, kind)), emit_one)
            return written(state, equipped, report)

        return run

    extra = lambda: [("title", title), ("toolchain", backend.toolchain()), *_families(backend)]  # noqa: E731
    return _of_backend(EMIT, backend, package, started, extra)


def emit_one(state: Any, backend: Backend, report: Report) -> Artifact:
    """A program with one function."""
    from dlc.driver.legality import check_regions

    if backend.own_level() == "plan":
        check_regions(state, backend)
    return backend.emit(state, report)


def emit_program(bundle: Bundle, backend: Backend, report: Report) -> Artifact:
    """A program with several functions, with the figures of its memory."""
    from dlc.driver.legality import check_regions
    from dlc.training.step.bundling import memory_of

    for function in bundle.functions.values():
        check_regions(function.plan, backend)
    if not bundle.template[1]:
        report.note("the trained model cannot be exported: only checkpoints hold its parameters")
    artifact = backend.emit_training(bundle, report)
    return replace(artifact, facts={**artifact.facts, **bundle.facts, **memory_of(bundle, artifact.facts)})


def emit_variants(variants: Variants, backend: Backend, report: Report) -> Artifact:
    """A program with fast paths."""
    from dlc.driver.legality import check_regions

    for plan in variants.plans:
        check_regions(plan, backend)
    return backend.emit_variants(variants, report)


_EMITTERS: Final[Mapping[type, Callable[[Any, Backend, Report], Artifact]]] = {
    Bundle: emit_program,
    Variants: emit_variants,
}


def compile_artifact(backend: Backend, package: str) -> BuildStep:
    """Program text → what the toolchain makes of it, with a manifest, so that the cache has all that is installed."""

    def started(session: Session) -> Callable[[Artifact, Report], Artifact]:
        return lambda artifact, report: with_manifest(backend.build(artifact, SessionWorkshop(session, report)))

    return _of_backend(BUILD, backend, package, started, lambda: [("toolchain", backend.toolchain())])


def _of_backend(
    word: str,
    backend: Backend,
    package: str,
    run: Callable[[Session], Callable[[Any, Report], Any]],
    extra: Callable[[], list[tuple[str, str]]] = list,
) -> BuildStep:
    """A step that a backend does, with what else its result depends on."""
    spec, title = f"{word} {backend.placeless}", f"{word} {backend.placeless.brief}"
    structural = backend.is_structural
    compares = frozenset[str]() if structural and word not in (EMIT, BUILD) else None

    def stage(session: Session) -> Stage[Any, Any]:
        return Stage(spec, package, run(session), tuple(extra()), title, compares, not structural)

    return BuildStep(word, spec, stage)


def with_jobs(backend: Backend, package: str, session: Session, report: Report) -> Backend:
    """The backend with sub-steps whose keys hold the code that makes text."""
    packages = (p for family in backend.families for p in family.packages)
    code = (*code_lines(package, *packages), ("library", versions(("numpy",))))
    return backend.with_workshop(SessionWorkshop(session, report, code))


def _families(backend: Backend) -> Lines:
    """Key lines for families of schedules of plugins: which there are, and their code."""
    names = tuple(("schedules", family.name) for family in backend.families)
    return (*names, *_code(p for family in backend.families for p in family.packages))


def _code(packages: Iterable[str]) -> Lines:
    """Key lines for code beside that of the step's own package."""
    return tuple(("code", f"{p} {code_digest(p)[:32]}") for p in dict.fromkeys(packages))
