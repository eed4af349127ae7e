"""The compiler on one page: parse, run the pipeline, emit, build — each through `session.step`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from dlc.diagnostics import Diagnostic, DlcError, ExitCode, Location, error
from dlc.interfaces import Artifact, Backend, Frontend, Source
from dlc.report import Report
from dlc.session import Handle, Session, SessionWorkshop, Stage, StepResult

if TYPE_CHECKING:
    from dlc.graph.graph import Graph
    from dlc.plan import Plan
    from dlc.recipe import Recipe, Step


def parse(source: Source, frontend: Frontend, package: str, session: Session) -> StepResult[Graph]:
    """bytes → Graph. Files that the model refers to are part of the key."""
    files = [source.digest, *(f"{Path(c.name).name}:{c.digest}" for c in frontend.companions(source))]
    digest = files[0] if len(files) == 1 else sha256("\n".join(files).encode()).hexdigest()

    def run(given: Source, report: Report) -> Graph:
        graph = frontend.parse(given, report)
        report.count("nodes", len(graph.ops))
        _check(graph, "ops")
        return graph

    return session.step(Stage(str(frontend), package, run), Handle("source", digest, lambda: source))


def apply(step: Step, given: Handle[Any], session: Session) -> StepResult[Any]:
    """One pass."""

    def run(state: Any, report: Report) -> Any:
        result = step.stage.run(state, report)
        if step.name == "lower":
            _check(result, "kernels")
        if hasattr(result, "ops"):
            report.count("nodes", len(result.ops))
        return result

    return session.step(Stage(str(step.stage), step.package, run), given)


def emit(backend: Backend, package: str, given: Handle[Plan], session: Session, title: str) -> StepResult[Artifact]:
    """Plan → program text and data. The title (a file name without suffix) is what generated names start from."""

    def run(plan: Plan, report: Report) -> Artifact:
        return backend.for_model(title).emit(plan, report)

    extra = (("title", title), ("toolchain", backend.toolchain()))
    return session.step(Stage(f"emit {backend}", package, run, extra), given)


def compile_artifact(backend: Backend, package: str, given: Handle[Artifact], session: Session) -> StepResult[Artifact]:
    """Program text → what the toolchain makes of it."""

    def run(artifact: Artifact, report: Report) -> Artifact:
        return backend.build(artifact, SessionWorkshop(session, package, report))

    extra = (("toolchain", backend.toolchain()),)
    return session.step(Stage(f"build {backend}", package, run, extra), given)


@dataclass(frozen=True)
class Build:
    """A whole build, step by step."""

    steps: tuple[StepResult[Any], ...]

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
    on_step: Callable[[StepResult[Any]], None] | None = None,
) -> Build:
    """Everything: bytes → Graph → … → Plan → files → binary.

    Args:
        stop_after: Name of the step behind which to stop ("parse", a pass, "emit"); "" runs all.
        on_step: Told every step's result as it comes.
    """
    done: list[StepResult[Any]] = []
    title = source.path.stem if source.path else Path(source.name).stem

    def stages() -> Iterator[tuple[str, Callable[[], StepResult[Any]]]]:
        yield "parse", lambda: parse(source, frontend, frontend_package, session)
        for step in recipe.steps:
            yield step.name, lambda step=step: apply(step, done[-1].handle, session)
        backend, package = recipe.backend, recipe.backend_package
        yield "emit", lambda: emit(backend, package, done[-1].handle, session, title)
        yield "build", lambda: compile_artifact(backend, package, done[-1].handle, session)

    names = ["parse", *(s.name for s in recipe.steps), "emit", "build"]
    if stop_after and stop_after not in names:
        raise error(
            "unknown-step",
            f"--stop-after {stop_after}: the pipeline has no such step",
            help=f"steps: {', '.join(names)}",
            exit_code=ExitCode.USAGE,
        )
    for name, run in stages():
        done.append(run())
        if on_step is not None:
            on_step(done[-1])
        if name == stop_after:
            break
    return Build(tuple(done))


def install(artifact: Artifact, directory: Path) -> list[Path]:
    """Write an artifact's files: all of them, or none and an error that leaves the directory as it was.

    Raises:
        DlcError: the directory cannot be written, the disk is full, or a file's name leads out of the directory.
    """
    for name in artifact.files:
        if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise error("bad-file-name", f"{artifact.target} names a file {name!r}", exit_code=ExitCode.PLUGIN)
    undo: list[Callable[[], object]] = []
    try:
        _make_directory(directory, undo)
        stage = Path(tempfile.mkdtemp(prefix=".dlc-", dir=directory))
        undo.append(lambda: shutil.rmtree(stage, ignore_errors=True))
        try:
            for name, content in artifact.files.items():
                _write(stage / "new" / name, content)
            written = [_replace(stage, name, directory, undo) for name in artifact.files]
        except BaseException:
            _unwind(undo)
            raise
    except OSError as problem:
        _unwind(undo)
        raise error(
            "cannot-write",
            f"{directory} cannot be written: {problem.strerror or problem}",
            location=Location(str(directory)),
            help="choose another directory with -o, or free space and check its permissions",
        ) from problem
    shutil.rmtree(stage, ignore_errors=True)
    return written


def _make_directory(directory: Path, undo: list[Callable[[], object]]) -> None:
    """Make a directory and those above it; undoing removes what was made."""
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        undo.append(made.rmdir)
    if not missing:
        directory.mkdir(exist_ok=True)  # says so if it is something else


def _replace(stage: Path, name: str, directory: Path, undo: list[Callable[[], object]]) -> Path:
    """Move one staged file to its place; undoing brings back what was there."""
    target, new, old = directory / name, stage / "new" / name, stage / "old" / name
    _make_directory(target.parent, undo)
    if target.exists() or target.is_symlink():
        old.parent.mkdir(parents=True, exist_ok=True)
        _keep(target, old)
        os.replace(new, target)
        undo.append(lambda: os.replace(old, target))
    else:
        os.replace(new, target)
        undo.append(target.unlink)
    return target


def _keep(target: Path, old: Path) -> None:
    """A second name for a file, so that at no moment its place is empty; a copy where there are no links."""
    try:
        os.link(target, old, follow_symlinks=False)
    except OSError:
        shutil.copy2(target, old, follow_symlinks=False)


def _unwind(undo: list[Callable[[], object]]) -> None:
    while undo:
        with suppress(OSError):  # what cannot be undone must not keep the rest from it
            undo.pop()()


def _write(path: Path, content: bytes | memoryview | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        path.write_bytes(content)


def _check(graph: Graph, level: str) -> None:
    """A graph that breaks its own rules is a bug of the step that made it, told with the nodes it concerns."""
    from dlc.graph.verify import Level, verify

    checked: Level = "ops" if level == "ops" else "kernels"
    problems: Sequence[Diagnostic] = verify(graph, checked)
    if problems:
        raise DlcError(*problems, exit_code=ExitCode.BUG)
