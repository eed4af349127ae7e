"""expand: composite ops are replaced by the ops that they are composed of.

    y = softmax(x)   →   e = exp(x - reduce_max(x)); y = e / reduce_sum(e)

It runs after `simplify`, because patterns such as a batch normalisation after a convolution are made of composite ops.
Constant expressions are not expanded, because they are evaluated, never lowered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.graph.constants import constant_ops
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.spec import option

# Composites of composites: far more than any library nests, yet an end for a plugin's op that expands to itself.
_DEEPEST = 64


@dataclass(frozen=True)
class Expand(Pass[Graph, Graph]):
    """Replace composite ops by their compositions: y = softmax(x)  →  e = exp(x - max x); y = e / Σ e."""

    name: ClassVar[str] = "expand"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "ops"
    idempotent: ClassVar[bool] = True
    keep: tuple[str, ...] = option(
        (), "names of composite ops that are not expanded, as softmax,layer_norm, for a target that has them"
    )
    only: tuple[str, ...] = option((), "names of the composite ops to expand; () means all")

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph of primitive ops, of kept composites and of constant expressions."""
        kept = frozenset(self.keep)
        for _ in range(_DEEPEST):
            constant = constant_ops(state)

            def rule(op: Op, constant: frozenset[str] = constant) -> Op | None:
                if op.text_name in kept or (self.only and op.text_name not in self.only):
                    return None
                if op.digest in constant or (whole := op.expansion) is None:
                    return None
                return whole if report.applies(op.text_name, op) else None

            expanded = state.rewrite(rule)
            if expanded.digest == state.digest:
                return expanded
            state = expanded
        raise AssertionError(f"an op expands into itself after {_DEEPEST} steps")
