"""Passes on integers and truth values are exact: what holds for real numbers but not modulo 2ⁿ is not applied."""

from collections.abc import Callable
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.report import Report
from dlc.base.types import DType, Type, bool_, i8, i32, i64, u8
from dlc.graph import Constant, Graph, Input, Op, Splat, Tensor, evaluate, verify
from dlc.ops.elementwise import (
    Abs,
    Add,
    And,
    Cast,
    Clip,
    Div,
    Equal,
    Less,
    Maximum,
    Minimum,
    Mod,
    Mul,
    Neg,
    Not,
    Or,
    Pow,
    Relu,
    Sign,
    Sub,
    Where,
    Xor,
)
from dlc.ops.reduce import CumSum, ReduceMax, ReduceMin, ReduceSum
from dlc.ops.shape import Transpose
from tests.passes.test_properties import graph_of, stages

NUMBERS = (i8, u8, i32, i64)
SHAPE = (2, 3)


def constant(random: Random, dtype: DType) -> Op:
    low, high = dtype.limits
    edge = [v for v in (low, -2, -1, 0, 1, 2, 3, high) if low <= v <= high]
    if random.random() < 0.5:
        value = random.choice(edge)
        return Splat(bool(value) if dtype is bool_ else value, Type(dtype, random.choice(((), SHAPE))))
    values = [random.choice(edge) for _ in range(6)]
    return Constant(Tensor.of(np.array(values).astype(dtype.numpy).reshape(SHAPE), dtype))


def arithmetic(random: Random, a: Op, b: Op) -> Op:
    one = Splat(1, Type(b.dtype, ()))
    nonzero = Maximum(b, one)  # what a division by zero gives is the machine's choice
    kinds: tuple[Callable[[], Op], ...] = (
        lambda: Add(a, b),
        lambda: Sub(a, b),
        lambda: Mul(a, b),
        lambda: Minimum(a, b),
        lambda: Maximum(a, b),
        lambda: Div(a, nonzero),
        lambda: Mod(a, nonzero, fmod=random.random() < 0.5),
        lambda: Pow(a, Splat(random.randint(0, 2), Type(a.dtype, ()))),
        lambda: Relu(a),
        lambda: Clip(a, low=random.choice((None, 0, 1)), high=random.choice((None, 2, 100))),
        lambda: Cast(a, to=random.choice(NUMBERS)),
        lambda: Cast(Cast(a, to=random.choice(NUMBERS)), to=random.choice(NUMBERS)),
        lambda: Where(Equal(a, b), b, a),
        lambda: Cast(Less(a, b), to=random.choice(NUMBERS)),
        lambda: Sub(a, a),
        lambda: random.choice((ReduceSum, ReduceMax, ReduceMin))(a, axes=(1,), keep=True),
        lambda: CumSum(a, axis=1),
        lambda: Transpose(Transpose(a, perm=(1, 0)), perm=(1, 0)),
    )
    signed = (lambda: Neg(a), lambda: Abs(a), lambda: Sign(a), lambda: Sub(a, Neg(b)), lambda: Neg(Neg(a)))
    return random.choice((*kinds, *(signed if a.dtype.kind == "int" else ())))()


def logic(random: Random, a: Op, b: Op) -> Op:
    forms = (And(a, b), Or(a, b), Xor(a, b), Not(a), Where(a, b, a), And(a, Not(Not(a))), Cast(a, to=bool_))
    return random.choice(forms)


def integer_graph(seed: int, ops: int) -> Graph:
    random = Random(seed)
    dtypes = random.sample((*NUMBERS, bool_), 2)
    inputs = [Input(f"x{k}", Type(t, SHAPE)) for k, t in enumerate(dtypes)]
    values: list[Op] = [*inputs]
    origins: dict[str, tuple[str, ...]] = {}
    for k in range(ops):
        a = random.choice(values[-3:])
        fitting = [v for v in values if v.dtype is a.dtype]
        b = random.choice(fitting) if random.random() < 0.5 else constant(random, a.dtype)
        if b.shape == SHAPE and random.random() < 0.5:
            a, b = b, a
        made = logic(random, a, b) if a.dtype is bool_ else arithmetic(random, a, b)
        if made.shape == SHAPE:
            values.append(made)
            origins[made.digest] = (f"node{k}",)
    return Graph(tuple(inputs), (values[-1],), ("y",), origins=origins)


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(st.builds(integer_graph, st.integers(0, 2**32), st.integers(1, 10)), st.integers(0, 2**32))
def test_integers_are_exact_in_any_pipeline(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = {
        i.name: rng.choice([i.dtype.limits[0], 0, 1, 2, 3, i.dtype.limits[1]], i.shape).astype(i.dtype.numpy)
        for i in graph.inputs
    }
    want = evaluate(graph, values)["y"]
    state: object = graph
    for step in stages(Random(seed)):
        state = step.run(state, Report())
        after = graph_of(state)
        assert verify(after, "ops" if step.level_out == "ops" else "kernels") == ()
        got = evaluate(after, values)["y"]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want, err_msg=f"after {step}")
