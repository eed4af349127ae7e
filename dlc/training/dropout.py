"""Dropout of a model that is trained: another mask in every step, the same in a step's forward and backward half.

y = dropout(x, seed)   →   y = dropout(x, seed, step)
"""

from __future__ import annotations

from dlc.graph import Graph, Op
from dlc.ops.random import Dropout, DropoutMask, RandomNormal, RandomUniform


def with_step(graph: Graph, step: Op) -> Graph:
    """The graph with random numbers that depend on the number of the step, where they depended on their seeds alone.

    Args:
        graph: A graph of ops; without random ones it comes back as it is.
        step: i64[], an op that no random one of the graph is read by; of its value the low 32 bits count.
    """

    def rule(op: Op) -> Op | None:
        match op:
            case Dropout(step=None):
                return Dropout(op.x, op.seed, step, op.ratio, op.stream)
            case DropoutMask(step=None):
                return DropoutMask(op.seed, op.to, step, op.ratio, op.stream)
            case RandomUniform(step=None) | RandomNormal(step=None):
                return type(op)(op.seed, op.of, step, op.stream)
            case _:
                return None

    return graph.rewrite(rule)
