"""Gradients of graphs: chains, forks, several outputs, composites, ops that name their own, and what has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from dlc import DlcError, gradients
from dlc.base.types import Array, Type, f32, f64, i64
from dlc.graph import Call, Constant, Input, Item, Op, Splat, Tensor, evaluate, make_graph, toposort
from dlc.graph.gradient import sweep
from dlc.kernel.define import Comp, comp, grid
from dlc.kernel.expr import apply
from dlc.kernel.text import parse_kernel
from dlc.ops.elementwise import Add, Cast, Div, Exp, Floor, Mul, Neg, Sigmoid, Sub, Tanh
from dlc.ops.linear import Conv, MatMul
from dlc.ops.normalize import BatchNorm, GroupNorm, LayerNorm, LogSoftmax, RmsNorm, Softmax
from dlc.ops.reduce import ReduceSum
from dlc.ops.shape import Concat, Reshape, Slice, Transpose
from tests.graph.opaque import Opaque

X = Input("x", Type(f64, (3, 4)))
Y = Input("y", Type(f64, (3, 4)))
V = Input("v", Type(f64, (4,)))


def values(ops: Sequence[Input], seed: int = 0) -> dict[str, Array]:
    """Values in [0.5, 2): away from the places where functions are not defined or have a corner."""
    rng = np.random.default_rng(seed)
    return {i.name: rng.uniform(0.5, 2.0, i.shape).astype(i.dtype.numpy) for i in ops}


def inputs_of(*ops: Op) -> tuple[Input, ...]:
    return tuple(op for op in toposort(ops) if isinstance(op, Input))


def at(ops: Mapping[str, Op], feeds: Mapping[str, Array]) -> dict[str, Array]:
    found = inputs_of(*ops.values())
    return evaluate(make_graph(found, ops), {i.name: feeds[i.name] for i in found})


def differences(outputs: Sequence[Op], weights: Sequence[Array], wrt: Input, feeds: Mapping[str, Array]) -> Array:
    """Central differences of Σ ⟨output, weight⟩, which are exact up to the third derivative."""

    def value(x: Array) -> float:
        found = at({str(k): o for k, o in enumerate(outputs)}, {**feeds, wrt.name: x})
        return sum(float((found[str(k)] * w).sum()) for k, w in enumerate(weights))

    out = np.zeros(wrt.shape)
    for place in np.ndindex(*wrt.shape):
        step = np.zeros(wrt.shape)
        step[place] = 1e-5
        out[place] = (value(feeds[wrt.name] + step) - value(feeds[wrt.name] - step)) / 2e-5
    return out


def check(*outputs: Op, wrt: Sequence[Input] = ()) -> tuple[Op, ...]:
    """Assert that gradients equal finite differences; the gradients."""
    wrt = wrt or inputs_of(*outputs)
    seeds = [Input(f"seed{k}", o.type) for k, o in enumerate(outputs)]
    found = gradients(outputs, seeds, wrt)
    assert [g.type for g in found] == [w.type for w in wrt]
    feeds = values([*inputs_of(*outputs), *seeds, *wrt])
    got = at({f"g{k}": g for k, g in enumerate(found)}, feeds)
    for k, w in enumerate(wrt):
        want = differences(outputs, [feeds[s.name] for s in seeds], w, feeds)
        np.testing.assert_allclose(got[f"g{k}"], want, rtol=1e-7, atol=1e-7, err_msg=w.name)
    return found


def test_a_chain() -> None:
    check(Tanh(Exp(Neg(X))))


def test_a_fork_adds_up() -> None:
    check(Add(Mul(X, Y), Exp(X)))


def test_a_value_that_is_read_twice_by_one_op_counts_twice_but_has_one_derivative() -> None:
    (dx,) = check(Mul(X, X))
    assert isinstance(dx, Call)
    assert len(dx.body.results) == 1


def test_a_wide_fork_is_added_in_a_fixed_order() -> None:
    y: Op = X
    for k in range(6):
        y = Add(y, Mul(Exp(X), Splat(float(k + 1), X.type)))
    check(y)
    seed = Input("seed", y.type)
    assert gradients((y,), (seed,), (X,)) == gradients((y,), (seed,), (X,))


def test_broadcasting_is_summed() -> None:
    check(Mul(Add(X, V), V))


def test_products_of_matrices_and_convolutions() -> None:
    a, b = Input("a", Type(f64, (3, 4))), Input("b", Type(f64, (4, 2)))
    check(MatMul(Tanh(MatMul(a, b)), Transpose(b, perm=(1, 0))))
    image, weight = Input("image", Type(f64, (1, 2, 5, 5))), Input("weight", Type(f64, (3, 2, 3, 3)))
    check(Conv(image, weight, Input("b", Type(f64, (3,))), pads=(1, 1, 1, 1), stride=(2, 1)))


def test_movement() -> None:
    y = Concat((Reshape(X, to=(4, 3)), Transpose(X, perm=(1, 0))), axis=1)
    check(Mul(y, y))


def test_several_outputs_and_seeds() -> None:
    t = Exp(X)
    check(Mul(t, Y), Sub(t, V), wrt=(X, Y, V))


def test_one_output_twice_has_two_seeds() -> None:
    check(Exp(X), Exp(X))


def test_an_input_that_is_an_output_receives_its_seed() -> None:
    seed = Input("seed", X.type)
    assert gradients((X,), (seed,), (X,)) == (seed,)


def test_cotangents_that_pass_through_make_no_calls() -> None:
    seed = Input("seed", X.type)
    assert gradients((Add(X, Y),), (seed,), (X, Y)) == (seed, seed)


def test_what_no_output_depends_on_has_zeros() -> None:
    seed = Input("seed", X.type)
    assert gradients((Exp(X),), (seed,), (Y, V)) == (Splat(0.0, Y.type), Splat(0.0, V.type))
    assert gradients((Floor(X),), (seed,), (X,)) == (Splat(0.0, X.type),)


def test_only_the_way_to_wrt_is_followed() -> None:
    """Another input's cotangents are not made, and what only they would read is not there."""
    seed = Input("seed", X.type)
    (dx,) = gradients((Mul(Exp(X), Tanh(Y)),), (seed,), (X,))
    read = toposort((dx,))
    assert Tanh(Y) in read
    assert sum(isinstance(op, Call) for op in read) == 2


def test_integers_end_the_way() -> None:
    seed = Input("seed", X.type)
    y = Cast(Cast(X, to=i64), to=f64)
    assert gradients((y,), (seed,), (X,)) == (Splat(0.0, X.type),)


def test_by_a_value_in_the_middle_and_by_what_it_is_computed_from() -> None:
    t = Exp(X)
    seed = Input("seed", X.type)
    dt, dx = gradients((Mul(t, t),), (seed,), (t, X))
    feeds = values([X, seed])
    got = at({"t": dt, "x": dx}, feeds)
    e = np.exp(feeds["x"])
    np.testing.assert_allclose(got["t"], 2 * e * feeds["seed"])
    np.testing.assert_allclose(got["x"], 2 * e * e * feeds["seed"])


COMPOSITES = {
    "softmax": Softmax(X, axis=-1),
    "log_softmax": LogSoftmax(X, axis=-1),
    "layer_norm": LayerNorm(X, V, Input("bias", V.type)),
    "rms_norm": RmsNorm(X, V),
    "group_norm": GroupNorm(
        Input("g", Type(f64, (2, 4, 3))), Input("scale", Type(f64, (4,))), Input("bias", Type(f64, (4,))), groups=2
    ),
    "batch_norm": BatchNorm(
        Input("b", Type(f64, (2, 4, 3))),
        Input("scale", V.type),
        Input("bias", V.type),
        Input("mean", V.type),
        Input("var", V.type),
    ),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_by_their_expansion(name: str) -> None:
    y = COMPOSITES[name]
    check(Mul(y, y))


class Gate(Op):
    """y = x · sigmoid(x), as a composition."""

    x: Op

    def expand(self) -> Op:
        return Mul(self.x, Sigmoid(self.x))


def test_forward_and_backward_share_the_parts_of_a_composite() -> None:
    y = Gate(X)
    seed = Input("seed", X.type)
    (dx,) = gradients((Mul(y, y),), (seed,), (X,))
    assert Sigmoid(X) in toposort((dx,))
    assert y not in toposort((dx,))


def test_what_does_not_depend_on_wrt_stays_whole() -> None:
    (dx,) = gradients((Mul(X, Gate(Y)),), (Input("seed", X.type),), (X,))
    assert Gate(Y) in toposort((dx,))


class Cube(Op):
    """y = x³, with a gradient of its own."""

    x: Op
    decline: bool = False

    def expand(self) -> Op:
        return Mul(self.x, Mul(self.x, self.x))

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        (seed,) = seeds
        assert seed is not None
        three = Splat(3.0, self.type)
        return None if self.decline else (Mul(three, Mul(seed, Mul(self.x, self.x))),)


def test_an_op_may_name_its_gradient_or_decline() -> None:
    seed = Input("seed", X.type)
    assert gradients((Cube(X),), (seed,), (X,)) == tuple(Cube(X).vjp(seed) or ())
    check(Cube(Exp(X)))
    check(Cube(Exp(X), decline=True))


class Wrong(Op):
    """y = x, with a gradient that does not fit."""

    x: Op
    count: int = 1

    def define(self, *params: Any) -> Comp:
        (x,) = params
        i = grid(x.shape)
        return comp(i, x[i])

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        return (Splat(0.0, Type(f64, (1,))),) * self.count


@pytest.mark.parametrize(("count", "reason"), [(1, "which is f64[3,4]"), (2, "2 cotangents for 1 operands")])
def test_a_gradient_that_does_not_fit_is_reported(count: int, reason: str) -> None:
    with pytest.raises(DlcError, match="wrong, 1 node: its vjp gives") as refused:
        gradients((Wrong(X, count),), (Splat(1.0, X.type),), (X,))
    assert reason in str(refused.value)


def test_everything_without_a_gradient_is_reported_at_once() -> None:
    first, second, third = Opaque(X), Opaque(Exp(X)), Wrong(X, 2)
    y = Add(Add(first, second), third)
    origins = {first.digest: ("a",), second.digest: ("b",), third.digest: ("c",)}
    with pytest.raises(DlcError) as refused:
        sweep((y,), (Splat(1.0, y.type),), (X,), origins)
    assert {d.code for d in refused.value.diagnostics} == {"no-gradient"}
    output = {d.message.partition(":")[0]: d for d in refused.value.diagnostics}
    assert set(output) == {"opaque, 2 nodes", "wrong, 1 node"}
    assert sorted(output["opaque, 2 nodes"].notes[0].removeprefix("nodes: ").split(", ")) == ["a", "b"]
    assert output["wrong, 1 node"].location is not None
    assert output["wrong, 1 node"].location.node == "c"


def test_an_op_without_a_gradient_beside_the_way_does_not_matter() -> None:
    check(Mul(X, Opaque(Y)), wrt=(X,))


def test_what_does_not_fit_together_is_refused() -> None:
    seed = Input("seed", X.type)
    with pytest.raises(ValueError, match="1 outputs have 2 seeds"):
        gradients((X,), (seed, seed), (X,))
    with pytest.raises(ValueError, match=r"seed 0 is f64\[4\], the output is f64\[3,4\]"):
        gradients((X,), (V,), (X,))
    with pytest.raises(ValueError, match="only floats have gradients"):
        gradients((X,), (seed,), (Input("i", Type(i64, (2,))),))


TWO = """kernel(f64[3,4], f64[4]) -> (f64[3,4], f64[3]) {
  r0[i,j] = p0[i,j]*p1[j]
  j<4: r1[i] += exp(p0[i,j])
}"""


def test_calls_with_several_results() -> None:
    call = Call(parse_kernel(TWO), (X, V))
    first, second = Item(call, 0), Item(call, 1)
    check(Mul(first, first), Mul(second, second))


def test_a_result_that_nobody_differentiates_costs_nothing() -> None:
    call = Call(parse_kernel(TWO), (X, V))
    (dx, dv) = check(Item(call, 1), wrt=(X, V))
    assert dv == Splat(0.0, V.type)
    assert [r for op in toposort((dx,)) if isinstance(op, Call) for r in op.body.results] != []
    assert V not in toposort((dx,))


def test_a_second_derivative_is_the_gradient_of_a_gradient() -> None:
    seed = Input("seed", X.type)
    (dx,) = gradients((Mul(Sigmoid(X), Mul(X, X)),), (seed,), (X,))
    check(dx, wrt=(X, seed))


def test_new_ops_come_from_where_their_op_came_from() -> None:
    t = Exp(X)
    y = Div(t, Y)
    found = sweep((y,), (Input("seed", y.type),), (X, Y), {t.digest: ("t",), y.digest: ("y",)})
    calls = [op for op in toposort(found.gradients) if isinstance(op, Call)]
    assert {found.origins[c.digest] for c in calls} == {("t",), ("y",)}


def test_the_gradient_of_a_long_chain_is_made_without_recursion() -> None:
    y: Op = Input("x", Type(f32, (2,)))
    x = y
    for _ in range(3000):
        y = Tanh(y)
    (dx,) = gradients((y,), (Splat(1.0, y.type),), (x,))
    assert len(toposort((dx,))) > 6000


def test_slices_feed_back_to_their_places() -> None:
    check(Exp(Slice(X, starts=(0, 1), sizes=(2, 2), steps=(1, 2))))


def test_a_sum_to_a_scalar() -> None:
    y = ReduceSum(Mul(X, X), axes=(0, 1), keep=False)
    check(y)


def test_a_constant_operand_is_part_of_the_derivative() -> None:
    weight = Constant(Tensor.of(np.arange(12.0).reshape(3, 4)))
    check(Mul(Exp(X), weight))


class Power(Op):
    """y = x^n by a definition that asks for no second operand."""

    x: Op
    n: float = 2.0

    def define(self, *params: Any) -> Comp:
        (x,) = params
        i = grid(x.shape)
        return comp(i, apply("pow", x[i], self.n))


def test_a_definition_is_differentiated() -> None:
    check(Power(X, 2.5))
