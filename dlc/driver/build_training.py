"""A training program, compiled: one pipeline for each of its functions, and what the backend makes of all.

    model → parse ┬ autodiff{give=predict}   → … → plan ┐
                  ├ autodiff{give=evaluate}  → … → plan ├ bundle → emit → build
                  ├ autodiff{give=gradients} → … → plan │
                  └ autodiff{give=update}    → … → plan ┘

Each step is one of `Session.step`, so a change of the optimizer leaves all but `update` and what follows it valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from dlc.api.artifact import Artifact
from dlc.api.backend import Backend
from dlc.api.frontend import Frontend
from dlc.api.function_names import IGNORED, FunctionName
from dlc.api.source import Source
from dlc.api.training import Bundle, digest_of
from dlc.base.diagnostics import DlcError
from dlc.base.report import Report
from dlc.cache.step_record import Handle, StepRecord
from dlc.driver.build import Build, apply, check_stop, compile_artifact, equipped, parse, passes
from dlc.driver.session import Session, Stage
from dlc.passes.autodiff import Autodiff
from dlc.training.step.bundling import make_bundle, memory_of

if TYPE_CHECKING:
    from dlc.api.plan import Plan
    from dlc.driver.pipeline import Recipe, Step
    from dlc.graph.graph import Graph

Plans = Mapping[FunctionName, StepRecord["Plan"]]


def compile_training(
    source: Source,
    frontend: Frontend,
    frontend_package: str,
    recipe: Recipe,
    session: Session,
    *,
    stop_after: str = "",
    on_step: Callable[[StepRecord[Any]], None] | None = None,
) -> Build:
    """As `compile_source`, for a recipe that is one of training.

    Args:
        stop_after: Name of the step behind which every function stops; "" runs all.
        on_step: Told every step's result as it comes.
    """
    assert recipe.training is not None
    check_stop(recipe, stop_after)
    done: list[StepRecord[Any]] = []
    steps: dict[FunctionName, StepRecord[Graph]] = {}

    def told(result: StepRecord[Any], function: str = "") -> StepRecord[Any]:
        done.append(replace(result, function=function))
        if on_step is not None:
            on_step(done[-1])
        return result

    def compiled(function: FunctionName, step: Step) -> StepRecord[Any]:
        at = steps[function] = told(apply(_for(step, function), parsed.handle, session), function)
        for name, run in passes(recipe, session) if stop_after != step.name else ():
            at = told(run(at.handle), function)
            if name == stop_after:
                break
        return at

    parsed = told(parse(source, frontend, frontend_package, session))
    stage = _autodiff(recipe.training)
    if stop_after == "parse":
        return Build(tuple(done))
    found = {name: compiled(name, recipe.training) for name in recipe.order}
    ends: Plans = {name: found[name] for name in recipe.functions}
    if stop_after in ("", "emit", "build"):
        bundle = joined(ends, parsed, steps["predict"], stage, source, frontend)
        emitted = told(emit_training(recipe.backend, recipe.backend_package, bundle, session, source.title))
        if stop_after != "emit":
            told(compile_artifact(recipe.backend, recipe.backend_package, emitted.handle, session))
    return Build(tuple(done))


def joined(
    ends: Plans,
    parsed: StepRecord[Graph],
    predict: StepRecord[Graph],
    stage: Autodiff,
    source: Source,
    frontend: Frontend,
) -> Handle[Bundle]:
    """The bundle of these plans, made when somebody asks; its digest is that of its parts.

    The key of the step that parsed the model stands for all that its template depends on, apart from the names of the
    parameters: those are inputs that `predict` has before its pipeline, which may store them in another way.
    """
    recipe = stage.training()
    told = {"loss": str(stage.loss), "optimizer": str(stage.optimizer), "updates": stage.updates}
    parts = {f"function {name}": end.handle.digest for name, end in ends.items()}
    parts |= {f"told {key}": value for key, value in told.items()}
    parts |= {"model": parsed.key.digest, "accumulate": str(recipe.accumulate), "label": recipe.label, "of": stage.of}
    labels = dict.fromkeys(label for end in ends.values() for label, _ in end.handle.part_digests)
    part_digests = tuple(
        (label, digest_of({name: dict(end.handle.part_digests).get(label, "") for name, end in ends.items()}))
        for label in labels
    )

    def load() -> Bundle:
        plans: dict[FunctionName, Plan] = {name: end.handle.value for name, end in ends.items()}
        names = [i.name for i in predict.handle.value.inputs if i.role in ("weight", "state")]
        return make_bundle(plans, recipe, stage.of, _template(source, frontend, names), told)

    return Handle("bundle", digest_of(parts), load, part_digests)


def emit_training(
    backend: Backend, package: str, given: Handle[Bundle], session: Session, title: str
) -> StepRecord[Artifact]:
    """Bundle → program text and data, with the figures of its memory."""
    from dlc.driver.legality import check_regions

    def run(bundle: Bundle, report: Report) -> Artifact:
        plans = [function.plan for function in bundle.functions.values()]
        for plan in plans:
            check_regions(plan, backend)
        if not bundle.template[1]:
            report.note("the model cannot be written back with its new parameters: a checkpoint holds them")
        artifact = equipped(backend, package, session, title, report).emit_training(bundle, report)
        return replace(artifact, facts={**artifact.facts, **bundle.facts, **memory_of(bundle, artifact.facts)})

    extra = (("title", title), ("toolchain", backend.toolchain()))
    return session.step(Stage(f"emit {backend}", package, run, extra, f"emit {backend.brief}"), given)


def _for(step: Step, function: FunctionName) -> Step:
    """The step that makes one function; options that it does not depend on are left at their defaults."""
    stage = _autodiff(step)
    plain = {f.name: f.default for f in fields(stage) if f.name in IGNORED[function]}
    return replace(step, stage=replace(stage, **plain, give=function))


def _autodiff(step: Step) -> Autodiff:
    assert isinstance(step.stage, Autodiff)
    return step.stage


def _template(source: Source, frontend: Frontend, names: list[str]) -> tuple[str, bytes]:
    """(suffix, content); nothing where the frontend cannot write this model."""
    try:
        return source.suffix, frontend.template(source, names)
    except DlcError:
        return "", b""
