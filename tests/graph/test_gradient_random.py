"""Gradients of random graphs: along random directions they are the differences of the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc import gradients
from dlc.base.types import Array, Type, f64
from dlc.graph import Constant, Input, Op, Splat, Tensor, evaluate, make_graph
from dlc.ops.elementwise import Add, Div, Exp, Gelu, Mul, Neg, Sigmoid, Softplus, Sub, Tanh
from dlc.ops.index import Gather
from dlc.ops.linear import MatMul
from dlc.ops.normalize import LayerNorm, LogSoftmax, RmsNorm, Softmax
from dlc.ops.reduce import ReduceMean, ReduceSum, ReduceSumSquare
from dlc.ops.shape import Concat, Reshape, Slice, Transpose

UNARY = (Tanh, Sigmoid, Softplus, Gelu, Neg)
STEP = 1e-6


class Maker:
    """A graph of smooth ops on matrices, deterministic in its seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.inputs = [Input(f"x{k}", self.matrix()) for k in range(self.random.randint(1, 3))]
        self.values: list[Op] = [*self.inputs]
        for _ in range(self.random.randint(1, 12)):
            self.values.append(self.step(self.random.choice(self.values)))

    def matrix(self) -> Type:
        return Type(f64, (self.random.randint(1, 3), self.random.randint(1, 4)))

    def like(self, x: Op) -> Op:
        """Another value of a shape that x broadcasts with."""
        fitting = [v for v in self.values if all(a in (b, 1) for a, b in zip(v.shape, x.shape, strict=True))]
        return self.random.choice([*fitting, Splat(0.5, x.type)])

    def step(self, x: Op) -> Op:
        rows, columns = x.shape
        match self.random.randrange(14):
            case 0 | 1:
                return self.random.choice(UNARY)(x)
            case 2 | 3 | 4:
                return self.random.choice((Add, Sub, Mul))(x, self.like(x))
            case 5:
                return Div(x, Add(Exp(Tanh(self.like(x))), Splat(1.0, Type(f64, ()))))
            case 6:
                return MatMul(
                    x, Transpose(self.random.choice([v for v in self.values if v.shape[1] == columns]), perm=(1, 0))
                )
            case 7:
                return self.random.choice((ReduceSum, ReduceMean, ReduceSumSquare))(x, axes=(1,), keep=True)
            case 8:
                return self.random.choice((Softmax, LogSoftmax))(x, axis=self.random.choice((0, 1)))
            case 9:
                scale = Constant(Tensor.of(np.linspace(0.5, 1.5, columns)))
                return self.random.choice((LayerNorm, RmsNorm))(x, scale, epsilon=0.5)
            case 10:
                return Concat((x, Tanh(x)), axis=self.random.choice((0, 1)))
            case 11:
                return Transpose(Reshape(x, to=(columns, rows)), perm=(1, 0))
            case 12:
                start = self.random.randrange(columns)
                return Slice(x, starts=(0, start), sizes=(rows, columns - start), steps=(1, 1))
            case _:
                return Gather(x, Constant(Tensor.of(np.array([columns - 1, 0, 0]))), axis=1)


def total(output: Op, seed: Array, feeds: Mapping[str, Array], inputs: list[Input]) -> float:
    return float((evaluate(make_graph(inputs, {"y": output}), feeds)["y"] * seed).sum())


@settings(max_examples=60)
@given(st.integers(0, 1 << 30))
def test_gradients_are_the_differences_along_a_direction(seed: int) -> None:
    maker = Maker(seed)
    inputs, output = maker.inputs, maker.values[-1]
    cotangent = Input("cotangent", output.type)
    found = gradients((output,), (cotangent,), inputs)
    rng = np.random.default_rng(seed)
    feeds = {i.name: rng.uniform(-1, 1, i.shape) for i in inputs}
    weight = rng.uniform(-1, 1, output.shape)
    graph = make_graph([*inputs, cotangent], {f"d{i.name}": g for i, g in zip(inputs, found, strict=True)})
    got = evaluate(graph, {**feeds, "cotangent": weight})
    along = {i.name: rng.uniform(-1, 1, i.shape) for i in inputs}
    ahead, behind = (
        total(output, weight, {n: v + sign * STEP * along[n] for n, v in feeds.items()}, inputs) for sign in (1, -1)
    )
    want = (ahead - behind) / (2 * STEP)
    have = sum(float((got[f"d{i.name}"] * along[i.name]).sum()) for i in inputs)
    scale = sum(float(np.abs(got[f"d{i.name}"]).sum()) for i in inputs)
    assert abs(have - want) <= 1e-6 * max(1.0, scale), (have, want)
