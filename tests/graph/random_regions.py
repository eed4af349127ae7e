"""Random branches and loops, inside of each other too: bodies that ignore, repeat and hand on what they are given."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc.base.types import Type, f32, i64
from dlc.graph import Constant, Graph, If, Input, Loop, Op, Scan, Splat, Tensor, make_graph
from dlc.graph.bodies import CONDITION, COUNTER, body_of, item
from dlc.ops.elementwise import Add, Cast, Less, Mul, Neg, Sub, Tanh
from dlc.ops.reduce import ReduceSum

Array = np.ndarray[Any, np.dtype[Any]]
VECTOR = Type(f32, (3,))
SCALAR = Type(f32, ())


class Maker:
    """Makes graphs of vectors, with booleans and counters on the side."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def graph(self) -> Graph:
        """A graph with three vectors, a condition and a count as inputs."""
        inputs = [*(Input(n, VECTOR) for n in "xyz"), Input("go", CONDITION), Input("n", Type(i64, ()))]
        values = self.values(inputs[:3], inputs[3], inputs[4], depth=2, count=5)
        chosen = [self.random.choice(values) for _ in range(3)]
        return make_graph(inputs, {f"out{k}": y for k, y in enumerate(chosen)})

    def values(self, given: Sequence[Op], go: Op, n: Op, depth: int, count: int) -> list[Op]:
        """Vectors computed from vectors."""
        values: list[Op] = [*given]
        for _ in range(count):
            values += self.step(values, go, n, depth)
        return values

    def constant(self) -> Op:
        value = self.random.choice([0.0, 1.0, 0.5, -2.0])
        numbers = np.array([self.random.uniform(-1, 1) for _ in range(3)], np.float32)
        return Splat(value, VECTOR) if self.random.random() < 0.5 else Constant(Tensor.of(numbers))

    def step(self, values: Sequence[Op], go: Op, n: Op, depth: int) -> Sequence[Op]:
        pick = self.random.choice
        kinds = ["plain", "plain", "constant"] + ["if", "scan", "loop"] * (depth > 0)
        match pick(kinds):
            case "constant":
                return [self.constant()]
            case "if":
                return self.branch(
                    values, pick([go, self.truth(pick(values)), Splat(pick([True, False]), CONDITION)]), depth
                )
            case "scan":
                return self.scan(values, depth)
            case "loop":
                return self.loop(values, pick([go, None]), n, depth)
            case _:
                x, y = pick(values), pick(values)
                return [pick([Tanh(Add(x, y)), Tanh(Mul(x, y)), Sub(Tanh(x), y), Neg(x)])]

    def truth(self, x: Op) -> Op:
        return Less(ReduceSum(x, (0,)), Splat(self.random.choice([-0.5, 0.0, 0.5]), SCALAR))

    def some(self, values: Sequence[Op], low: int) -> tuple[Op, ...]:
        return tuple(self.random.choice(values) for _ in range(self.random.randint(low, 3)))

    def branch(self, values: Sequence[Op], condition: Op, depth: int) -> Sequence[Op]:
        captured = self.some(values, 1)
        results = self.random.randint(1, 3)
        bodies: list[Graph] = []
        for _ in range(2):
            formals = [Input(f"v{k}", VECTOR) for k in range(len(captured))]
            inner = self.values(formals, Splat(True, CONDITION), Splat(2, COUNTER), depth - 1, 3)
            bodies.append(body_of(formals, [self.random.choice(inner) for _ in range(results)], {}))
        op = If(condition, captured, *bodies)
        return [item(op, k) for k in range(results)]

    def scan(self, values: Sequence[Op], depth: int) -> Sequence[Op]:
        steps = self.random.choice([0, 1, 2, 3, 4])
        carried, captured = self.some(values, 0), self.some(values, 0)
        scanned = tuple(
            Constant(Tensor.of(np.linspace(-1, 1, steps * 3, dtype=np.float32).reshape(steps, 3)))
            for _ in range(self.random.randint(0, 2))
        )
        c, x, v = (
            [Input(f"{n}{k}", VECTOR) for k in range(m)]
            for n, m in zip("cxv", map(len, (carried, scanned, captured)), strict=True)
        )
        number = Mul(Cast(Input("i", COUNTER), to=f32), Splat(0.25, VECTOR))
        inner = self.values([number, *c, *x, *v], Splat(True, CONDITION), Input("i", COUNTER), depth - 1, 3)
        rows = self.random.randint(0 if carried else 1, 2)
        outputs = [self.random.choice(inner) for _ in range(len(carried) + rows)]
        body = body_of((Input("i", COUNTER), *c, *x, *v), outputs, {})
        op = Scan(carried, scanned, captured, body, steps, self.random.random() < 0.3)
        found = [item(op, k) for k in range(len(op.types))]
        return [*found[: len(carried)], *(ReduceSum(y, (0,)) for y in found[len(carried) :])]

    def loop(self, values: Sequence[Op], condition: Op | None, n: Op, depth: int) -> Sequence[Op]:
        carried, captured = self.some(values, 1), self.some(values, 0)
        c, v = (
            [Input(f"c{k}", VECTOR) for k in range(len(carried))],
            [Input(f"v{k}", VECTOR) for k in range(len(captured))],
        )
        inner = self.values([*c, *v], Splat(False, CONDITION), Input("i", COUNTER), depth - 1, 3)
        again = self.random.choice([Splat(True, CONDITION), self.truth(self.random.choice(inner))])
        body = body_of((Input("i", COUNTER), *c, *v), [again, *(self.random.choice(inner) for _ in c)], {})
        op = Loop(n, condition, carried, captured, body)
        return [item(op, k) for k in range(len(carried))]


def feeds(seed: int) -> Mapping[str, Array]:
    """Inputs of `Maker.graph`."""
    numbers = np.random.default_rng(seed)
    found: dict[str, Array] = {n: numbers.standard_normal(3).astype(np.float32) for n in "xyz"}
    return found | {"go": np.array(seed % 2 == 0), "n": np.array(seed % 4)}
