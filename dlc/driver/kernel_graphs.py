"""A build up to where schedules are chosen: graphs of kernels, and the passes that make programs of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc.base.diagnostics import ExitCode, error
from dlc.base.report import Report
from dlc.cache.step_record import StepRecord
from dlc.driver.pipeline import PARSE, ResolvedPipeline, Step
from dlc.driver.session import Session
from dlc.driver.steps import with_jobs
from dlc.graph.graph import Graph
from dlc.kernel.kernel import Kernel


def before_order(pipeline: ResolvedPipeline) -> tuple[str, tuple[Step, ...]]:
    """(the name of the step to stop after, the steps behind it).

    Raises:
        DlcError: (USAGE) the pipeline makes no plan.
    """
    at = next((k for k, step in enumerate(pipeline.steps) if step.orders), None)
    if at is None:
        message = "the pipeline has no step that orders kernels, so there are no schedules to choose"
        raise error("no-effect", message, help="leave out --pipeline, or end it with order", exit_code=ExitCode.USAGE)
    whole = [PARSE, *(step.name for step in pipeline.whole)]
    return whole[len(whole) - len(pipeline.steps) + at - 1], pipeline.steps[at:]


def cycles_of(kernels: Sequence[Kernel], pipeline: ResolvedPipeline, session: Session) -> dict[str, int]:
    """What each kernel is estimated to take with the schedule that is chosen for it, by digest."""
    backend = with_jobs(pipeline.backend, pipeline.backend_package, session, Report())
    return {k.digest: s.cycles for k, s in zip(kernels, backend.schedules(kernels), strict=True)}


def kernel_graphs(steps: Sequence[StepRecord[Any]]) -> list[Graph]:
    """The last graph of each function of a build that was stopped there."""
    last = {step.function: step for step in steps if step.handle.kind == Graph.kind}
    if len(last) > 1:
        last.pop("", None)  # the step that read the model for all of them
    return [step.handle.value for step in last.values()]
