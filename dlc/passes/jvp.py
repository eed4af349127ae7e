"""jvp: outputs are replaced by their derivatives along directions of inputs (Jacobian-vector products).

    y = f(x, w)      →   dy = ∂f/∂x · dx + ∂f/∂w · dw

The new graph takes the inputs that the derivatives depend on, in their order, then one direction `dx` for each input of
`wrt`. It returns one derivative `dy` for each output. This is forward mode, the transpose of the pass `gradient`: one
run computes the derivatives of all outputs along one direction, while `gradient` computes the derivatives of one output
with respect to all inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.graph.closed import check_closed
from dlc.graph.forward_mode import push_forward
from dlc.graph.graph import Graph
from dlc.passes.gradient import chosen_floats, differentiated, seed_inputs
from dlc.spec import option


@dataclass(frozen=True)
class Jvp(Pass[Graph, Graph]):
    """Differentiate along directions: y = f(x, w)  →  dy of x, w and dx, dw."""

    name: ClassVar[str] = "jvp"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "ops"
    computes_other: ClassVar[bool] = True
    of: tuple[str, ...] = option((), "outputs to differentiate; () means all float outputs")
    wrt: tuple[str, ...] = option((), "inputs to differentiate with respect to; () means all float inputs")

    def compares(self) -> None:
        """See `Pass`: it is told names of inputs and outputs."""

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph of changes. Raises DlcError: unknown names, no floats, or ops that have no gradient."""
        check_closed(state, self.name)
        outputs = chosen_floats("output", self.of, dict(zip(state.names, state.outputs, strict=True)), self.name)
        wrt = chosen_floats("input", self.wrt, {i.name: i for i in state.inputs}, self.name)
        directions = seed_inputs(wrt, {i.name for i in state.inputs})
        found = push_forward(tuple(outputs.values()), directions, tuple(wrt.values()), state.origins)
        report.count("changes", len(outputs))
        return differentiated(state, directions, tuple(outputs), found, report, "derivative")
