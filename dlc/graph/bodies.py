"""What ops that hold graphs have in common: their bodies are closed, and called by position.

    y = scan(c, [x], [w]) body=graph(%0 "i": i64[], %1 "c0": f32[2], %2 "x0": f32[2], %3 "v0": f32[2]) { … }

A body reads its own inputs and constants only. What it needs of the graph around it is an operand of the op, so that
no pass has to look into a body to see what an op depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dlc.base.types import Array, Type, bool_, i64
from dlc.graph.evaluate import evaluate
from dlc.graph.gradient import sum_kernel
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Item
from dlc.graph.walk import toposort
from dlc.kernel.define import ShapeError

Run: TypeAlias = Callable[[Graph, Mapping[str, Array]], Mapping[str, Array]]
"""Runs a body: values of its inputs by name → values of its outputs by name."""

COUNTER = Type(i64, ())
"""Of the number of an iteration, from 0."""
CONDITION = Type(bool_, ())


class Region(Op, abstract=True):
    """Base of ops that run the graphs which they hold."""

    exact: ClassVar[bool] = True
    runs = True

    def evaluate_by(self, run: Run, *args: Array) -> tuple[Array, ...]:
        """The results, by running bodies with `run`: one array each."""
        raise NotImplementedError

    def evaluate(self, *args: Array) -> Any:
        found = self.evaluate_by(evaluate, *args)
        return found if len(self.types) > 1 else found[0]


def body_of(inputs: Sequence[Input], outputs: Sequence[Op], origins: Mapping[str, tuple[str, ...]]) -> Graph:
    """A body with outputs that are called by their numbers."""
    live = {op.digest: origins[op.digest] for op in Graph((), tuple(outputs), ()).ops if op.digest in origins}
    return Graph(tuple(inputs), tuple(outputs), tuple(f"y{k}" for k in range(len(outputs))), origins=live)


def closed(outputs: Sequence[Op], inputs: Mapping[Op, Input], origins: Mapping[str, tuple[str, ...]]) -> Graph:
    """The body that computes outputs from other ops, of which it sees `inputs` only."""
    new: dict[str, Op] = {op.digest: i for op, i in inputs.items()}
    names: dict[str, tuple[str, ...]] = {}
    for op in toposort(outputs, inputs):
        new[op.digest] = moved = op.with_operands([new[x.digest] for x in op.operands])
        if op.digest in origins:
            names[moved.digest] = origins[op.digest]
    return body_of(tuple(inputs.values()), [new[o.digest] for o in outputs], names)


def called(body: Graph, args: Sequence[Array], run: Run) -> list[Array]:
    """The outputs of a body, in order."""
    found = run(body, {i.name: a for i, a in zip(body.inputs, args, strict=True)})
    return [found[name] for name in body.names]


def check_inputs(what: str, body: Graph, given: Sequence[Type]) -> None:
    """Raise ShapeError unless a body takes values of these types."""
    taken = [i.of for i in body.inputs]
    if any(t.is_open for t in given):
        raise ShapeError(f"{what} is given {_types(given)}: branches and loops need sizes that are known when building")
    if taken != list(given):
        raise ShapeError(f"{what} takes {_types(taken)}, and is given {_types(given)}")


def check_first(what: str, body: Graph, wanted: Sequence[Type]) -> tuple[Type, ...]:
    """The types of what a body gives after the first results, which must be of these types. Raises ShapeError."""
    found = [o.type for o in body.outputs]
    if found[: len(wanted)] != list(wanted):
        raise ShapeError(f"{what} gives {_types(found)}, where {_types(wanted)} are handed on")
    return tuple(found[len(wanted) :])


def scalar_of(what: str, op: Op, type: Type) -> None:
    """Raise ShapeError unless a value is one element of a type."""
    if op.type != type:
        raise ShapeError(f"{what} is {op.type}, not {type}")


def truth(value: Array) -> bool:
    """The one element of a condition."""
    return bool(np.asarray(value).reshape(())[()])


def item(op: Op, k: int) -> Op:
    """Result `k` of an op, whether it has one or several."""
    return op if len(op.types) == 1 else Item(op, k)


def added(a: Op, b: Op) -> Op:
    """a + b: the op `add` is declared above this layer."""
    return Call(sum_kernel(a.type), (a, b))


def fresh(prefix: str, taken: set[str]) -> str:
    """A name that is not taken, and now is."""
    k = 0
    while f"{prefix}{k}" in taken:
        k += 1
    taken.add(f"{prefix}{k}")
    return f"{prefix}{k}"


def _types(types: Sequence[Type]) -> str:
    return f"({', '.join(map(str, types))})"
