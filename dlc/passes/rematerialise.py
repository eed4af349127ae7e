"""rematerialise: steps of a plan are executed again, so that their results need not be kept until they are read.

    a = f(x); b = g(a); …; c = h(b, a)      →      a = f(x); b = g(a); …; a' = f(x) again 1; c = h(b, a')

A training step keeps what its forward pass computed until the backward pass reads it. `budget` is the extra work that
is allowed, in percent of the operations of all steps, and asks for the smallest peak; `memory` is the size that the
arena should have, and asks for the least extra work. Without either, nothing changes. Of a training program, a budget
is spent in the function that computes gradients, whose peak is the program's: the others would only get slower.
`functions=all` spends it in each. A size holds for each in any case, as all use the same arena. The order of first
executions is that of the plan. What is executed again gives the same bits: kernels depend on nothing but their
arguments, and random numbers of dropout on the number of the step. Outputs are computed once: a step that gives one is
not executed again, but where it can leave out just that. A step that reads an input is not executed again after an
output has been written over that input.

Up to 256 steps are searched (`dlc.placement`), and what is printed as optimal is proven for this order. Larger plans
follow a rule: what does not fit is dropped, first what costs least for its bytes and the time until it is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal

from dlc.api.function_names import FUNCTIONS, LEARNING
from dlc.api.passes import Level, Pass
from dlc.api.plan import Plan
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.report import Report
from dlc.graph.closed import unlimited, without_limit
from dlc.passes.executions import Executed, Executions
from dlc.passes.plan_memory import PlanMemory
from dlc.placement import Recomputation, least_cost, least_memory
from dlc.placement.recompute import SEARCHED
from dlc.spec import Bytes, option

_ORDERS = 4
"""Orders of first executions that are searched, each following from what was found in the one before."""

_OTHERS = frozenset(FUNCTIONS["final"] + FUNCTIONS["immediate"]) - LEARNING
"""Functions of a training program that have nothing to keep for a backward pass."""

_OTHER_BUDGETS = (Fraction(1, 16), Fraction(1, 4), 4, 16, 64)
"""Multiples of the budget that are searched as well: with less and with more to spend, other orders are found."""

_MIDDLE = Fraction(1, 5)
"""Part of the work of all steps that is searched as well, whatever the budget is."""

_FEWER = 4
"""How many times fewer states a search with another budget visits."""

_TRIES = 4
"""Limits of live bytes that are tried for a size of the arena: offsets may leave gaps."""


@dataclass(frozen=True)
class Rematerialise(Pass[Plan, Plan]):
    """Execute steps again instead of keeping results: a plan with an order  →  a plan with a smaller peak."""

    name: ClassVar[str] = "rematerialise"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "plan"
    level_out: ClassVar[Level] = "plan"
    budget: float = option(
        0.0, "extra work for the smallest peak, in percent of all operations; 0: nothing is executed again", low=0
    )
    memory: Bytes | None = option(None, "maximum size of the arena, which is met with the least extra work")
    align: int = option(64, "alignment of every offset, in bytes, as that of plan-memory", low=1)
    functions: Literal["training", "all"] = option(
        "training", "functions of a training program in which the budget is spent: the one with the gradients, or all"
    )
    states: int = option(10000, "maximum number of states that each search visits", low=1)

    def __post_init__(self) -> None:
        """Refuse two wishes at once."""
        if self.budget and self.memory is not None:
            message = "rematerialise: budget and memory exclude each other"
            raise error("no-effect", message, help="give one of them", exit_code=ExitCode.USAGE)

    def in_function(self, function: str) -> Rematerialise:
        """Without its budget, where that would make a function slower and the program no smaller."""
        return replace(self, budget=0.0) if self.functions == "training" and function in _OTHERS else self

    def run(self, state: Plan, report: Report) -> Plan:
        """The plan, with steps that are executed again.

        Raises:
            DlcError: (LIMIT) no plan within the memory was found, with what is in use at the peak of the least one.
        """
        if not self.budget and self.memory is None:
            return state
        if state.regions or state.facts.get("repeated_steps"):
            before = "plan-memory" if state.regions else self.name
            message = f"rematerialise works on a plan as order gives it, and {before} ran before it"
            help = "put it between order and plan-memory, once"
            raise error("pipeline-level", message, help=help, exit_code=ExitCode.USAGE)
        if free := without_limit(state.graph):
            raise unlimited(free, "rematerialise needs a limit of every size")
        given = Executions.of(state)
        if self.memory is None:
            made = self._least_memory(given, math.floor(given.total * self.budget / 100))
        else:
            made = self._within(given, self.memory)
        return self._told(given, made, report)

    def _within(self, given: Executions, memory: int) -> Executed:
        """The cheapest plan found whose arena takes at most so many bytes."""
        arena = self._arena(given.plan)
        if arena <= memory:
            return Executed(given.plan)
        tasks, sizes = given.tasks(self.align), given.sizes(self.align)
        limit = memory
        for _ in range(_TRIES):

            def search(order: Sequence[int], limit: int = limit) -> Recomputation | None:
                return least_cost(tasks, sizes, given.costs, limit, order=order, state_limit=self.states)

            made = _settled(given, search, given.order, cheapest=True)
            if made is None:
                break
            arena = self._arena(made.plan)
            if arena <= memory:
                return made
            limit -= arena - memory
        # The search for the least peak follows other orders too, and often ends where that for a limit gives up.
        made = self._least_memory(given, given.total * len(given.order))
        if self._arena(made.plan) <= memory:
            return replace(made, proven=False)
        raise self._too_large(given, made, memory)

    def _least_memory(self, given: Executions, budget: int) -> Executed:
        """The plan with the smallest peak found.

        A step that only moves costs a search its whole work, so other budgets lead to other orders, and what a search
        with more to spend finds often costs less.
        """
        tasks, sizes = given.tasks(self.align), given.sizes(self.align)

        def settled(allowed: int, order: Sequence[int], states: int = self.states) -> Executed:
            def search(order: Sequence[int]) -> Recomputation:
                return least_memory(tasks, sizes, given.costs, allowed, order=order, state_limit=states)

            made = _settled(given, search, order)
            assert made is not None
            return made

        found = [settled(budget, given.order)]
        if len(given.order) <= SEARCHED:
            most = given.total * len(given.order)
            others = {min(math.floor(factor * budget), most) for factor in _OTHER_BUDGETS}
            others = (others | {math.floor(_MIDDLE * given.total)}) - {budget}
            found += [settled(allowed, given.order, max(1, self.states // _FEWER)) for allowed in sorted(others)]
            orders = dict.fromkeys(made.order for made in found if made.order != given.order)
            found += [settled(budget, order) for order in orders]
        within = (made for made in found if made.cost <= budget)
        return min(within, key=lambda e: (Executions.of(e.plan).peak, e.cost))

    def _arena(self, plan: Plan) -> int:
        """Bytes with offsets."""
        return PlanMemory(align=self.align).run(plan, Report()).regions["arena"]

    def _told(self, given: Executions, made: Executed, report: Report) -> Plan:
        """The plan with its new figures, which are reported."""
        new, after = made.plan, Executions.of(made.plan).peak
        percent = 100 * made.cost / max(1, given.total)
        report.missed_as = "executed again"
        for step in made.again:
            report.missed(", ".join(new.graph.origin(step)) or "a step", f"gives {', '.join(map(str, step.types))}")
        proof = "optimal for this order" if made.proven else "best found, not proven"
        report.note(
            f"peak {given.peak:,} B → {after:,} B with {percent:.4g} % of extra work ({proof})"
            if made.again
            else f"nothing is executed again: peak {after:,} B ({proof})"
        )
        facts = {
            "order_peak": after,
            "order_optimal": int(not made.again and bool(given.plan.facts.get("order_optimal", 0))),
            "repeated_steps": len(made.again),
            "extra_work_percent": f"{percent:.4f}",
            "repeated_optimal": int(made.proven),
        }
        return replace(new, facts={**new.facts, **facts})

    def _too_large(self, given: Executions, made: Executed, memory: int) -> DlcError:
        """The error that names the least peak that was found, and who holds the most memory there."""
        percent = 100 * made.cost / max(1, given.total)
        proof = "no execution of steps in this order needs less" if made.proven else "the least that was found"
        try:
            planned = PlanMemory(align=self.align, limit=memory).run(made.plan, Report())
        except DlcError as problem:
            notes = problem.diagnostics[0].notes[1:]
            arena = self._arena(made.plan)
        else:
            notes, arena = (), planned.regions["arena"]
        return error(
            "memory-limit",
            f"rematerialise: no plan within {memory} bytes was found",
            notes=(
                f"the arena takes {self._arena(given.plan)} bytes without extra work",
                f"{arena} bytes with {percent:.4g} % of extra work: {proof}",
                *notes,
            ),
            help="use a smaller batch or input, or another policy of the pass order",
            exit_code=ExitCode.LIMIT,
        )


def _settled(
    given: Executions,
    search: Callable[[Sequence[int]], Recomputation | None],
    order: Sequence[int],
    cheapest: bool = False,
) -> Executed | None:
    """The best that a search finds for an order, or for one that follows from what it found.

    That is the cheapest, or else the one with the smallest peak.

    Where nobody reads a first execution before the next one, the first one is left out: the step only moves, and that
    costs nothing. Searched again in the order that this gives, the budget is free for others.
    """
    best: tuple[int, int, list[int], bool] | None = None
    for _ in range(_ORDERS):
        found = search(order)
        if found is None:
            break
        steps = given.read(found.steps)
        cost = given.extra(steps)
        made = *((cost, found.peak) if cheapest else (found.peak, cost)), steps, found.proven
        if best is not None and made[:2] >= best[:2]:
            break
        best, before, order = made, order, tuple(dict.fromkeys(steps))
        if tuple(before) == order:
            break
    return None if best is None else replace(given.executed(best[2]), proven=best[3])
