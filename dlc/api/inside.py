"""Passes and the graphs that ops hold: a pass that rewrites a graph rewrites its bodies too, and need not know of them.

scan(…) body=g   →   scan(…) body=pass(g)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from dlc.base.report import Report


class Stage(Protocol):
    """A pass: the class is declared above this module."""

    computes_other: ClassVar[bool]

    def run(self, state: Any, report: Report) -> Any:
        """The rewritten state."""
        ...


def run_inside(stage: Stage, state: Any, report: Report) -> Any:
    """What a pass makes of a state; of a graph, the pass then runs on the graphs that its ops hold, and in these.

    Passes that compute something else, as gradients, see only the graph. Those that make or take plans treat bodies
    themselves, because the plan of a body is a part of the plan (`Plan.bodies`).
    """
    from dlc.graph.graph import Graph  # commands that read no model import this module

    result = stage.run(state, report)
    if not isinstance(state, Graph) or not isinstance(result, Graph) or stage.computes_other:
        return result
    return result.with_bodies(lambda body: run_inside(stage, body, report))
