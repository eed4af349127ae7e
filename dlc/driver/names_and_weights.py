"""States of builds without their names and weights, and with them again: see `dlc.graph.placeholders`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dlc.api.plan import Plan, parse_plan, plan_text
from dlc.base.table import TOKEN, Table
from dlc.graph.graph import Graph
from dlc.graph.placeholders import changed, literals, stand_in, with_names, with_placeholders, without_placeholders
from dlc.graph.tensor import Tensor


def put_back(state: Any, table: Table) -> Any:
    """A state with the names and weights of a table."""
    if isinstance(state, Graph):
        return without_placeholders(state, table)
    if not isinstance(state, Plan):
        return state
    graph = without_placeholders(state.graph, table)
    if not _same_ops(graph, state.graph):
        # Weights that a pass made are equal to others: steps would be one. They stay apart by their numbers.
        graph = with_names(state.graph, table)
    return _replanned(state, graph, table.text)


def numbered(state: Any) -> Any:
    """A state whose names are not known, with numbers in their place: `#17`."""

    def name(text: str) -> str:
        return TOKEN.sub(r"#\1", text)

    graph = getattr(state, "graph", state)
    if not isinstance(graph, Graph):
        return state
    named = changed(graph, name, lambda tensor: tensor)
    return _replanned(state, named, name) if isinstance(state, Plan) else named


def separated(state: Graph | Plan) -> tuple[Graph | Plan, Table]:
    """A state without its names and weights, and these."""
    if isinstance(state, Graph):
        return with_placeholders(state)
    graph, table = with_placeholders(state.graph)
    return _replanned(state, graph, str), table


def with_more(state: Graph | Plan, given: Table) -> tuple[Graph | Plan, tuple[Tensor, ...]]:
    """A state whose literal tensors have got numbers behind those of a table, and these tensors."""
    graph = state.graph if isinstance(state, Plan) else state
    found = literals(graph)
    if not found:
        return state, ()
    numbers = {digest: len(given.tensors) + k for k, digest in enumerate(found)}

    def tensor(of: Tensor) -> Tensor:
        return stand_in(of, numbers[of.digest]) if of.digest in numbers else of

    new = changed(graph, str, tensor)
    return (_replanned(state, new, str) if isinstance(state, Plan) else new), tuple(found.values())


def _same_ops(one: Graph, other: Graph) -> bool:
    pairs = zip(one.graphs, other.graphs, strict=False)
    return len(one.graphs) == len(other.graphs) and all(len(a.ops) == len(b.ops) for a, b in pairs)


def _replanned(plan: Plan, graph: Graph, text: Callable[[str], str]) -> Plan:
    """The plan on a graph that has the same ops in the same order."""
    if not _same_ops(graph, plan.graph):
        raise AssertionError("two ops of a plan are one without their names")
    found = parse_plan(graph, plan_text(plan))
    facts = {text(key): text(value) if isinstance(value, str) else value for key, value in found.facts.items()}
    return replace(found, facts=facts)
