"""jvp: how outputs change along directions of inputs takes the place of the outputs.

    y = f(x, w)      →   dy = ∂f/∂x · dx + ∂f/∂w · dw

The new graph takes the inputs that are still read, in their order, then one direction `dx` per input that is
differentiated by; it gives one change `dy` per output. It is forward mode, the transpose of the pass gradient: one run
gives all outputs along one direction, where gradient gives one output along all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.graph.forward_mode import push_forward
from dlc.graph.graph import Graph
from dlc.passes.gradient import chosen_floats, differentiated, seed_inputs
from dlc.spec import option


@dataclass(frozen=True)
class Jvp(Pass[Graph, Graph]):
    """Differentiate along directions: y = f(x, w)  →  dy of x, w and dx, dw."""

    name: ClassVar[str] = "jvp"
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "ops"
    computes_other: ClassVar[bool] = True
    of: tuple[str, ...] = option((), "outputs to differentiate; () means all that are floats")
    wrt: tuple[str, ...] = option((), "inputs to differentiate by; () means all that are floats")

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph of changes. Raises DlcError: unknown names, no floats, or ops that have no gradient."""
        outputs = chosen_floats("output", self.of, dict(zip(state.names, state.outputs, strict=True)), self.name)
        wrt = chosen_floats("input", self.wrt, {i.name: i for i in state.inputs}, self.name)
        directions = seed_inputs(wrt, {i.name for i in state.inputs})
        found = push_forward(tuple(outputs.values()), directions, tuple(wrt.values()), state.origins)
        report.count("changes", len(outputs))
        return differentiated(state, directions, tuple(outputs), found, report, "derivative")
