"""The states of a build in their order, by function, as far as they compute the same: what a bisection searches.

parse → simplify → lower → … → plan-memory
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlc.api.plan import Plan
from dlc.base.types import Array
from dlc.cache.step_record import Handle, StepRecord
from dlc.driver.pipeline import PARSE, ResolvedPipeline, Step
from dlc.graph.graph import Graph
from dlc.verify.compare import Comparison, compare
from dlc.verify.reference import tolerance_for


@dataclass(frozen=True)
class StepState:
    """What a step of a build gave."""

    number: int
    """Of the step in the build, as `--dump-ir` counts."""
    name: str
    """As `--stop-after` calls it."""
    spec: str
    """Its text."""
    function: str
    """Of a training program; "" of a program with one."""
    handle: Handle[Any]
    step: Step | None = None
    """The pass of the pipeline; None of what a frontend or a backend does."""
    passed: int = 0
    """How many passes of the function's pipeline have run."""

    @property
    def value(self) -> Graph | Plan:
        """The state itself."""
        return self.handle.value

    @property
    def graph(self) -> Graph:
        """The state, or what it is a plan of."""
        value = self.value
        return value.graph if isinstance(value, Plan) else value

    @property
    def file(self) -> str:
        """What `--dump-ir all` calls the state."""
        return f"{self.number:03}-{f'{self.function}-' * bool(self.function)}{self.name}.dlc"


def chains(records: Sequence[StepRecord[Any]], pipeline: ResolvedPipeline) -> list[list[StepState]]:
    """For each function the states that compute the same, in order; steps that change nothing are left out.

    A step that computes something else by design, as gradients do, begins anew.
    """
    steps = {function.name: function.steps for function in pipeline.functions}
    passed = dict.fromkeys(steps, 0)
    found: dict[str, list[StepState]] = {}
    for number, record in enumerate(records):
        if record.handle.kind not in (Graph.kind, Plan.kind):
            continue
        name = record.name if number else PARSE
        step = next(iter(steps.get(record.function, ())[passed.get(record.function, 0) :]), None)
        if step is not None and str(step.stage) == record.spec:
            passed[record.function] += 1
        else:
            step = None
        done = passed.get(record.function, 0)
        state = StepState(number, name, record.spec, record.function, record.handle, step, done)
        chain = found.get(record.function)
        if chain is None:
            chain = found[record.function] = list(found.get("", ()))
        if state.step is not None and state.step.stage.computes_other:
            chain.clear()
        if not chain or chain[-1].handle.digest != state.handle.digest:
            chain.append(state)
    if len(found) > 1:
        found.pop("", None)  # the step that read the model for all of them
    return list(found.values())


@dataclass(frozen=True)
class Closeness:
    """How far values may be from what they should be, and whether they are."""

    relative: float | None = None
    """As for `tolerance_for`."""
    absolute: float | None = None
    backend: tuple[float, float] | None = None

    def compared(self, pairs: Iterable[tuple[str, Array, Array]]) -> list[Comparison]:
        """Each of (name, value, what it should be); two shapes or types are as far apart as can be."""
        return [self._one(*pair) for pair in pairs]

    def _one(self, name: str, got: Array, want: Array) -> Comparison:
        tolerance = tolerance_for("debug", want, self.relative, self.absolute, self.backend)
        if got.shape == want.shape and got.dtype == want.dtype:
            return compare(name, got, want, tolerance)
        infinite = float("inf")
        return Comparison(name, infinite, infinite, 0, 0.0, want.size or 1, want.size, tolerance, (0,) * want.ndim)

    def worst(self, got: Mapping[str, Array], want: Mapping[str, Array]) -> Comparison:
        """Of the outputs that both have, the first that is wrong, else the one with the largest error."""
        found = self.compared((name, got[name], want[name]) for name in want if name in got)
        return next((c for c in found if not c.ok), max(found, key=lambda c: c.max_abs))
