"""`dlc opt`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.budget import spending
from dlc.base.diagnostics import ExitCode, Location, error
from dlc.cli import flags
from dlc.cli.complete import complete_passes
from dlc.cli.options import BuildOptions
from dlc.cli.progress import BuildProgress
from dlc.cli.steps import no_step, step_json, step_table
from dlc.cli.terminal import Outcome, Terminal
from dlc.cli.workspace import Workspace
from dlc.spec import Spec

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.api.plan import Plan
    from dlc.base.types import Type
    from dlc.cache.step_record import Handle, StepRecord
    from dlc.config.config import Pipeline as Pipelined
    from dlc.driver.pipeline import Step
    from dlc.driver.session import Session
    from dlc.graph import Graph, Tensor

File = Annotated[Path, typer.Argument(metavar="FILE.dlc", help="A graph or plan in dlc's own text.")]
PrintAfter = Annotated[
    str,
    typer.Option(
        metavar="all|PASS", help="Also print the result of a pass, or of all.", autocompletion=complete_passes
    ),
]
Pipeline = Annotated[
    str | None,
    typer.Option("--pipeline", "-p", metavar="SPEC", help="Passes to run. By default the `# RUN:` line of the file."),
]
_RUN = "# RUN:"
_BACKEND = ("accept", "schedule-kernels", "emit", "build")
"""Steps of a backend, which crash files have in place of a pipeline; the last two write the program."""
_REMEDY = "read the file; then --trust-config lets its options run what they name"
_EXPECTED = "\n----\n"
"""What separates input and expected output in a test's file."""


@dataclass(frozen=True)
class _Last:
    """A step of a backend behind the pipeline."""

    word: str
    """One of `_BACKEND`."""
    backend: Backend
    package: str


@flags.spelled
def opt(
    ctx: typer.Context,
    file: File,
    options: flags.StepOptions,
    cache: flags.Trust,
    pipeline: Pipeline = None,
    print_after: PrintAfter = "",
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Run a pipeline on a graph or plan in dlc's own text and print the result. Nothing is cached."""
    del json
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    space = Workspace.open(terminal, cache)
    text = _read(file)
    wanted, origin, last = _wanted(text, pipeline, file)
    foreign = "" if cache.trust_config or pipeline is not None else _REMEDY
    with spending(space.config.budget.for_input(len(text))):
        state = _parse(space, text, file)
        steps = _steps(space, Spec.parse_pipeline(wanted, origin, foreign), options)
        backend = _backend(space, last, origin, foreign) if last else None
        names = [step.name for step in steps]
        if print_after not in ("", "all", *names):
            raise no_step("--print-after", print_after, ["all", *names])
        return _run(space, file, state, steps, backend, print_after)


def _run(
    space: Workspace, file: Path, state: Graph | Plan, steps: tuple[Step, ...], last: _Last | None, print_after: str
) -> Outcome:
    from dlc.cache import Cache, MemoryStore
    from dlc.cache.step_record import Handle
    from dlc.driver import steps as build_steps
    from dlc.driver.state_text import print_state

    done: list[StepRecord[Any]] = []
    shown: list[str] = []
    with space.terminal.progress() as progress:
        # Constants may be stand-ins under the digests of the real ones, so no result may be kept.
        session: Session = space.session(Cache(MemoryStore(), "off"), file, 0, BuildProgress(progress).at)
        handle: Handle[Any] = Handle(state.kind, state.digest, lambda: state)
        for step in steps:
            done.append(build_steps.apply(step).run(handle, session))
            handle = done[-1].handle
            if print_after in ("all", step.name):
                shown.append(f"# after {step.stage}\n{print_state(handle.value)}")
        if last:
            match last.word:
                case "accept":
                    end = build_steps.accept(last.backend, last.package)
                case "schedule-kernels":
                    end = build_steps.schedule_kernels(last.backend, last.package)
                case _:
                    end = build_steps.emit(last.backend, last.package, file.stem)
            done.append(end.run(handle, session))
            handle = done[-1].handle
    if done and not space.terminal.quiet:
        space.terminal.log(step_table(done))
    text = print_state(handle.value)
    data = {"steps": [step_json(step) for step in done], "kind": handle.kind, "text": text}
    is_shown = bool(shown) and (print_after == "all" or bool(steps and steps[-1].name == print_after))
    return Outcome("\n".join(shown if is_shown and not last else [*shown, text]), data)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = (problem.strerror if isinstance(problem, OSError) else None) or "it is not UTF-8 text"
        raise error(
            "unreadable-file",
            f"{file} cannot be read: {reason}",
            location=Location(str(file)),
            help="give a file in dlc's own text; dlc show MODEL --text prints one",
            exit_code=ExitCode.USAGE,
        ) from None


def _wanted(text: str, pipeline: str | None, file: Path) -> tuple[str, str, str]:
    """(pipeline, where it comes from, step of a backend that comes last or "").

    A crash file of a backend has a step such as `emit c{…}` in place of a pipeline.
    """
    if pipeline is not None:
        return pipeline, "--pipeline", ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_RUN):
            found = line.removeprefix(_RUN).strip()
            if found.startswith(tuple(f"{word} " for word in _BACKEND)):
                return "", f"{file}:{number}", found
            return found, f"{file}:{number}", ""
    raise error(
        "no-pipeline",
        f"{file} has no `{_RUN}` line",
        help="say what to run with -p",
        exit_code=ExitCode.USAGE,
    )


def _parse(space: Workspace, text: str, file: Path) -> Graph | Plan:
    from dlc.driver.dlc_text import random_constants
    from dlc.driver.state_text import op_classes, parse_state, stand_in

    absent: dict[str, Type] = {}

    def constant(type: Type, digest: str) -> Tensor:
        absent[digest] = type
        return stand_in(type, digest)

    state = parse_state(text.partition(_EXPECTED)[0], op_classes(space.registry), constant, str(file))
    if absent and not space.terminal.quiet:
        # Not a warning: what is printed names the constants by their digests again, unless a pass computes with them.
        space.terminal.tell(
            replace(random_constants(absent), severity="note", location=Location(str(file)), notes=(), help="")
        )
    return state


def _steps(space: Workspace, wanted: Pipelined, options: BuildOptions) -> tuple[Step, ...]:
    from dlc.driver.pipeline import expand_pipeline, qualified_pipelines, resolve_steps

    specs = expand_pipeline(wanted, qualified_pipelines(space.registry, space.config), most=space.config.budget.passes)
    return resolve_steps(space.registry, specs, settings=options.settings, without=options.without)


def _backend(space: Workspace, last: str, origin: str, foreign: str) -> _Last:
    """What a step of a backend, as `emit c{…}`, asks for."""
    word, _, target = last.partition(" ")
    spec = Spec.parse(target, origin, foreign)
    return _Last(word, space.registry.backend(spec), space.registry.find("backends", spec).package)
