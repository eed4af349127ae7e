"""Operators without a rule: what is missing, and what of all that is installed would help.

another version has a rule        →  convert the model
a rule of another domain fits     →  --set onnx.read-as=DOMAIN:OTHER, or --lenient for the standard domain
a name of the domain is close     →  did you mean …?
an op of dlc fits                 →  a rule that imports it is three lines of a plugin
else                              →  what is known of the operator or its domain (`hints`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

import onnx

from dlc.base.diagnostics import nearest
from dlc.base.types import Array
from dlc.graph import Op
from dlc_frontend_onnx.budget import Budget
from dlc_frontend_onnx.calls import domain_of
from dlc_frontend_onnx.counts import check_counts
from dlc_frontend_onnx.domains import MICROSOFT, STANDARD
from dlc_frontend_onnx.hints import hint
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.rules import ImportRule, RuleTable
from dlc_frontend_onnx.unsupported import Unsupported

Ops = Callable[[], Mapping[str, type[Op]]]
"""Gives every installed op by name."""


def no_ops() -> Mapping[str, type[Op]]:
    """What is known without a registry."""
    return {}


class _Trial(Exception):
    """A rule that is tried asked for what a trial must not change or cannot know."""


@dataclass(frozen=True)
class _NoValues:
    """The model around a node whose rule is only tried: constants are known, nothing is noted."""

    values: Callable[[Op], Array | None]
    budget: Budget = field(default_factory=Budget)

    def value(self, op: Op) -> Array | None:
        """See `Values.value`."""
        return self.values(op)

    def extents(self, op: Op) -> tuple[int, ...] | None:
        """See `Values.extents`: shapes that only a call knows are no part of a trial."""
        return None

    def quirk(self, node: Node, what: str, reading: str) -> None:
        """See `Values.quirk`."""
        raise _Trial

    def assume(self, op: Op, choices: Sequence[Sequence[int]]) -> None:
        """See `Values.assume`."""
        raise _Trial

    def subgraph(self, graph: onnx.GraphProto, node: Node, operands: Sequence[Op] = ()) -> tuple[Op | None, ...]:
        """See `Values.subgraph`."""
        raise _Trial

    def named(self, name: str, instead: Mapping[str, Op] = MappingProxyType({})) -> Op | None:
        """See `Values.named`."""
        raise _Trial


@dataclass(frozen=True)
class Remedies:
    """What helps with operators that no rule imports."""

    ops: Ops = no_ops

    def no_rule(self, node: Node, table: RuleTable, versions: Mapping[str, int]) -> Unsupported:
        """The refusal of a node.

        Args:
            node: The node; no rule is of its operator in its version.
            table: The import rules.
            versions: Operator sets that the model imports, by domain.
        """
        domain, operator = domain_of(node.proto), node.proto.op_type
        since = [r.since for r in table.of(domain).get(operator, ())]
        if since:
            help = f"convert the model: onnx.version_converter.convert_version(model, {max(since)})"
            return Unsupported(f"version {node.version} is not supported, {min(since)} and later are", help)
        reason = "there is no rule for this operator"
        if domain and domain not in table.domains:
            reason = f"no installed package has import rules for the domain {domain}"
            if domain not in versions:
                reason = f"the model does not import the operator set {domain}, and {reason}"
        return Unsupported(reason, self._help(node, table))

    def _help(self, node: Node, table: RuleTable) -> str:
        domain, operator = domain_of(node.proto), node.proto.op_type
        for other in table.domains:
            rule = None if other == domain else next(iter(table.of(other).get(operator, ())), None)
            if rule is not None and fits(rule, node):
                return self._elsewhere(domain, rule, table)
        if not onnx.defs.has(operator, domain) and (close := nearest(operator, table.of(domain))):
            return f"did you mean {close}?"
        op = self.ops().get(_snake(operator)) or self.ops().get(operator.lower())
        if domain and op is not None and _takes(op, len(node.inputs)):
            return (
                f"dlc has an op {op.text_name} with as many operands: a rule that imports it is a function with "
                f'@onnx("{operator}", domain="{domain}"); see docs/writing-a-plugin.md'
            )
        return hint(domain, operator)

    def _elsewhere(self, domain: str, rule: ImportRule, table: RuleTable) -> str:
        """How to read an operator as one of another domain."""
        name = f"{rule.domain or STANDARD}.{rule.operator}"
        if not domain and rule.domain == MICROSOFT:
            return f"--lenient reads it as {name}"
        fitting = f"{name}, which the plugin {table.title(rule.plugin)} imports, takes these operands and attributes"
        return f"{fitting}: if they are the same, --set onnx.read-as={domain or STANDARD}:{rule.domain or STANDARD}"


def fits(rule: ImportRule, node: Node) -> bool:
    """Whether a rule would import a node as if it were of the rule's operator: operands, attributes and results."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    proto.domain = rule.domain
    if any(name and x is None for name, x in zip(proto.input, node.inputs, strict=True)):
        return _takes_schema(proto, rule)  # an operand was refused: its type is unknown
    tried = replace(node, proto=proto, version=rule.since, values=_NoValues(node.values.value), seen=set[str]())
    try:
        check_counts(proto, rule.since, lenient=False)
        result = rule.function(tried)
    # It is a guess for an error message: whatever stands in its way, there is no hint.
    except Exception:  # noqa: BLE001
        return False
    count = 1 if isinstance(result, Op) else len(result)
    return set(tried.attributes) <= tried.seen and node.outputs <= count


def _takes_schema(proto: onnx.NodeProto, rule: ImportRule) -> bool:
    try:
        check_counts(proto, rule.since, lenient=False)
    except Unsupported:
        return False
    return True


def _takes(op: type[Op], count: int) -> bool:
    """Whether an op may have this many operands."""
    kinds = {f.name: str(f.type) for f in fields(op)}  # type: ignore[arg-type]
    operands = [kinds[name] for name in op.operand_names]
    if any(kind.startswith("tuple") for kind in operands):
        return count >= len(operands) - 1
    return sum("None" not in kind for kind in operands) <= count <= len(operands)


def _snake(name: str) -> str:
    """`LayerNorm` → `layer_norm`, as ops are called in text."""
    return "".join(f"_{c.lower()}" if c.isupper() and k else c.lower() for k, c in enumerate(name))
