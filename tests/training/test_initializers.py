"""What weights start with: distributions of torch.nn.init, fans by use, streams by name, models without weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from dlc import DlcError, Report, Source
from dlc.base.types import Array, Type, f16, f32, f64, i64
from dlc.graph import Constant, Graph, Input, Op, Tensor, make_graph
from dlc.ops.elementwise import Add, Cast, Mul
from dlc.ops.index import Gather
from dlc.ops.linear import Conv, ConvTranspose, Einsum, Gemm, MatMul
from dlc.ops.normalize import BatchNorm, LayerNorm
from dlc.ops.shape import Reshape, Slice, Transpose
from dlc.passes.autodiff import Autodiff
from dlc.spec import Spec
from dlc.training.step.fans import Fans, fans
from dlc.training.step.initializers import INITIALIZERS, Draw, Drawn, initial_value, parse_initializer
from dlc.training.step.step import initial_values
from dlc.verify.gradient_check import of_loss
from tests.training.nets import NETS, Training, module_of, step_of

INIT: Any = torch.nn.init
SHAPE = (48, 20, 3, 3)
CONV = Type(f32, SHAPE)
"""Of a convolution: fan-in 180, fan-out 432."""
Fill = Callable[[torch.Tensor], object]
CASES: dict[str, Fill] = {
    "uniform{low=-0.25 high=0.5}": lambda t: INIT.uniform_(t, -0.25, 0.5),
    "normal{mean=2 std=0.5}": lambda t: INIT.normal_(t, 2, 0.5),
    "xavier-uniform": INIT.xavier_uniform_,
    "xavier-uniform{gain=2}": lambda t: INIT.xavier_uniform_(t, gain=2),
    "xavier-normal{gain=0.5}": lambda t: INIT.xavier_normal_(t, gain=0.5),
    "kaiming-uniform": INIT.kaiming_uniform_,
    "kaiming-uniform{a=2.5}": lambda t: INIT.kaiming_uniform_(t, a=2.5),
    "kaiming-normal{mode=fan-out nonlinearity=relu}": lambda t: INIT.kaiming_normal_(
        t, mode="fan_out", nonlinearity="relu"
    ),
    **{
        f"kaiming-normal{{nonlinearity={kind}}}": lambda t, kind=kind: INIT.kaiming_normal_(t, nonlinearity=kind)
        for kind in ("linear", "sigmoid", "tanh", "selu")
    },
}


def drawn(text: str, name: str = "w", seed: int = 1, of: Type = CONV) -> Array:
    known = Fans(int(np.prod(of.shape[1:])), of.shape[0] * int(np.prod(of.shape[2:])), True)
    initializer = parse_initializer(text)
    assert isinstance(initializer, Drawn)
    return initial_value(name, of, known, initializer, seed).array()


@pytest.mark.parametrize("text", CASES)
def test_distributions_are_those_of_torch(text: str) -> None:
    got = drawn(text)
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    tensor = torch.empty(SHAPE)
    CASES[text](tensor)
    want = tensor.numpy()
    n = got.size
    assert got.dtype == np.float32
    assert abs(got.mean() - want.mean()) < 5 * want.std() * (2 / n) ** 0.5
    assert abs(got.std() / want.std() - 1) < 5 / n**0.5
    # Kolmogorov and Smirnov: above 2.2·√(2/n) once in ten thousand times.
    both = np.concatenate([got.ravel(), want.ravel()])
    ranks = (np.searchsorted(np.sort(a.ravel()), both, "right") / n for a in (got, want))
    assert np.abs(np.subtract(*ranks)).max() < 2.2 * (2 / n) ** 0.5
    if "uniform" in text:
        spread = want.max() - want.min()
        assert abs(got.max() - want.max()) < 0.002 * spread
        assert abs(got.min() - want.min()) < 0.002 * spread


def test_values_are_a_function_of_seed_name_and_place() -> None:
    first = drawn("normal")
    np.testing.assert_array_equal(first, drawn("normal"))
    for other in (drawn("normal", name="v"), drawn("normal", seed=2)):
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 5 / first.size**0.5
    longer = drawn("normal", of=Type(f32, (96, *SHAPE[1:])))
    np.testing.assert_array_equal(longer[:48], first)
    np.testing.assert_array_equal(drawn("normal", of=Type(f64, SHAPE)).astype(np.float32), first)
    half = drawn("normal", of=Type(f64, SHAPE)).astype(np.float16)
    np.testing.assert_array_equal(drawn("normal", of=Type(f16, SHAPE)), half, strict=True)


FIRST = [0.00862708780914545, 0.07623761892318726, 0.6722592711448669, 0.5021833777427673]
FIRST_NORMAL = [0.1415843367576599, -1.0747195482254028, 0.28874877095222473, -0.7348938584327698]


def test_first_values_stay_what_they_are() -> None:
    of = Type(f32, (2, 2))
    assert drawn("uniform", name="fc.weight", of=of).ravel().tolist() == FIRST
    # Sine and logarithm may differ in the last bit between libraries.
    np.testing.assert_allclose(drawn("normal", name="fc.weight", seed=7, of=of).ravel(), FIRST_NORMAL, rtol=1e-6)


def test_constants_need_no_numbers() -> None:
    assert not drawn("zeros").any()
    assert (drawn("constant{value=0.5}") == 0.5).all()
    assert np.isinf(drawn("constant{value=1e9}", of=Type(f16, (2, 2)))).all()


def weight(*shape: int) -> Constant:
    return Constant(Tensor.of(np.ones(shape, np.float32)), "w")


X = Input("x", Type(f32, (2, 6, 8, 8)))
ROWS = Input("rows", Type(f32, (5, 12)))
LAYERS: dict[str, tuple[Op, Op, Fans]] = {
    "conv": (w := weight(10, 3, 5, 5), Conv(X, w, group=2), Fans(75, 250, True)),
    "conv_transpose": (w := weight(6, 4, 3, 3), ConvTranspose(X, w), Fans(36, 54, True)),
    "gemm": (w := weight(12, 7), Gemm(ROWS, w), Fans(12, 7, True)),
    "gemm_transposed": (w := weight(7, 12), Gemm(ROWS, w, trans_b=True), Fans(12, 7, True)),
    "gemm_left": (w := weight(7, 5), Gemm(w, ROWS), Fans(5, 7, True)),
    "gemm_left_transposed": (w := weight(5, 7), Gemm(w, ROWS, trans_a=True), Fans(5, 7, True)),
    "matmul": (w := weight(12, 7), MatMul(ROWS, w), Fans(12, 7, True)),
    "matmul_left": (w := weight(7, 5), MatMul(w, ROWS), Fans(5, 7, True)),
    "matmul_of_heads": (w := weight(3, 12, 7), MatMul(ROWS, w), Fans(12, 7, True)),
    "matmul_after_transpose": (w := weight(7, 12), MatMul(ROWS, Transpose(w, perm=(1, 0))), Fans(12, 7, True)),
    "matmul_after_slice": (
        w := weight(1, 28, 12),
        MatMul(ROWS, Transpose(Reshape(Slice(w, (0, 7, 0), (1, 7, 12), (1, 1, 1)), to=(7, 12)), perm=(1, 0))),
        Fans(12, 28, True),
    ),
    "matmul_after_cast": (w := weight(12, 7), MatMul(Cast(ROWS, to=f64), Cast(w, to=f64)), Fans(12, 7, True)),
    "matmul_by_one": (w := weight(12, 1), MatMul(ROWS, w), Fans(12, 1, True)),
    "einsum": (w := weight(12, 3, 4), Einsum((ROWS, w), equation="nd,dhk->nhk"), Fans(12, 12, True)),
    "embedding": (w := weight(50, 8), Gather(w, Input("i", Type(i64, (4,)))), Fans(8, 50, False)),
    "position": (w := weight(1, 5, 12), Add(ROWS, w), Fans(60, 12, False)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_fans_follow_from_the_use(name: str) -> None:
    of, output, want = LAYERS[name]
    assert fans({"w": of}, (output,)) == {"w": want}


@pytest.mark.parametrize("name", ["conv", "conv_transpose", "gemm_transposed", "embedding", "position"])
def test_in_its_own_layout_torch_finds_the_same_fans(name: str) -> None:
    of, _, want = LAYERS[name]
    assert INIT._calculate_fan_in_and_fan_out(torch.empty(of.shape)) == (want.fan_in, want.fan_out)


def values(graph: Graph, options: str) -> dict[str, Array]:
    return initial_values(step_of(graph, options))


def test_trained_matrices_begin_anew_and_nothing_else_does() -> None:
    net = NETS["conv"]
    module = module_of(net)
    graph = net.graph(module)
    old, new = values(graph, ""), values(graph, "init=kaiming-uniform{nonlinearity=relu} seed=3 wrt=!6.weight")
    for name, value in module.named_parameters():
        if name == "6.weight":
            assert name not in new
        elif name.endswith("bias"):
            np.testing.assert_array_equal(new[name], value.detach().numpy())
        else:
            assert not np.array_equal(new[name], old[name])
            assert np.abs(new[name]).max() < (6 / np.prod(value.shape[1:])) ** 0.5
    again = values(graph, "init=kaiming-uniform{nonlinearity=relu} seed=3 wrt=0.*")  # other weights, the same values
    np.testing.assert_array_equal(again["0.weight"], new["0.weight"])
    other = values(graph, "init=kaiming-uniform{nonlinearity=relu} seed=4")
    assert not np.array_equal(other["0.weight"], new["0.weight"])


def test_a_network_learns_from_what_it_begins_with() -> None:
    net = NETS["mlp"]
    training = Training(step_of(net.graph(module_of(net)), "optimizer=adam{lr=0.01} init=xavier-normal seed=5"))
    batches = net.batches(4)
    losses = [training(*batches[k % 4]) for k in range(40)]
    assert np.mean(losses[-4:]) < 0.7 * np.mean(losses[:4])


def test_vectors_without_values_begin_with_ones_or_zeros() -> None:
    one, many = Type(f32, (6,)), Type(f32, (6, 6))
    names = ("g", "b", "lg", "lb", "m", "add", "row")
    g, b, lg, lb, m, add, row = (Input(n, one) for n in names)
    w, bias = Input("w", many), Input("bias", Type(f32, (1, 6, 1, 1)))
    mean, var = Constant(Tensor.of(np.zeros(6, np.float32))), Constant(Tensor.of(np.ones(6, np.float32)))
    y = Add(BatchNorm(X, g, b, mean, var), bias)
    y = Mul(y, Reshape(m, to=(6, 1, 1)))
    y = MatMul(Reshape(y, to=(128, 6)), w)
    y = Add(LayerNorm(y, lg, lb), Add(add, row))
    graph = make_graph((X, g, b, lg, lb, m, add, row, w, bias), {"scores": y})
    got = values(graph, f"wrt={','.join((*names, 'w', 'bias'))} init=normal loss=mse")
    assert {n: v.ravel()[0] for n, v in got.items() if n in (*names, "bias")} == {
        **dict.fromkeys(("g", "lg", "m"), 1.0),
        **dict.fromkeys(("b", "lb", "add", "row", "bias"), 0.0),
    }
    assert got["w"].std() > 0.5


def without_weights() -> bytes:
    """An ONNX model whose weights are inputs."""
    nodes = [helper.make_node("Gemm", ["x", "W", "B"], ["y"], transB=1)]
    shapes = {"x": (8, 12), "W": (5, 12), "B": (5,)}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, (8, 5))])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def parsed() -> tuple[Any, Source, Graph]:
    from dlc_frontend_onnx.frontend import Onnx

    source = Source(data=without_weights(), label="bare.onnx")
    return Onnx(), source, Onnx().parse(source, Report())


def test_a_model_without_weights_is_trained_and_written_with_them() -> None:
    frontend, source, graph = parsed()
    step = step_of(graph, "wrt=W,B init=xavier-uniform label=labels optimizer=sgd{lr=0.5}")
    assert [i.name for i in step.inputs] == ["x", "labels", "W", "B", "step"]
    training = initial_values(step)
    assert not training["B"].any()
    assert 0.4 < np.abs(training["W"]).max() < (6 / 17) ** 0.5
    trained = {n: training[n] for n in ("W", "B")}
    back = onnx.load_from_string(frontend.filled(frontend.template(source, ("W", "B")), trained))
    checker: Any = onnx.checker
    checker.check_model(back, full_check=True)
    assert [t.name for t in back.graph.initializer] == ["W", "B"]


def test_gradients_of_a_model_without_weights_are_checked_where_it_begins() -> None:
    *_, graph = parsed()
    text = "autodiff{wrt=W,B init=xavier-uniform seed=3 label=labels}"
    question = of_loss(graph, Autodiff.from_spec(Spec.parse(text)))
    assert [p.name for p in question.ports] == ["x", "labels"]
    start = initial_values(step_of(graph, "wrt=W,B init=xavier-uniform seed=3 label=labels"))
    ((weight, _), _) = question.gradients.values()
    assert isinstance(weight.initial, Tensor)
    np.testing.assert_allclose(weight.initial.array(), start["W"], rtol=1e-6)


def report(graph: Graph, options: str) -> str:
    with pytest.raises(DlcError) as caught:
        Autodiff.from_spec(Spec.parse(f"autodiff{{{options}}}")).run(graph, Report())
    return str(caught.value)


@pytest.mark.parametrize("pattern", ["W", "[WB]"])
def test_inputs_without_values_need_an_initializer(pattern: str) -> None:
    *_, graph = parsed()
    message = report(graph, f'wrt="{pattern}"')
    assert 'inputs of the model have no initial values: "W"' in message
    assert "init=kaiming-uniform" in message


def test_inputs_that_nobody_names_stay_data() -> None:
    *_, graph = parsed()
    assert "the model has no parameters that its output depends on" in report(graph, "init=normal")
    assert 'all inputs of the model would be weights: "x", "W", "B"' in report(graph, 'init=normal wrt="*"')
    step = step_of(graph, 'init=normal wrt="*",!x label=labels')
    assert [i.name for i in step.inputs if i.role == "weight"] == ["W", "B"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("init=kaiming", "there is no initializer"),
        ("init=kaiming-uniform{mode=fan}", "fan-in"),
        ("init=uniform{low=1 high=0}", "low=1.0 is above high=0.0"),
        ("init=normal{std=-1}", "below the least value"),
        ("seed=-1", "below the least value"),
    ],
)
def test_what_is_no_initializer_is_refused_before_a_model_is_read(text: str, message: str) -> None:
    with pytest.raises(DlcError, match=message):
        Autodiff.from_spec(Spec.parse(f"autodiff{{{text}}}"))


def test_every_initializer_has_a_case() -> None:
    tried = {*CASES, "zeros", "constant", "stored"}
    assert {text.partition("{")[0] for text in tried} == set(INITIALIZERS)


def test_names_are_streams_of_their_own() -> None:
    draws = np.stack([Draw(0, f"layers.{k}.weight").uniform(0, 1, (64,)) for k in range(200)])
    assert len({row.tobytes() for row in draws}) == 200
    correlations = np.corrcoef(draws) - np.eye(200)
    assert np.abs(correlations).max() < 6 / 64**0.5
