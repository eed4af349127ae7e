"""`dlc debug bisect-passes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from dlc.api.inside import run_inside
from dlc.base.diagnostics import DlcError, ExitCode, error, escape, quote
from dlc.cli.debugging import (
    Asked,
    Subject,
    check_against,
    checker,
    comparison_json,
    comparison_text,
    expected,
    feeds_for,
    loaded,
    rows_text,
)
from dlc.cli.programs import call
from dlc.cli.terminal import Outcome
from dlc.debug.bisect import (
    Application,
    StateBisection,
    Withheld,
    Withholding,
    WrongStep,
    first_application,
    halves,
)
from dlc.debug.states import StepState, chains
from dlc.debug.suspect import first_tensor
from dlc.driver.pipeline import SCHEDULE
from dlc.graph.graph import Graph

if TYPE_CHECKING:
    from dlc.api.passes import AnyPass
    from dlc.debug.divergence import Divergence
    from dlc.driver.pipeline import Step
    from dlc.driver.prepare import Prepared
    from dlc.verify.compare import Comparison
    from dlc.verify.loops import CheckedLoops


@dataclass(frozen=True)
class Found:
    """Where a result becomes wrong, as far as that is known."""

    reference: str
    wrong: WrongStep | None = None
    """The step of the graphs."""
    program: Comparison | None = None
    """The program against the reference, where all graphs are right."""
    loops: CheckedLoops | None = None
    """The kernel whose loops are wrong, where that is the reason."""

    @property
    def is_fault(self) -> bool:
        """Whether anything is wrong."""
        return self.wrong is not None or (self.program is not None and not self.program.ok)


def search_steps(subject: Subject, asked: Asked) -> tuple[Found, Mapping[str, Any]]:
    """The first wrong step of a build, and the inputs and outputs it was judged by. Raises DlcError."""
    kind = check_against(asked.against, subject.chosen)
    with subject.terminal.progress() as line:
        artifact = subject.build()
        chosen, found = subject.chosen, None
        for chain in chains(subject.records, subject.prepared.pipeline):
            feeds = feeds_for(subject, chain[0].graph, asked)
            auto = asked.against == "auto"
            name, want = expected(subject, kind, auto, chain[0].graph, feeds)
            search = StateBisection(feeds, want, subject.close(asked), line.at)
            found = Found(name, search.first(chain))
            if found.wrong is not None or chosen.train is not None:
                if found.wrong is not None:
                    return found, {"feeds": feeds, "want": want, "chain": chain, "artifact": artifact}
                continue
            line.at("run the program")
            with loaded(subject, artifact) as (program, _):
                ports = {p.name for p in program.signature.inputs}
                got = call(program, {name: value for name, value in feeds.items() if name in ports})
            compared = subject.close(asked).worst(got, want)
            loops = None if compared.ok else _wrong_loops(subject, chain, line.at)
            found = Found(name, None, compared, loops)
            return found, {"feeds": feeds, "want": want, "chain": chain, "artifact": artifact}
    assert found is not None, "a build has a state"
    return found, {}


def bisect(subject: Subject, asked: Asked) -> Outcome:
    """What `dlc debug bisect-passes` says with a reference."""
    found, used = search_steps(subject, asked)
    if found.wrong is not None:
        tensor = None
        if found.wrong.application is None:
            path, close = Path(subject.chosen.model), subject.close(asked)
            tensor = first_tensor(found.wrong, path, used["feeds"], used["want"], close)
        return step_outcome(subject, found.wrong, found.reference, tensor)
    data: dict[str, Any] = {"reference": found.reference, "after": comparison_json(found.program)}
    if not found.is_fault:
        text = f"every step computes what {found.reference} does"
        rows = [("program", comparison_text(found.program))] if found.program else []
        return Outcome("\n".join([text, *rows_text(rows)]), {"found": False, **data})
    assert found.program is not None
    rows = [("after", comparison_text(found.program))]
    if found.loops is None:
        text = "every graph computes what it should, the program does not: what emit or build made of it is wrong"
        rows.append(("next", subject.line("debug first-divergence")))
        return Outcome("\n".join([text, *rows_text(rows)]), {"found": True, "step": "emit", **data}, ExitCode.MISMATCH)
    loops = found.loops
    text = f"{SCHEDULE} makes wrong loops of kernel {loops.kernel[:16]}: {loops.findings[0]}"
    rows += [("nodes", ", ".join(map(quote, loops.nodes))), ("schedule", escape(loops.schedule))]
    rows.append(("next", subject.line("build", "--schedule", f"{loops.kernel[:16]}=loops")))
    data |= {"kernel": loops.kernel, "nodes": list(loops.nodes), "schedule": loops.schedule}
    return Outcome("\n".join([text, *rows_text(rows)]), {"found": True, "step": SCHEDULE, **data}, ExitCode.MISMATCH)


def step_outcome(subject: Subject, found: WrongStep, reference: str, tensor: Divergence | None) -> Outcome:
    """A step, what it did or the first tensor that it made wrong, the numbers, and how to look at it."""
    state, before = found.state, found.before
    of = f" of {state.function}" if state.function else ""
    rows: list[tuple[str, str]] = []
    if state.step is not None and state.step.package != "dlc":
        rows.append(("plugin", state.step.plugin))
    if before is not None:
        rows.append(("previous", before.name))
    rows += [("not compared", f"{name}: {escape(why)}") for name, why in found.unknown]
    if found.application is not None:
        rows += _application_rows(found.application)
    if tensor is not None:
        nodes = f" of {', '.join(map(quote, tensor.nodes))}" if tensor.nodes else ""
        rows.append(("tensor", f"{tensor.op.text_name}{nodes}: {tensor.got:.6g} instead of {tensor.want:.6g}"))
    if found.right is not None:
        rows.append(("before", comparison_text(found.right)))
    rows.append(("after", comparison_text(found.wrong) if found.wrong else escape(found.reason)))
    rows.append(("show", _shown(subject, state, before)))
    text = f"{state.name}{of} gives the first wrong result (reference: {reference})"
    if found.unknown:
        text = f"the result is right after {before.name if before else ''} and wrong after {state.name}{of}"
    data = {
        "found": True,
        "reference": reference,
        "step": state.spec,
        "function": state.function,
        "previous": before.spec if before else "",
        "not_compared": [{"step": name, "reason": why} for name, why in found.unknown],
        "application": _application_json(found.application),
        "nodes": list(found.application.nodes if found.application else tensor.nodes if tensor else ()),
        "before": comparison_json(found.right),
        "after": comparison_json(found.wrong),
        "reason": found.reason,
    }
    return Outcome("\n".join([text, *rows_text(rows)]), data, ExitCode.MISMATCH)


def bisect_by_check(subject: Subject, command: str) -> Outcome:
    """The same with an oracle of the user's, which judges programs: of the first so many optional steps.

    Steps that lead from one level to the next always run. A program that cannot be built without a step tells nothing.
    """
    check = checker(command)
    pipeline = subject.prepared.pipeline
    optional = [step for step in pipeline.steps if _is_optional(step)]
    built: dict[int, str] = {}

    def part_with(kept: int) -> Prepared:
        dropped = optional[kept:]
        steps = tuple(step for step in pipeline.steps if not any(step is other for other in dropped))
        return replace(subject.prepared, pipeline=replace(pipeline, steps=steps, specs=()))

    def shows(kept: int) -> bool | None:
        try:
            return _checked(Subject(subject.space, subject.chosen, part_with(kept), subject.cache), check)
        except DlcError as problem:
            built[kept] = problem.diagnostics[0].message
            return None

    whole = shows(len(optional))
    if whole is None:
        raise error(
            "cannot-build",
            f"the whole program cannot be built: {built[len(optional)]}",
            help="dlc debug reduce finds a smaller model with the same error",
            exit_code=ExitCode.MODEL,
        )
    if not whole:
        return Outcome("--check: the fault does not show in the whole program", {"found": False, "step": ""})
    seen = ((k, shows(k)) for k in range(len(optional)))
    first, at_once = next(((k, found) for k, found in seen if found is not None), (0, True))
    if at_once:
        text = "the fault shows without optional passes: it is in what always runs, from reading the model to its build"
        rows = [("next", subject.line("debug bisect-passes"))]
        return Outcome("\n".join([text, *rows_text(rows)]), {"found": True, "step": ""}, ExitCode.MISMATCH)
    low, high = (first + k for k in halves(len(optional) - first + 1, lambda k: shows(first + k)))
    step, between = optional[high - 1], optional[low : high - 1]
    application = None if between else _application_by_check(subject, part_with(high), step, check)
    rows = [("passes", f"the fault shows with the first {high} of {len(optional)} optional passes, not with {low}")]
    rows += [("not compared", other.name) for other in between]
    rows += _application_rows(application) if application else []
    rows.append(("without", subject.line("build", "--without", step.name)))
    data = {
        "found": True,
        "step": str(step.stage),
        "number": high,
        "total": len(optional),
        "not_compared": [str(other.stage) for other in between],
        "application": _application_json(application),
    }
    text = f"{step.name} is the first pass with which the fault shows"
    return Outcome("\n".join([text, *rows_text(rows)]), data, ExitCode.MISMATCH)


def _application_by_check(
    subject: Subject, part: Prepared, step: Step, check: Callable[..., bool]
) -> Application | None:
    """The application of a pass with which the fault shows, of a program of one function."""
    if part.pipeline.program is not None:
        return None
    before = Subject(subject.space, subject.chosen, part, subject.cache)
    before.build()
    at = next(k for k, record in enumerate(before.records) if record.spec == str(step.stage))
    given = before.records[at - 1].handle.value
    if not isinstance(given, Graph):
        return None
    whole = Withholding()
    run_inside(step.stage, given, whole)

    def shows(limit: int) -> bool | None:
        stage = cast("AnyPass", Withheld(step.stage, limit))
        steps = tuple(replace(s, stage=stage) if s is step else s for s in part.pipeline.steps)
        limited = replace(part, pipeline=replace(part.pipeline, steps=steps))
        try:
            return _checked(Subject(subject.space, subject.chosen, limited, subject.cache), check)
        except DlcError:
            return None

    return first_application(whole, given, shows)


def _is_optional(step: Step) -> bool:
    """Whether programs can do without: what works on plans gives them their places."""
    stage = step.stage
    return stage.level_in == stage.level_out != "plan" and not stage.computes_other


def _checked(subject: Subject, check: Callable[..., bool]) -> bool:
    from dlc.runtime.install import install

    with TemporaryDirectory(prefix="dlc-") as made:
        install(subject.build(), Path(made))
        return check(made)


def _wrong_loops(subject: Subject, chain: Sequence[StepState], tell: Callable[[str], object]) -> CheckedLoops | None:
    from dlc.verify.loops import LoopChecker, has_loops

    backend = subject.prepared.pipeline.backend
    scheduled = next((s for s in reversed(chain) if s.name == SCHEDULE), None)
    if scheduled is None or not has_loops(backend):
        return None
    found = LoopChecker(backend, tell).see(scheduled.graph)
    return next((c for c in found if c.findings), None)


def _application_rows(found: Application) -> list[tuple[str, str]]:
    nodes = f" of {', '.join(map(quote, found.nodes))}" if found.nodes else ""
    return [("application", f"{found.number} of {found.total}: {found.what} at {escape(found.op)}{nodes}")]


def _application_json(found: Application | None) -> dict[str, Any] | None:
    if found is None:
        return None
    named = {"number": found.number, "total": found.total, "what": found.what, "op": found.op}
    return {**named, "nodes": list(found.nodes)}


def _shown(subject: Subject, state: StepState, before: StepState | None) -> str:
    files = [f"bisect/ir/{each.file}" for each in (before, state) if each is not None]
    looked = f"diff {' '.join(files)}" if before is not None else f"cat {files[0]}"
    return f"{subject.line('build', '--stop-after', state.name, '--dump-ir', 'all', '-o', 'bisect')} && {looked}"
