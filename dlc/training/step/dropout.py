"""Dropout of a model that is trained: another mask in every step, the same in a step's forward and backward half.

y = dropout(x, seed)   →   y = dropout(x, seed, step)     training
y = dropout(x, seed)   →   y = x                          inference
"""

from __future__ import annotations

from dlc.base.types import Type, bool_
from dlc.graph import Graph, Op, Splat
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


def without_dropout(graph: Graph) -> Graph:
    """The graph at inference: nothing is dropped. Other random numbers stay as they are."""

    def rule(op: Op) -> Op | None:
        match op:
            case Dropout():
                return op.x
            case DropoutMask():
                return Splat(True, Type(bool_, op.to))
            case _:
                return None

    return graph.rewrite(rule)
