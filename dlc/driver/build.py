"""The compiler on one page: parse, then the passes of each function of the program, then emit and build.

    model → parse ┬ the steps of one function   ┐
                  ├ the steps of another        ├ join → emit → build
                  └ …                           ┘

Most programs have one function, and nothing to join. A pass that makes several (`ProgramPass`), as for training,
stands in front of the pipeline of each; for fast paths (`Special`) the model is parsed anew. Every step runs through
`Session.step`, so what did not change is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlc.api.frontend import Frontend
from dlc.api.source import Source
from dlc.api.training import Bundle, digest_of
from dlc.api.variants import Variant, Variants
from dlc.base.budget import Budget, spending
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error
from dlc.cache.step_record import Handle, PartDigests, StepRecord
from dlc.driver import steps
from dlc.driver.pipeline import (
    ACCEPT,
    ACCEPT_VALUES,
    BUILD,
    EMIT,
    PARSE,
    SCHEDULE,
    Function,
    ResolvedPipeline,
    with_backend,
)
from dlc.driver.session import Session
from dlc.driver.special import GENERAL, Special, check_pipeline, check_sizes
from dlc.driver.steps import BuildStep

if TYPE_CHECKING:
    from dlc.api.plan import Plan
    from dlc.graph.graph import Graph


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
    pipeline: ResolvedPipeline,
    session: Session,
    *,
    special: Sequence[Special] = (),
    stop_after: str = "",
    on_step: Callable[[StepRecord[Any]], None] | None = None,
) -> Build:
    """Everything: bytes → Graph → … → Plan → files → binary.

    Args:
        special: Single sizes for which the program has fast paths.
        stop_after: Name of the step behind which every function stops ("parse", a pass, "emit"); "" runs all.
        on_step: Told every step's record as it comes.

    Raises:
        DlcError: the model cannot be built, or a file changed while it was.
    """
    with session.inputs.active() as inputs:
        try:
            check_stop(pipeline, stop_after)
            if special:
                check_pipeline(pipeline)
            with spending(_budget(session, source)):
                return _compiled(source, frontend, frontend_package, pipeline, session, special, stop_after, on_step)
        finally:
            inputs.check(now=True)  # what else went wrong may come of the change


def _budget(session: Session, source: Source) -> Budget:
    """What the build may cost by the size of the model's file; of a model that is in memory, all it takes."""
    if source.path is None and not source.data:
        return Budget.unlimited()
    try:
        size = source.path.stat().st_size if source.path is not None else len(source.data)
    except OSError:
        size = 0  # reading it says what is wrong
    return session.budget.for_input(size)


def _compiled(
    source: Source,
    frontend: Frontend,
    frontend_package: str,
    pipeline: ResolvedPipeline,
    session: Session,
    special: Sequence[Special],
    stop_after: str,
    on_step: Callable[[StepRecord[Any]], None] | None,
) -> Build:
    done: list[StepRecord[Any]] = []

    def run(part: Iterable[BuildStep], given: Handle[Any], function: str = "") -> list[StepRecord[Any]]:
        """The records of steps, one after the other."""
        found: list[StepRecord[Any]] = []
        for step in part:
            found.append(step.run(found[-1].handle if found else given, session, function))
            done.append(found[-1])
            if on_step is not None:
                on_step(found[-1])
            if step.name == stop_after:
                break
        return found

    (parsed,) = run([steps.parse(source, frontend, frontend_package)], steps.source_handle(source, frontend))
    if stop_after != PARSE:
        if special:
            check_sizes(parsed.handle.value, special)
        named = ((f, f.name or GENERAL * bool(special)) for f in pipeline.functions)
        ran = {name: run(function_steps(f, pipeline), parsed.handle, name) or [parsed] for f, name in named}
        for each in special:
            read = steps.parse(source, each.frontend, frontend_package)
            own = run([read], steps.source_handle(source, each.frontend), each.name)
            ran[each.name] = [*own, *run(function_steps(pipeline.functions[0], pipeline), own[-1].handle, each.name)]
        if stop_after in ("", EMIT, BUILD):
            backend, package = pipeline.backend, pipeline.backend_package
            if special:
                whole = with_variants(ran, special)
            else:
                whole = joined(pipeline, ran, parsed, lambda names: _template(source, frontend, names))
            run([steps.emit(backend, package, source.title), steps.compile_artifact(backend, package)], whole)
    return Build(tuple(done))


def function_steps(function: Function, pipeline: ResolvedPipeline) -> Iterator[BuildStep]:
    """The steps of a function, and those in which the backend has its say (`with_backend`)."""
    own = {ACCEPT: steps.accept, SCHEDULE: steps.schedule_kernels, ACCEPT_VALUES: steps.accept_values}
    for step in with_backend(function.steps, pipeline.backend):
        yield own[step](pipeline.backend, pipeline.backend_package) if isinstance(step, str) else steps.apply(step)


def joined(
    pipeline: ResolvedPipeline,
    ran: Mapping[str, list[StepRecord[Any]]],
    parsed: StepRecord[Graph],
    template: Callable[[Iterable[str]], tuple[str, bytes]],
) -> Handle[Any]:
    """What `emit` gets: the end of the only function, or what the pass that made several makes of their ends.

    That is done when somebody asks; its digest is that of its parts. The key of the step that parsed the model stands
    for all that its template depends on.

    Args:
        pipeline: The pipeline.
        ran: The steps of every function.
        parsed: The step before them.
        template: See `ProgramPass.joined`.
    """
    ends = {name: records[-1].handle for name, records in ran.items()}
    program = pipeline.program_pass
    if program is None:
        (end,) = ends.values()
        return end
    parts = {f"function {name}": end.digest for name, end in ends.items()}

    def load() -> Bundle:
        plans: dict[str, Plan] = {name: end.value for name, end in ends.items()}
        return program.joined(plans, lambda name: ran[name][0].handle.value, template)

    digest = digest_of({**parts, "program": str(program), "model": parsed.key.digest})
    return Handle(Bundle.kind, digest, load, _joined_parts(ends))


def with_variants(ran: Mapping[str, list[StepRecord[Any]]], special: Sequence[Special]) -> Handle[Any]:
    """What `emit` gets of a program with fast paths: the plans of all sizes and of single ones."""
    ends = {name: records[-1].handle for name, records in ran.items()}

    def load() -> Variants:
        return Variants(ends[GENERAL].value, tuple(Variant(s.sizes, ends[s.name].value) for s in special))

    digest = digest_of({name: end.digest for name, end in ends.items()})
    return Handle(Variants.kind, digest, load, _joined_parts(ends))


def _joined_parts(ends: Mapping[str, Handle[Any]]) -> PartDigests:
    """Digests of the names and the weights of several states."""
    lines = {name: dict(end.named_lines) for name, end in ends.items()}
    labels = dict.fromkeys(label for own in lines.values() for label in own)
    return tuple((label, digest_of({name: own.get(label, "") for name, own in lines.items()})) for label in labels)


def check_stop(pipeline: ResolvedPipeline, stop_after: str) -> None:
    """Raises DlcError (USAGE): there is no pass to stop after, or the pipeline does not lead to the backend."""
    if stop_after in ("", EMIT, BUILD):
        pipeline.check_end()
    if stop_after and stop_after not in pipeline.step_names:
        raise error(
            "no-effect",
            f"--stop-after: the pipeline has no pass {stop_after}",
            help=did_you_mean(stop_after, pipeline.step_names, "passes"),
            exit_code=ExitCode.USAGE,
        )


def _template(source: Source, frontend: Frontend, names: Iterable[str]) -> tuple[str, bytes]:
    """(suffix, content); nothing where the frontend cannot write this model."""
    try:
        return source.suffix, frontend.template(source, list(names))
    except DlcError:
        return "", b""
