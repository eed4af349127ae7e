"""Checks of passes and rules: equal values on random graphs and the plugin's own, and something to do on these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc.api.passes import ProgramPass
from dlc.api.plan import Plan
from dlc.base.diagnostics import DlcError
from dlc.base.report import Report
from dlc.graph import Graph, evaluate, verify
from dlc.spec import Spec
from dlc.verify.compare import Tolerance, compare
from dlc.verify.kit.check import Check, Skipped, Wrong, tried
from dlc.verify.kit.random_graphs import drawn, feeds, random_graph
from dlc.verify.kit.subject import in_words

if TYPE_CHECKING:
    from dlc.api.passes import AnyPass
    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject

GRAPHS, OPS = 24, 12
"""Random graphs, and ops that each has at most."""
NEAR = Tolerance(1e-7, 1e-7)
"""How far a value may be from what it was, in double precision."""
SINGLE = Tolerance(1e-4, 1e-5)
"""The same for graphs of the plugin that compute in 32 bits."""


def _graphs(subject: Subject) -> Iterator[tuple[str, Graph]]:
    """The plugin's own graphs, then random ones, each with a name for messages."""
    for k, graph in enumerate(subject.samples.graphs):
        yield f"samples.graphs[{k}]", graph
    for k in range(GRAPHS * subject.rounds):
        seed = subject.seed + k
        yield drawn(seed), random_graph(seed, OPS)


def _before(subject: Subject, stage: AnyPass, graph: Graph) -> Any:
    """What the pass takes: the graph, or what it becomes."""
    state: Any = graph
    route = {"ops": (), "kernels": ("lower",), "plan": ("lower", "order")}[stage.level_in]
    for name in route:
        state = subject.registry.stage(Spec(name)).run(state, Report())
    return state


def _stages(subject: Subject, entry: Entry) -> Iterator[tuple[str, AnyPass]]:
    for spec in subject.specs(entry):
        stage = subject.registry.stage(spec)
        if not stage.computes_other and not isinstance(stage, ProgramPass):
            yield str(stage), stage


def _graph_of(state: object, stage: AnyPass) -> Graph:
    if isinstance(state, Plan):
        return state.graph
    if not isinstance(state, Graph):
        raise Wrong(f"{stage} gives {type(state).__name__}, not a Graph or Plan", "return the rewritten state from run")
    return state


def keeps_values(subject: Subject, entry: Entry) -> str:
    """That what a pass leaves computes what came, verifies, and has the same inputs and outputs."""
    count = 0
    for text, stage in _stages(subject, entry):
        for name, graph in _graphs(subject):
            with tried(f"{text} on {name}"):
                state = _before(subject, stage, graph)
                after = _graph_of(stage.run(state, Report()), stage)
                level = "ops" if stage.level_out == "ops" else "kernels"
                _check_same(f"{text} on {name}", graph, after, level, subject.seed)
            count += 1
    if not count:
        raise Skipped("it computes something else on purpose (computes_other)")
    return f"{count} graphs"


def _check_same(what: str, graph: Graph, after: Graph, level: Any, seed: int) -> None:
    if problems := verify(after, level):
        raise Wrong(
            f"{what}: {problems[0].message}",
            "dlc debug repro shows such a graph; return ops of the types that were there",
        )
    if after.inputs != graph.inputs or after.names != graph.names:
        had, has = ([i.name for i in g.inputs] + list(g.names) for g in (graph, after))
        raise Wrong(f"{what}: inputs and outputs were {had}, they are {has}", "keep them: state.rewrite does")
    values = feeds(graph, seed)
    want, got = evaluate(graph, values), evaluate(after, values)
    for name, expected in want.items():
        if (got[name].dtype, got[name].shape) != (expected.dtype, expected.shape):
            was, now = (f"{a.dtype}{list(a.shape)}" for a in (expected, got[name]))
            raise Wrong(f"{what}: {name} was {was}, it is {now}", "keep the types of outputs")
        found = compare(name, got[name], expected, NEAR if expected.dtype == np.float64 else SINGLE)
        if not found.ok:
            raise Wrong(
                f"{what}: {name} differs in {found.wrong} of {found.size} elements, by {found.max_abs:.3g}",
                "dlc debug bisect-passes finds the change at fault; ask report.applies before each",
            )


def is_pure(subject: Subject, entry: Entry) -> str:
    """That a second run gives the same and leaves its argument as it was; idempotent passes change nothing more."""
    count = 0
    for text, stage in _stages(subject, entry):
        for name, graph in _graphs(subject):
            with tried(f"{text} on {name}"):
                _check_pure(f"{text} on {name}", subject, stage, _before(subject, stage, graph))
            count += 1
    if not count:
        raise Skipped("it computes something else on purpose (computes_other)")
    return f"{count} graphs"


def _check_pure(what: str, subject: Subject, stage: AnyPass, state: Any) -> None:
    digest = _graph_of(state, stage).digest
    once = stage.run(state, Report())
    if _graph_of(state, stage).digest != digest:
        raise Wrong(f"{what} changes the graph that it is given", "build a new one: state.rewrite")
    again = stage if _has_rules(subject) else type(stage).from_spec(stage.to_spec())
    if again.run(state, Report()) != once:
        raise Wrong(
            f"{what} gives another result the second time",
            "run must depend on its fields and the state only: no counters, random numbers, or order of sets",
        )
    if stage.idempotent and stage.run(once, Report()) != once:
        raise Wrong(
            f"{what}: a second run changes more, idempotent says it does not", "mend it, or leave idempotent out"
        )


def _has_rules(subject: Subject) -> bool:
    return bool(subject.registry.tables["rules"])


def acts(subject: Subject, entry: Entry) -> str:
    """That it changes one of the plugin's own graphs: a pass that never applies passes every other check."""
    if not subject.samples.graphs:
        raise Wrong(
            f"there is no graph on which {entry.name} has something to do",
            "add one to graphs of the Samples of dlc_samples",
        )
    for _, stage in _stages(subject, entry):
        for k, graph in enumerate(subject.samples.graphs):
            state = _before(subject, stage, graph)
            if stage.level_out != stage.level_in:
                return "it changes the level"
            if stage.run(state, Report()) != state:
                return f"it changes samples.graphs[{k}]"
    if not any(True for _ in _stages(subject, entry)):
        raise Skipped("it computes something else on purpose (computes_other)")
    raise Wrong(
        f"{entry.name} changes none of the {len(subject.samples.graphs)} graphs of the samples",
        "add a graph that it is for to the Samples of dlc_samples, or mend its pattern",
    )


def rule_holds(subject: Subject, entry: Entry) -> str:
    """That an equation gives ops of the same type and value, and applies to one of the plugin's graphs."""
    from dlc.passes.simplify import Simplify

    rule, applied = entry.load(), 0
    simplify, without = Simplify().with_rules([rule]), Simplify()
    for name, graph in _graphs(subject):
        report = Report()
        try:
            with tried(f"{entry.name} on {name}"):
                after = simplify.run(graph, report)
        except DlcError as problem:
            raise Wrong(
                f"{entry.name} on {name}: {in_words(problem)}", "return an op of the type that was there"
            ) from None
        if report.counts.get(rule.name, 0):
            applied += 1
            _check_same(f"{entry.name} on {name}", without.run(graph, Report()), after, "ops", subject.seed)
    if not applied:
        raise Wrong(
            f"{entry.name} applies to no graph", "add one that it is for to graphs of the Samples of dlc_samples"
        )
    return f"applies to {applied} graphs"


CHECKS = (
    Check("pass-values", "graphs compute the same afterwards, and verify", keeps_values, "passes"),
    Check("pass-pure", "a second run gives the same result", is_pure, "passes"),
    Check("pass-acts", "it changes one of the plugin's own graphs", acts, "passes"),
    Check("rule-values", "both sides of an equation have one value, and it applies somewhere", rule_holds, "rules"),
)
