"""Graphs with branches and loops, and what PyTorch says about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dlc.base.types import Type, f32, i64
from dlc.graph import Graph, If, Input, Item, Loop, Op, Scan, Splat, make_graph
from dlc.graph.bodies import CONDITION, COUNTER, body_of
from dlc.ops.elementwise import Add, Cast, Exp, Less, Mul, Neg, Sub, Tanh
from dlc.ops.linear import MatMul
from dlc.ops.reduce import ReduceMax
from dlc.ops.shape import Reshape

Array = np.ndarray[Any, np.dtype[Any]]
N = 3
VECTOR, MATRIX = Type(f32, (N,)), Type(f32, (N, N))
I = Input("i", COUNTER)  # noqa: E741  the number of the iteration, as everywhere


@dataclass(frozen=True)
class Case:
    """A graph, and the same function in PyTorch."""

    graph: Graph
    torch: Callable[..., tuple[torch.Tensor, ...]]
    """From the inputs, in order, to the outputs."""

    def feeds(self, **given: object) -> dict[str, Array]:
        """Random inputs, with some given."""
        random = np.random.default_rng(0)
        found = {i.name: random.standard_normal(i.shape).astype(i.dtype.numpy) for i in self.graph.inputs}
        return found | {name: np.asarray(v, found[name].dtype) for name, v in given.items()}


def row(x: Op, steps: int) -> Op:
    return Reshape(x, to=(steps, 1))


def recurrent(steps: int = 5) -> Case:
    """h = tanh(h w + x[t]), and k counts in integers; the rows are h x[t] and t + k."""
    h, k = Input("c0", VECTOR), Input("c1", COUNTER)
    x, w = Input("x0", VECTOR), Input("v0", MATRIX)
    new = Tanh(Add(MatMul(h, w), x))
    counted = Add(k, I)
    body = body_of((I, h, k, x, w), (new, counted, Mul(new, x), Cast(counted, to=f32)), {})
    given = Input("h", VECTOR), Input("x", Type(f32, (steps, N))), Input("w", MATRIX)
    scan = Scan((given[0], Splat(2, COUNTER)), (given[1],), (given[2],), body, steps)
    graph = make_graph(given, {"last": Item(scan, 0), "k": Item(scan, 1), "y": Item(scan, 2), "z": Item(scan, 3)})

    def function(h: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, numbers, k = [x[:0]], list[float](), 2
        for t in range(steps):
            h, k = torch.tanh(h @ w + x[t]), k + t
            rows.append((h * x[t])[None])
            numbers.append(float(k))
        return h, torch.tensor(k), torch.cat(rows), torch.tensor(numbers)

    return Case(graph, function)


def growing(count: bool, condition: bool) -> Case:
    """c = c + v while its largest element is below 4, at most `n` times and only if `go` holds at first."""
    c, v = Input("c0", VECTOR), Input("v0", VECTOR)
    new = Add(c, v)
    again = Less(ReduceMax(new, (0,)), Splat(4.0, Type(f32, ())))
    body = body_of((I, c, v), (again, new), {})
    start, step = Input("start", VECTOR), Input("step", VECTOR)
    n, go = Input("n", Type(i64, ())), Input("go", CONDITION)
    loop = Loop(n if count else None, go if condition else None, (start,), (step,), body)
    inputs = (*(n,) * count, *(go,) * condition, start, step)

    def function(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip((i.name for i in inputs), args, strict=True))
        value, t, going = given["start"], 0, bool(given.get("go", True))
        while going and t < int(given.get("n", 1 << 20)):
            value = value + given["step"]
            going, t = bool(value.max() < 4), t + 1
        return (value,)

    return Case(make_graph(inputs, {"r": loop}), function)


def branching() -> Case:
    """exp(x) w or x - y, as a condition says: only one is computed."""
    x, y, w = (Input(f"v{k}", t) for k, t in enumerate((VECTOR, VECTOR, MATRIX)))
    then = body_of((x, y, w), (MatMul(Exp(x), w), Neg(y)), {})
    otherwise = body_of((x, y, w), (Sub(x, y), x), {})
    go = Input("go", CONDITION)
    given = Input("x", VECTOR), Input("y", VECTOR), Input("w", MATRIX)
    op = If(go, given, then, otherwise)

    def function(go: torch.Tensor, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.exp(x) @ w, -y) if bool(go) else (x - y, x)

    return Case(make_graph((go, *given), {"a": Item(op, 0), "b": Item(op, 1)}), function)


def nested() -> Case:
    """A scan of branches, one of which is a loop whose count is the number of the iteration."""
    inner = body_of((I, Input("c0", VECTOR)), (Splat(True, CONDITION), Tanh(Input("c0", VECTOR))), {})
    n, c = Input("v0", COUNTER), Input("v1", VECTOR)
    then = body_of((n, c), (Loop(n, None, (c,), (), inner),), {})
    otherwise = body_of((n, c), (Neg(c),), {})
    h, x = Input("c0", VECTOR), Input("x0", CONDITION)
    body = body_of((I, h, x), (If(x, (I, h), then, otherwise),), {})
    given = Input("h", VECTOR), Input("x", Type(CONDITION.dtype, (4,)))
    scan = Scan((given[0],), (given[1],), (), body, 4)

    def function(h: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for t in range(4):
            if bool(x[t]):
                for _ in range(t):
                    h = torch.tanh(h)
            else:
                h = -h
        return (h,)

    return Case(make_graph(given, {"r": scan}), function)


CASES: Mapping[str, tuple[Case, tuple[dict[str, Array], ...]]] = {
    **{f"scan of {n}": (case := recurrent(n), (case.feeds(),)) for n in (0, 1, 2, 5, 300)},
    **{
        f"loop, count {count}, condition {condition}": (
            case := growing(count, condition),
            tuple(
                case.feeds(**{k: v for k, v in {**given, "n": n, "go": go}.items() if k in case.feeds()})
                for n in (-1, 0, 1, 2, 3, 1 << 62)
                for go in (True, False)
                for given in ({"start": [1, 2, -1], "step": [1, 0.5, 0.25]},)
            ),
        )
        for count in (False, True)
        for condition in (False, True)
    },
    "branch": (case := branching(), (case.feeds(go=True), case.feeds(go=False))),
    "nested": (case := nested(), tuple(case.feeds(x=[True, k, not k, True]) for k in (True, False))),
}
"""Graphs, and what each is run on."""


def expected(case: Case, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs in PyTorch."""
    found = case.torch(*(torch.tensor(feeds[i.name]) for i in case.graph.inputs))
    return {name: np.asarray(y) for name, y in zip(case.graph.names, found, strict=True)}
