"""Whether the steps of a build keep what is computed: the state before and after each, on the same random inputs.

    parse → simplify → lower → … → plan-memory        the outputs of each are those of the one before it

Inputs are drawn from a seed: data and labels as for `dlc run`, weights and states as they start, where that is known.
A plan runs in the order of its steps and in the places of its slots. Steps that compute something else by design, such
as gradients, are not compared; the steps behind them are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from zlib import crc32

import numpy as np

from dlc.api.plan import Plan
from dlc.api.program import Port
from dlc.base.types import Array
from dlc.graph.closed import without_limit
from dlc.graph.evaluate import evaluate
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input
from dlc.graph.tensor import Tensor
from dlc.runtime.feeds import random_feeds
from dlc.verify.compare import Comparison, compare
from dlc.verify.plan_run import run_plan
from dlc.verify.reference import tolerance_for

MOST_POINTS = 1 << 28
"""Points of the kernels of a state that are evaluated: numpy takes about half a minute for so many."""

FAILS = "its evaluation fails"
"""What the reason begins with why a state that should have values has none."""

Values = Mapping[str, Array]


@dataclass(frozen=True)
class Checked:
    """What is known of one step.

    Attributes:
        step: Its spec.
        function: Function of a training program that it belongs to, or "".
        verdict: "same": all outputs are; "changed": not all are; "skipped": they cannot be compared.
        reason: Why not; what keeps a changed step's outputs from being computed; what a comparison cannot tell.
        outputs: How far each output is from what it was; none where nothing was evaluated, as of a step that gave back
            what it got.
    """

    step: str
    function: str
    verdict: Literal["same", "changed", "skipped"]
    reason: str = ""
    outputs: tuple[Comparison, ...] = ()
    worst: tuple[str, str] = ("", "")
    """The worst element of the first output that is wrong, before and after."""


@dataclass
class StepChecker:
    """Follows a build: every state that a step gives is compared with the one before."""

    seed: int = 0
    tell: Callable[[str], object] = str
    """Told what is evaluated now."""
    _before: dict[str, Graph | Plan] = field(default_factory=dict[str, Graph | Plan])
    _values: dict[str, Values | str] = field(default_factory=dict[str, "Values | str"])

    def see(self, step: str, function: str, state: Any, other: bool = False) -> Checked | None:
        """What is known of the step that gave `state`; None of what is no state, or the first of all.

        Args:
            step: Spec of the step.
            function: See `Checked`; the first step of a function follows on those that serve all, whose name is "".
            state: What it gave, perhaps from the cache.
            other: Whether it computes something else by design.
        """
        if not isinstance(state, Graph | Plan):
            return None
        key = function if function in self._before else ""
        before, self._before[function] = self._before.get(key), state
        if before is None or other:
            self._values.pop(function, None)
            reason = "computes something else than what it is given, by design"
            return None if before is None else Checked(step, function, "skipped", reason)
        if before.digest == state.digest:
            return Checked(step, function, "same")
        if reason := interface_change(_graph(before), _graph(state)):
            self._values.pop(function, None)
            return Checked(step, function, "skipped", reason)
        old = self._values.get(key) if key in self._values else self._evaluated(before, f"input of {step}")
        new = self._values[function] = self._evaluated(state, step)
        return _judged(step, function, old, new)

    def _evaluated(self, state: Graph | Plan, what: str) -> Values | str:
        """The outputs, or why there are none."""
        graph = _graph(state)
        if reason := obstacle(graph):  # open sizes, which no feeds have
            return reason
        self.tell(f"verify {what}")
        return _run(state, feeds_of(graph, self.seed))


def evaluated(state: Graph | Plan, feeds: Mapping[str, Array]) -> Values | str:
    """The outputs of a state by name, for its inputs by name; or why there are none."""
    return obstacle(_graph(state)) or _run(state, feeds)


def _run(state: Graph | Plan, feeds: Mapping[str, Array]) -> Values | str:
    """The outputs of a state without an obstacle, or how its evaluation fails."""
    try:
        return run_plan(state, feeds) if isinstance(state, Plan) else evaluate(state, feeds)
    # Ops of plugins are evaluated by code of plugins, which may break in any way.
    except Exception as problem:  # noqa: BLE001
        return f"{FAILS}: {type(problem).__name__}: {problem}"


def feeds_of(graph: Graph, seed: int) -> dict[str, Array]:
    """Values for the inputs of a graph by name; an input of another graph that has its name and type gets the same."""
    return {i.name: _feed(i, seed) for i in graph.inputs}


def _feed(i: Input, seed: int) -> Array:
    found = random_feeds((Port(i.name, i.type),), seed ^ crc32(i.name.encode()))[i.name]
    if i.initial is None:
        return found
    start = i.initial.array() if isinstance(i.initial, Tensor) else i.initial
    if i.role == "state":
        # Above what it starts with: moments may not be negative, and a count of steps is one in the first.
        start = start + (np.abs(found) * 0.1 if i.dtype.is_float else found + 1)
    return np.broadcast_to(np.asarray(start, i.dtype.numpy), i.shape)


def _graph(state: Graph | Plan) -> Graph:
    return state.graph if isinstance(state, Plan) else state


def interface_change(before: Graph, after: Graph) -> str:
    """How inputs or outputs of a graph differ from those of another; "" where they are the same."""
    for what, old, new in (
        ("inputs", _ports((i.name, i) for i in before.inputs), _ports((i.name, i) for i in after.inputs)),
        (
            "outputs",
            _ports(zip(before.names, before.outputs, strict=True)),
            _ports(zip(after.names, after.outputs, strict=True)),
        ),
    ):
        if changed := [name for name in {**old, **new} if old.get(name) != new.get(name)]:
            return f"it changes the {what} of the program: {', '.join(changed)}"
    return ""


def _ports(pairs: Iterable[tuple[str, Op]]) -> dict[str, str]:
    return {name: str(op.type) for name, op in pairs}


def obstacle(graph: Graph) -> str:
    """Why a graph cannot be evaluated here; "" where it can."""
    unknown = dict.fromkeys(op.text_name for op in graph.ops if not _is_defined(op))
    if unknown:
        return f"there is no reference of {', '.join(unknown)}"
    if free := without_limit(graph):
        return f"the size of {', '.join(s.name for s in free)} has no limit; a range (--dim) has one"
    points = sum(nest.points for op in graph.ops if isinstance(op, Call) for nest in op.body.nests)
    if points > MOST_POINTS:
        most = f"more than the {MOST_POINTS:,} that are evaluated"
        return f"its kernels have {points:,} points, {most}; a smaller input (--dim, --input) has fewer"
    return ""


def _is_defined(op: Op) -> bool:
    """Whether an op says what it computes, in one way or another."""
    kind = type(op)
    own = kind.evaluate is not Op.evaluate or kind.define is not Op.define
    return own or op.expansion is not None


def _judged(step: str, function: str, old: Values | str | None, new: Values | str) -> Checked:
    if old is None or isinstance(old, str):
        return Checked(step, function, "skipped", f"its input cannot be evaluated: {old}")
    if isinstance(new, str):
        broken = new.startswith(FAILS)
        return Checked(step, function, "changed" if broken else "skipped", new)
    found = tuple(compare(name, new[name], old[name], tolerance_for("step", old[name], None, None)) for name in old)
    wrong = next((c for c in found if not c.ok), None)
    if wrong is None:
        empty = [name for name in old if old[name].size and not np.isfinite(old[name]).any()]
        reason = f"no element of {', '.join(empty)} is finite, which says little" if empty else ""
        return Checked(step, function, "same", reason, found)
    values = (str(values[wrong.name][wrong.worst]) for values in (old, new))
    return Checked(step, function, "changed", outputs=found, worst=(next(values), next(values)))
