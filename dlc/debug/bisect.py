"""The first step of a build whose state computes something else than the model: by halves, then inside of the step.

    parse ok … simplify ok, expand wrong … plan-memory wrong     →  expand
    expand: 12 applications; after 6 ok, after 7 wrong           →  its application 7

Every state is evaluated by itself on the same inputs, so nothing is compiled for it. Inside of a step, all applications
after the first so many are withheld (`Report.applies`), as `-opt-bisect-limit` of LLVM does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlc.api.inside import run_inside
from dlc.api.passes import AnyPass
from dlc.base.report import Report
from dlc.base.types import Array
from dlc.debug.states import Closeness, StepState
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.verify.compare import Comparison
from dlc.verify.steps import FAILS, evaluated, interface_change

Verdict = bool | None
"""Whether the fault shows; None where that cannot be told."""


@dataclass(frozen=True)
class Application:
    """One change that a step made among many."""

    number: int
    """From 1, in the order in which they are made."""
    total: int
    what: str
    """The rule, or the kind of op that was changed."""
    op: str
    nodes: tuple[str, ...]
    """Of the model, that the op comes from, where known."""


@dataclass(frozen=True)
class WrongStep:
    """The first step after which the result is wrong."""

    before: StepState | None
    """The last state that is right; None where the first of all is wrong already."""
    state: StepState
    unknown: tuple[tuple[str, str], ...]
    """(step, why) of states between the two that cannot be evaluated: the fault may be theirs."""
    right: Comparison | None
    """The output in the last state that is right: how far it is from the reference."""
    wrong: Comparison | None
    """The same in the first that is wrong; None where it cannot be evaluated at all."""
    reason: str = ""
    """Why it cannot."""
    application: Application | None = None


def halves(count: int, shows: Callable[[int], Verdict]) -> tuple[int, int]:
    """(last without the fault, first with it): of `count` things the first has none, the last has it."""
    low, high, unknown = 0, count - 1, set[int]()
    while middle := [k for k in range(low + 1, high) if k not in unknown]:
        k = middle[len(middle) // 2]
        found = shows(k)
        if found is None:
            unknown.add(k)
        elif found:
            high = k
        else:
            low = k
    return low, high


@dataclass
class StateBisection:
    """Evaluates states against a reference.

    Attributes:
        feeds: Inputs by name.
        want: Outputs by name, as they should be.
        close: How far from that they may be.
        tell: Told what is evaluated now.
    """

    feeds: Mapping[str, Array]
    want: Mapping[str, Array]
    close: Closeness
    tell: Callable[[str], object] = str
    _found: dict[str, Comparison | str] = field(default_factory=dict[str, Comparison | str])

    def judge(self, state: Any, what: str) -> Comparison | str:
        """The output that is furthest off, or why there are none."""
        if state.digest not in self._found:
            self.tell(f"evaluate {what}")
            values = evaluated(state, self.feeds)
            self._found[state.digest] = values if isinstance(values, str) else self.close.worst(values, self.want)
        return self._found[state.digest]

    def first(self, chain: Sequence[StepState]) -> WrongStep | None:
        """The first wrong step of a function; None where its last state is right, or nothing can be told."""
        found = {k: self._of_step(chain, k) for k in {0, len(chain) - 1}}
        if _shows(found[0]):
            return self._step(None, chain[0], (), found, 0)
        if not _shows(found[len(chain) - 1]):
            return None

        def shows(k: int) -> Verdict:
            found[k] = self._of_step(chain, k)
            return _shows(found[k])

        low, high = halves(len(chain), shows)
        between = tuple((chain[k].name, str(found[k])) for k in range(low + 1, high))
        return self._step(chain[low], chain[high], between, found, high, low)

    def _of_step(self, chain: Sequence[StepState], k: int) -> Comparison | str:
        if reason := interface_change(chain[0].graph, chain[k].graph):
            return reason
        return self.judge(chain[k].value, chain[k].name)

    def _step(
        self,
        before: StepState | None,
        state: StepState,
        between: tuple[tuple[str, str], ...],
        found: Mapping[int, Comparison | str],
        high: int,
        low: int = -1,
    ) -> WrongStep:
        wrong, right = found[high], found.get(low)
        return WrongStep(
            before,
            state,
            between,
            right if isinstance(right, Comparison) else None,
            wrong if isinstance(wrong, Comparison) else None,
            wrong if isinstance(wrong, str) else "",
            self._application(before, state) if before is not None and not between else None,
        )

    def _application(self, before: StepState, state: StepState) -> Application | None:
        if state.step is None or not isinstance(before.value, Graph):
            return None
        stage, given = state.step.stage, before.value

        def made(limit: int | None) -> tuple[Any, Withholding]:
            report = Withholding(limit=limit)
            return run_inside(stage, given, report), report

        def shows(k: int) -> Verdict:
            return _shows(self.judge(made(k)[0], f"{state.name} with {k} applications"))

        return first_application(made(None)[1], given, shows)


def first_application(whole: Withholding, given: Graph, shows: Callable[[int], Verdict]) -> Application | None:
    """The first application of a step after which the fault shows; None where it shows without any.

    Args:
        whole: The report of the step with all applications.
        given: What the step got.
        shows: Whether the fault shows after so many.
    """
    total = len(whole.made)
    if not total or shows(0) is not False:
        return None
    _, number = halves(total + 1, shows)
    what, subject = whole.made[number - 1]
    op = subject if isinstance(subject, Op) else None
    return Application(number, total, what, "" if op is None else repr(op), _nodes(given, op))


@dataclass
class Withholding(Report):
    """A report that says no to all applications after the first so many, and keeps those that were made."""

    limit: int | None = None
    """None: all are made."""
    made: list[tuple[str, object]] = field(default_factory=list[tuple[str, object]])

    def applies(self, what: str, subject: object) -> bool:
        """See `Report.applies`."""
        if self.limit is not None and len(self.made) >= self.limit:
            return False
        self.made.append((what, subject))
        return True


class Withheld:
    """A pass, for one run, that makes only the first so many of its applications; its text says so, and so do keys."""

    def __init__(self, stage: AnyPass, limit: int) -> None:
        """`stage` as it is, but for its applications."""
        self._stage, self._limit, self._report = stage, limit, Withholding(limit=limit)

    def run(self, state: Any, report: Report) -> Any:
        """What the pass makes of a state, and then of the graphs inside of it; `report` is not used."""
        del report
        return self._stage.run(state, self._report)

    def __str__(self) -> str:
        return f"{self._stage} applications={self._limit}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)


def _shows(found: Comparison | str) -> Verdict:
    if isinstance(found, str):
        return True if found.startswith(FAILS) else None
    return not found.ok


def _nodes(graph: Graph, op: Op | None, depth: int = 4) -> tuple[str, ...]:
    """The nodes that an op comes from, or, of one that the step itself made, the nearest of its operands."""
    level = [] if op is None else [op]
    for _ in range(depth):
        if names := tuple(dict.fromkeys(name for x in level for name in graph.origin(x))):
            return names
        level = [operand for x in level for operand in x.operands]
    return ()
