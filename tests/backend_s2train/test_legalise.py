"""Ops that the device has no instruction for, composed of what it has: forward and backward as dlc's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from dlc_backend_s2train.legalise.legalise import legalised
from dlc_backend_s2train.select.partition import moved
from dlc_backend_s2train.select.s2_select import S2Select

from dlc import Report
from dlc.base.types import Array, f32
from dlc.graph import Constant, Graph, Op, Tensor, evaluate
from dlc.ops.elementwise import Add, Clip, HardSigmoid, LeakyRelu, Mul, Relu, Sigmoid, Tanh
from dlc.ops.index import Gather, Pick
from dlc.ops.linear import ConvTranspose, Gemm, MatMul
from dlc.ops.normalize import LayerNorm, Softmax
from dlc.ops.pointwise import scalar
from dlc.ops.pool import AveragePool, MaxPool
from dlc.ops.reduce import ReduceMean
from dlc.ops.shape import Concat, Reshape, Transpose
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.selected import Model, backward, fed, instructions, program, select, simulated, training

TOLERANCE = 5e-3
"""The backend's."""


def close(found: Array, wanted: Array, name: str) -> None:
    scale = float(np.abs(wanted).max())
    np.testing.assert_allclose(
        found.reshape(wanted.shape), wanted, rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=name
    )


def _linear(m: Model, x: Op, features: int = 6) -> Op:
    return Add(MatMul(x, m.weight("w", x.shape[-1], features)), m.weight("b", features))


FORWARD: dict[str, tuple[tuple[int, ...], Callable[[Model, Op], Op]]] = {
    "clip 0 to 6": ((2, 3, 4, 4), lambda _, x: Clip(x, 0.0, 6.0)),
    "clip -1 to 2": ((2, 3, 4, 4), lambda _, x: Clip(x, -1.0, 2.0)),
    "clip -1 to 0.7": ((2, 3, 4, 4), lambda _, x: Clip(x, -1.0, 0.7)),
    "at most 2": ((2, 3), lambda _, x: Clip(x, None, 2.0)),
    "leaky relu": ((2, 3, 4, 4), lambda _, x: LeakyRelu(x, 0.1)),
    "hard sigmoid": ((2, 3, 4, 4), lambda _, x: HardSigmoid(x, 0.25, 0.5)),
    "linear of rank 3": ((2, 5, 4), _linear),
    "scale and shift of rows": ((2, 5, 4), lambda m, x: Add(Mul(x, m.weight("g", 4)), m.weight("p", 5, 4))),
    "products of a batch": ((2, 3, 5, 4), lambda _, x: MatMul(x, Reshape(Relu(x), (2, 3, 4, 5)))),
    "computed weights": ((5, 4), lambda _, x: Gemm(x, Relu(x), trans_b=True)),
    "softmax of rank 3": ((2, 5, 8), lambda _, x: Softmax(x, -1)),
    "layer norm": ((2, 5, 8), lambda m, x: LayerNorm(x, m.weight("g", 8), m.weight("b", 8))),
    "padding counts": ((2, 3, 6, 6), lambda _, x: AveragePool(x, (3, 3), (2, 2), (1,) * 4, count_pad=True)),
    "pool of 8 x 8": ((1, 3, 16, 16), lambda _, x: MaxPool(x, (8, 8), (8, 8))),
    "transposed convolution": (
        (2, 3, 4, 4),
        lambda m, x: ConvTranspose(x, m.weight("w", 3, 5, 3, 3), m.weight("b", 5), (2, 2), (1,) * 4, output_pad=(1, 1)),
    ),
    "rows twice": ((2, 3, 4, 4), lambda _, x: Pick(x, Constant(Tensor.of(np.repeat(np.arange(4), 2))), axis=2)),
    "concatenation": ((2, 3, 4, 4), lambda _, x: Concat((Relu(x), x), axis=1)),
}
ON_THE_HOST_BACKWARD = {"softmax of rank 3"}
"""Those whose gradient is partly the host's."""


def _data(shape: tuple[int, ...], seed: int = 3) -> Array:
    return (4 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("name", FORWARD)
def test_on_the_device_as_in_the_interpreter(name: str) -> None:
    shape, make = FORWARD[name]
    m = Model()
    graph = m.graph(make(m, m.x(*shape)), names=("y",))
    x = _data(shape)
    found, (wanted,) = simulated(select(graph), {"x": x})["y"], evaluate(graph, {"x": x}).values()
    close(found, wanted, name)


@pytest.mark.parametrize("name", FORWARD)
def test_gradients_are_those_of_the_interpreter(name: str) -> None:
    shape, make = FORWARD[name]
    m = Model()
    graph = backward(m.graph(make(m, m.x(*shape)), names=("y",)))
    feeds = fed(graph, {"x": _data(shape)})
    fallback = "host" if name in ON_THE_HOST_BACKWARD else "none"
    chosen = S2Select(fallback=fallback).run(graph, Report())
    data = {i.name: feeds[i.name] for i in graph.inputs if i.role != "weight"}
    found = machine_of(program(chosen), checked=True).run("step", data)
    for key, wanted in evaluate(graph, feeds).items():
        close(found[key], wanted, f"{name}: {key}")


_BOUNDS: list[tuple[float | None, float | None]] = [
    *[(0, 6), (0, 1), (-1, 1), (-127, 0), (-127, 127), (-0.9, 0.9), (0, 0.9), (0.5, 2), (-5, -2), (-3, None)],
    *[(None, 6), (None, 0), (None, -3), (0.25, None), (-1e4, 1e4), (-3e4, 1), (-6e4, 6e4)],
]


@pytest.mark.parametrize(("low", "high"), _BOUNDS)
@pytest.mark.parametrize("factor", [1.0, 0.0377])
def test_a_clip_costs_no_accuracy(low: float | None, high: float | None, factor: float) -> None:
    """Numbers between the bounds are kept, however small they are beside these, and others are the bounds.

    What is 0 stays 0 where the clip is multiplied, as by the scale of a quantised value.
    """
    random = np.random.default_rng(0).standard_normal(100)
    few = [0, -0.0, 1, -1, 0.001, -0.001, 5.5, 7.25, 33.3, -33.3, 5000, -5000, 65504, -65504]
    x = np.array([*few, *random, *(random * 1e-3), *(random * 30)], np.float16)
    x = x[x <= 64 * high] if low == 0 and high else x  # of one instruction less, which is exact as far
    given = x.astype(np.float32).reshape(1, 1, 1, -1)
    m = Model()
    y: Op = Clip(m.x(*given.shape), low, high)
    graph = m.graph(y if factor == 1 else Mul(y, scalar(factor, f32)), names=("y",))
    found = simulated(select(graph), {"x": given})["y"].astype(np.float64)
    wanted = np.clip(given.astype(np.float64), low, high) * factor
    bounds = max(abs(v) for v in (low, high) if v is not None)
    room = 2.0**-24 + 2.0**-27 * bounds * factor + 2.0**-10 * np.abs(wanted)
    assert (np.abs(found - wanted) <= room).all(), given[np.abs(found - wanted) > room]


def test_what_the_device_has_stays() -> None:
    m = Model()
    x = m.relu(m.norm(m.conv(m.x(2, 3, 8, 8), 4)))
    graph = m.graph(m.linear(m.flat(m.pool(x, 4)), 5))
    assert legalised(graph) == graph


def test_items_of_a_batch_are_instructions() -> None:
    m = Model()
    made = select(m.graph(MatMul(m.x(2, 3, 5, 4), m.x(2, 3, 4, 7, name="w")), names=("y",)))
    assert [op.times for op in instructions(made)] == [6]
    assert len(program(made).instructions) == 6


# ---- training with weights that the host reads ----
def test_a_step_of_embeddings_and_attention() -> None:
    """Gradients of what the host looks up come from the host; norms of rows are trained on the device."""
    m = Model(seed=2)
    tokens = Constant(Tensor.of(np.array([[0, 3, 1], [2, 2, 4]], np.int64)))
    x = Gather(m.weight("words", 5, 8), tokens, axis=0)
    x = Add(Add(x, m.x(2, 3, 8)), m.weight("places", 3, 8))
    scores = Softmax(MatMul(x, Transpose(x, (0, 2, 1))), -1)
    y = LayerNorm(Add(x, MatMul(scores, x)), m.weight("gain", 8), m.weight("shift", 8))
    graph = training(m.graph(m.linear(ReduceMean(y, axes=(1,)), 4)), "sgd{lr=0.25 momentum=0.5}")
    states: dict[str, Array] = {i.name: np.zeros(i.shape, np.float32) for i in graph.inputs if i.role == "state"}
    feeds = fed(graph, {**states, "x": _data((2, 3, 8)) / 4, "y": np.array([1, 3])})
    wanted = evaluate(graph, feeds)
    machine = machine_of(program(S2Select().run(graph, Report())), checked=True)
    found = machine.run("step", {name: feeds[name] for name in ("x", "y")})
    close(found["loss"], wanted["loss"], "loss")
    held = {t.name: machine.read(k) for k, t in enumerate(machine.program.tensors) if t.name.endswith(".momentum")}
    names = {f"{w}.momentum" for w in ("words", "places", "gain", "shift", "linear1.w", "linear1.b")}
    assert names <= set(held)
    for name in names:
        close(held[name], wanted[name], name)


# ---- which side computes what both could ----
def _cost(graph: Graph, host: frozenset[str]) -> int:
    """Bytes of the values that cross, and 256 for each of them, once for each direction; outputs go to the device."""
    total = 0
    for op in graph.ops:
        if isinstance(op, Constant):
            continue
        readers = {r.digest in host for r in graph.ops if op in r.operands}
        readers |= {False} if op in graph.outputs else set()
        total += (2 * op.type.size + 256) * ((op.digest not in host) in readers)
    return total


@pytest.mark.parametrize("seed", range(12))
def test_as_little_as_possible_crosses(seed: int) -> None:
    """Against all partitions of a small random graph."""
    random = np.random.default_rng(seed)
    m = Model()
    values: list[Op] = [m.x(2, 8)]
    for k in range(9):
        first, second = (int(random.integers(max(0, len(values) - 3), len(values))) for _ in range(2))
        a, b = values[first], values[second]
        made = Tanh(a), Sigmoid(a), Relu(a), Add(a, b), Add(a, b), Add(a, b)
        values.append(m.linear(a, 8) if k in (3, 7) else made[int(random.integers(6))])
    last = [v for v in values[1:] if not any(v in r.operands for r in values)]
    graph = m.graph(*last, names="abcdefghi"[: len(last)])
    ops = [op for op in graph.ops if op.operands]
    hosted = frozenset(op.digest for op in ops if isinstance(op, Tanh | Sigmoid))
    free = [op.digest for op in ops if isinstance(op, Add | Relu)]
    ends = {op.digest for op in graph.outputs}
    found = moved(ops, hosted, lambda op: isinstance(op, Add | Relu | Tanh | Sigmoid), ends)
    best = min(
        _cost(graph, hosted | {d for d, there in zip(free, chosen, strict=True) if there})
        for chosen in product((False, True), repeat=len(free))
    )
    assert _cost(graph, hosted | found) == best


def test_a_sum_between_functions_is_the_hosts() -> None:
    m = Model()
    x = m.x(2, 8)
    y = Tanh(Add(Sigmoid(m.linear(x, 8)), Sigmoid(m.linear(x, 8))))
    made = program(S2Select().run(m.graph(m.linear(y, 4), names=("y",)), Report()))
    assert len(made.functions) == 1
    alone = program(S2Select().run(m.graph(Add(Reshape(x, to=(2, 8)), m.relu(x)), names=("y",)), Report()))
    assert not alone.functions
