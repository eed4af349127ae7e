"""simplify: algebraic equations are applied until no equation applies any more.

    relu(clip(x, -1, 6))         → clip(x, 0, 6)
    batch_norm(conv(x, w), …)    → conv(x, w', b')       w', b' constant expressions
    transpose(transpose(x, p), q) → transpose(x, p∘q)

Equal ops are always one node, and ops without a consumer are not part of a graph, so common subexpressions and dead
code need no rule. Rules may change the rounding of results, as any reordering of a sum does. Rules that may change NaN,
infinities or the sign of zero are used with `fast` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import ClassVar, cast

from dlc.api.passes import Level, Pass
from dlc.api.rules import RewriteContext, Rule
from dlc.base.extents import Undecided
from dlc.base.report import Report
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.passes.rules import affine, arithmetic, clamps, compose, concat_rules, linear, movement, shuffle, sink_layout
from dlc.passes.splats import fold_splats
from dlc.spec import option

RULES: tuple[Rule, ...] = tuple(
    rule
    for table in (arithmetic, clamps, movement, concat_rules, sink_layout, shuffle, affine, linear, compose)
    for rule in table.RULES
)

# Rules shrink an op or bring it into a normal form, so chains are short; this ends a pair of rules that disagree.
_STEPS_PER_OP = 32


@dataclass(frozen=True)
class Simplify(Pass[Graph, Graph]):
    """Apply algebraic equations: batch_norm(conv(x, w))  →  conv(x, w') and some hundred more."""

    name: ClassVar[str] = "simplify"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "ops"
    idempotent: ClassVar[bool] = True
    extra: ClassVar[tuple[Rule, ...]] = ()
    compose: bool = option(True, "recognise composite ops, as softmax, by their parts; no for a simplify after expand")
    fast: bool = option(False, "allow rules that change NaN, infinities or the sign of zero")
    rounds: int = option(16, "maximum number of traversals; the pass ends after one that changes nothing", low=1)

    def with_rules(self, rules: Iterable[object]) -> Simplify:
        """This pass with further rules, tried last: `Rule`s, or functions from an op to an equal op or None."""
        new = copy(self)
        object.__setattr__(new, "extra", (*self.extra, *map(_as_rule, rules)))
        return new

    def run(self, state: Graph, report: Report) -> Graph:
        """An equal graph; `report` counts how often each rule was applied."""
        used = [r for r in (*RULES, *self.extra) if (self.fast or not r.fast) and (self.compose or not r.composes)]
        return apply_rules(state, used, report, fast=self.fast, rounds=self.rounds)


def apply_rules(graph: Graph, rules: Sequence[Rule], report: Report, *, fast: bool = False, rounds: int = 16) -> Graph:
    """An equal graph to which no rule applies any more, after `rounds` traversals at most."""
    table = _Table(rules)
    for _ in range(rounds):
        new = graph.rewrite(_Round(table, graph, RewriteContext(fast), report))
        if new.digest == graph.digest:
            return new
        graph = new
    report.note(f"simplify: still changing after {rounds} rounds")
    return graph


def _as_rule(given: object) -> Rule:
    if isinstance(given, Rule):
        return given
    assert callable(given), f"{given!r} is no rule"
    function = cast("Callable[[Op], Op | None]", given)
    name = getattr(given, "__name__", "rule")
    return Rule(name, (given.__doc__ or "").strip(), (Op,), lambda op, _: function(op))


class _Table:
    """Rules by the class of op that they look at."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._by_class: dict[type[Op], tuple[Rule, ...]] = {}

    def rules_for(self, op: Op) -> tuple[Rule, ...]:
        kind = type(op)
        if kind not in self._by_class:
            self._by_class[kind] = tuple(r for r in self._rules if issubclass(kind, r.heads))
        return self._by_class[kind]


@dataclass
class _Round:
    """One traversal: the rule that `Graph.rewrite` calls once per op, in the graph's order."""

    table: _Table
    graph: Graph
    context: RewriteContext
    report: Report
    order: Iterator[Op] = field(init=False)
    original: Op = field(init=False)
    """What the traversal is at, as the graph has it."""
    outputs: frozenset[Op] = field(init=False)
    finds: bool = field(init=False)
    """Whether sizes of results depend on data."""

    def __post_init__(self) -> None:
        self.order = iter(self.graph.ops)
        self.outputs = frozenset(self.graph.outputs)
        self.finds = any(op.finds for op in self.graph.ops)

    def __call__(self, op: Op) -> Op | None:
        original = self.original = next(self.order)
        result = self._normal(op)
        if self.finds:
            self.context.sizes(result)
        readers, users = self.context.readers, self.context.users
        seen = readers.get(result.digest, 0)
        readers[result.digest] = seen + self.graph.readers(original)
        mixed = seen or original in self.outputs
        users[result.digest] = () if mixed else self.graph.users.get(original, ())
        return result

    def _normal(self, op: Op) -> Op:
        for _ in range(_STEPS_PER_OP):
            new = self._step(op)
            if new is None:
                break
            op = new
        return op

    def _step(self, op: Op) -> Op | None:
        if not op.operands or len(op.types) != 1:
            return None
        if self.context.constant(op):
            # Constant expressions are evaluated once: only what keeps them symbolic is worth doing.
            return fold_splats(op)
        for rule in self.table.rules_for(op):
            try:
                new = rule.apply(op, self.context)
            except Undecided:  # the rule holds for some sizes only
                continue
            if new is not None and new.digest != op.digest and not (self.finds and self.context.loses_size(op, new)):
                assert new.type == op.type, f"{rule.name}: {op.type} became {new.type}"
                return new if self.report.applies(rule.name, self.original) else None
        return None
