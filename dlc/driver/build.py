"""The compiler on one page: parse, run the pipeline, emit, build — each through `session.step`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.api.artifact import Artifact
from dlc.api.backend import Backend
from dlc.api.frontend import Frontend
from dlc.api.source import Source
from dlc.base.code_digest import code_digest
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error
from dlc.base.level import Level
from dlc.base.libraries import versions
from dlc.base.report import Report
from dlc.cache.step_record import Handle, StepRecord
from dlc.driver.session import Session, SessionWorkshop, Stage, code_lines
from dlc.runtime.manifest import with_manifest
from dlc.spec import OptionError

if TYPE_CHECKING:
    from dlc.driver.pipeline import Recipe, Step
    from dlc.graph.graph import Graph

_TOLD = 4
"""Problems of a state that are told one by one: a step that is wrong is often wrong everywhere."""


def parse(source: Source, frontend: Frontend, package: str, session: Session) -> StepRecord[Graph]:
    """bytes → Graph. Files that the model refers to are part of the key."""
    files = [source.digest, *(f"{Path(c.name).name}:{c.digest}" for c in frontend.companions(source))]
    digest = files[0] if len(files) == 1 else sha256("\n".join(files).encode()).hexdigest()

    def run(given: Source, report: Report) -> Graph:
        graph = frontend.graph(given, report)
        report.count("nodes", len(graph.ops))
        check_left(graph, "ops", frontend.name)
        return graph

    extra = [("library", versions(frontend.libraries))] if frontend.libraries else []
    extra += [("code", f"{p} {code_digest(p)[:32]}") for p in frontend.packages(source)]
    return session.step(
        Stage(str(frontend), package, run, tuple(extra), frontend.brief), Handle("source", digest, lambda: source)
    )


def apply(step: Step, given: Handle[Any], session: Session) -> StepRecord[Any]:
    """One pass."""

    def run(state: Any, report: Report) -> Any:
        try:
            result = step.stage.run(state, report)
        except OptionError as problem:
            raise (step.spec.pointed(problem) if step.spec else problem) from None
        # What a step gave back as it came was verified behind the step before.
        if result is not state or step.stage.level_in != step.stage.level_out:
            check_left(result, step.stage.level_out, step.name)
        if hasattr(result, "ops"):
            report.count("nodes", len(result.ops))
        return result

    return session.step(Stage(str(step.stage), step.package, run, title=step.stage.brief), given)


def accept(backend: Backend, package: str, given: Handle[Graph], session: Session) -> StepRecord[Graph]:
    """The same graph, once the backend has said of every op that it can build it."""
    from dlc.driver.legality import check_ops

    def run(graph: Graph, report: Report) -> Graph:
        check_ops(graph, backend)
        report.count("nodes", len(graph.ops))
        return graph

    return session.step(Stage(f"accept {backend}", package, run, title=f"accept {backend.brief}"), given)


def workspaces(backend: Backend, package: str, given: Handle[Graph], session: Session) -> StepRecord[Graph]:
    """The same graph, with the bytes that its kernels work in on the target."""

    def run(graph: Graph, report: Report) -> Graph:
        from dlc.api.workspaces import with_workspaces

        report.count("nodes", len(graph.ops))
        return with_workspaces(graph, _with_jobs(backend, package, session, report))

    extra = (("processor", backend.processor()),)
    return session.step(Stage(f"workspaces {backend}", package, run, extra, f"workspaces {backend.brief}"), given)


def emit(backend: Backend, package: str, given: Handle[Any], session: Session, title: str) -> StepRecord[Artifact]:
    """What the pipeline left → program text and data. Generated names start from the title, a file's name."""

    def run(state: Any, report: Report) -> Artifact:
        from dlc.driver.legality import check_regions

        if backend.consumes == "plan":
            check_regions(state, backend)
        return equipped(backend, package, session, title, report).emit(state, report)

    extra = (("title", title), ("toolchain", backend.toolchain()))
    return session.step(Stage(f"emit {backend}", package, run, extra, f"emit {backend.brief}"), given)


def equipped(backend: Backend, package: str, session: Session, title: str, report: Report) -> Backend:
    """The backend as it emits: named after the model, with sub-steps whose keys hold the code that makes text."""
    return _with_jobs(backend.for_model(title), package, session, report)


def _with_jobs(backend: Backend, package: str, session: Session, report: Report) -> Backend:
    return backend.with_workshop(SessionWorkshop(session, report, code_lines(package)))


def compile_artifact(backend: Backend, package: str, given: Handle[Artifact], session: Session) -> StepRecord[Artifact]:
    """Program text → what the toolchain makes of it, with a manifest, so that the cache has all that is installed."""

    def run(artifact: Artifact, report: Report) -> Artifact:
        return with_manifest(backend.build(artifact, SessionWorkshop(session, report)))

    extra = (("toolchain", backend.toolchain()),)
    return session.step(Stage(f"build {backend}", package, run, extra, f"build {backend.brief}"), given)


@dataclass(frozen=True)
class Build:
    """A whole build, step by step."""

    steps: tuple[StepRecord[Any], ...]

    @property
    def last(self) -> Handle[Any]:
        """The state that the last step gave."""
        return self.steps[-1].handle


def compile_source(
    source: Source,
    frontend: Frontend,
    frontend_package: str,
    recipe: Recipe,
    session: Session,
    *,
    stop_after: str = "",
    on_step: Callable[[StepRecord[Any]], None] | None = None,
) -> Build:
    """Everything: bytes → Graph → … → Plan → files → binary.

    Args:
        stop_after: Name of the step behind which to stop ("parse", a pass, "emit"); "" runs all.
        on_step: Told every step's result as it comes.
    """
    done: list[StepRecord[Any]] = []

    def stages() -> Iterator[tuple[str, Callable[[], StepRecord[Any]]]]:
        backend, package = recipe.backend, recipe.backend_package
        yield "parse", lambda: parse(source, frontend, frontend_package, session)
        for name, run in passes(recipe, session):
            yield name, lambda run=run: run(done[-1].handle)
        yield "emit", lambda: emit(backend, package, done[-1].handle, session, source.title)
        yield "build", lambda: compile_artifact(backend, package, done[-1].handle, session)

    check_stop(recipe, stop_after)
    for name, run in stages():
        done.append(run())
        if on_step is not None:
            on_step(done[-1])
        if name == stop_after:
            break
    return Build(tuple(done))


def passes(recipe: Recipe, session: Session) -> Iterator[tuple[str, Callable[[Handle[Any]], StepRecord[Any]]]]:
    """Name and function of every step between parse and emit, with those in which the backend has its say."""
    last, ordered = last_of_ops(recipe), first_plan(recipe)
    for number, step in enumerate((*recipe.steps, None)):
        if number == last:
            yield "accept", lambda given: accept(recipe.backend, recipe.backend_package, given, session)
        if number == ordered:
            yield "workspaces", lambda given: workspaces(recipe.backend, recipe.backend_package, given, session)
        if step is not None:
            yield step.name, lambda given, step=step: apply(step, given, session)


def check_stop(recipe: Recipe, stop_after: str) -> None:
    """Raises DlcError (USAGE): there is no step to stop behind, or the pipeline does not lead to the backend."""
    names = ["parse", *(s.name for s in recipe.whole), "emit", "build"]
    if stop_after in ("", "emit", "build"):
        recipe.check_end()
    if stop_after and stop_after not in names:
        raise error(
            "no-effect",
            f"--stop-after: the pipeline has no step {stop_after}",
            help=did_you_mean(stop_after, names, "steps"),
            exit_code=ExitCode.USAGE,
        )


def last_of_ops(recipe: Recipe) -> int:
    """How many steps run before the backend is asked whether it accepts the ops; -1 if it has nothing to say."""
    from dlc.driver.legality import asks_about_ops

    if not asks_about_ops(recipe.backend):
        return -1
    leaving = (k for k, step in enumerate(recipe.steps) if step.stage.level_out != "ops")
    return next(leaving, len(recipe.steps))


def first_plan(recipe: Recipe) -> int:
    """The step that orders kernels, before which the backend states what they work in; -1 if it has nothing to say."""
    from dlc.api.workspaces import states_workspaces

    if not states_workspaces(recipe.backend):
        return -1
    levels = ((step.stage.level_in, step.stage.level_out) for step in recipe.steps)
    return next((k for k, level in enumerate(levels) if level == ("kernels", "plan")), -1)


def check_left(state: Any, level: Level, step: str) -> None:
    """Check what a step leaves, by the level that it says it leaves: no step is trusted for its name.

    Raises:
        DlcError: (BUG) of the step: it gives something else than it says, or a graph that breaks its own rules, told
            with the nodes of the model and the nests that it concerns.
    """
    from dlc.api.plan import Plan
    from dlc.graph.graph import Graph
    from dlc.graph.verify import verify

    graph = state.graph if level == "plan" and isinstance(state, Plan) else state
    if not isinstance(graph, Graph) or (level == "plan" and graph is state):
        what = "a plan" if level == "plan" else f"a graph of {level}"
        raise error("invalid-state", f"{step} leaves {what}, not {type(state).__name__}", exit_code=ExitCode.BUG)
    if not (problems := verify(graph, level)):
        return
    *first, last = problems[:_TOLD]
    others = len(problems) - len(first) - 1
    notes = (*last.notes, f"and {others} more of this kind") if others else last.notes
    last = replace(last, notes=notes, help=f"{step} left it so, which is a bug: please report it with the model")
    raise DlcError(*first, last, exit_code=ExitCode.BUG)
