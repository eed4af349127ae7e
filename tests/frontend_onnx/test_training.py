"""Optimizers and Gradient of ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from building import compare, model_of, parse, reference
from onnx import TensorProto, helper

from dlc import DlcError
from dlc.graph import evaluate

DOMAIN = "ai.onnx.preview.training"
RNG = np.random.default_rng(4)


def f(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, domain=DOMAIN, **attributes)


def model(nodes: list[onnx.NodeProto], feeds: dict[str, Any], outputs: list[str], **constants: Any) -> onnx.ModelProto:
    return model_of(nodes, feeds, outputs, constants, domains=[DOMAIN])


def run(nodes: list[onnx.NodeProto], feeds: dict[str, Any], outputs: list[str], **constants: Any) -> list[Any]:
    got = evaluate(parse(model(nodes, feeds, outputs, **constants)), feeds)
    return [got[name] for name in outputs]


def test_the_node_tests_of_the_standard_pass() -> None:
    found: list[Any] = []
    for kind, modules, where in (
        ("node", ("adam", "adagrad", "momentum"), "_NodeTestCases"),
        ("model", ("gradient",), "_SimpleModelTestCases"),
    ):
        package = f"onnx.backend.test.case.{kind}"
        for module in modules:  # one by one: collecting all of them takes half a minute
            import_module(f"{package}.{module}")
        found += vars(import_module(package))[where]
    words = ("test_ada", "test_momentum", "test_nesterov", "test_gradient")
    cases = {case.name: case for case in found if case.name.startswith(words)}
    assert len(cases) == 9
    for case in cases.values():
        graph = parse(case.model)
        for given, expected in case.data_sets:
            names = [i.name for i in case.model.graph.input]
            got = evaluate(graph, dict(zip(names, map(np.asarray, given), strict=True)))
            for name, want in zip(graph.names, expected, strict=True):
                np.testing.assert_allclose(got[name], want, rtol=case.rtol, atol=case.atol, err_msg=case.name)
                assert got[name].dtype == want.dtype


REST = {"norm_coefficient": 0.01}
OPTIMIZERS: list[tuple[str, int, dict[str, Any]]] = [
    ("Adam", 2, {}),
    ("Adam", 2, {"alpha": 0.8, "beta": 0.95, "epsilon": 1e-3, "norm_coefficient_post": 0.1, **REST}),
    ("Adam", 2, {"alpha": 0.0, "beta": 0.5, **REST}),
    ("Adagrad", 1, {}),
    ("Adagrad", 1, {"decay_factor": 0.1, "epsilon": 1e-2, **REST}),
    ("Momentum", 1, {"alpha": 0.9, "beta": 0.7, "mode": "standard", "norm_coefficient": 0.0}),
    ("Momentum", 1, {"alpha": 0.9, "beta": 0.7, "mode": "nesterov", **REST}),
]


def one_by_one(whole: onnx.ModelProto, outputs: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
    """The reference for each weight by itself, in the weight's type: for several it gives f32 whatever they are."""
    (optimizer,) = whole.graph.node
    count = sum(name.startswith("X") for name in feeds)
    results: list[list[Any]] = []
    for k in range(count):
        names = ["R", "T", *optimizer.input[2 + k :: count]]
        own = outputs[k::count]
        attributes = {a.name: helper.get_attribute_value(a) for a in optimizer.attribute}
        single = model(
            [node(optimizer.op_type, names, list(own), **attributes)], {n: feeds[n] for n in names}, list(own)
        )
        got = reference(single, own, {n: feeds[n] for n in names})
        results.append([np.asarray(v, feeds[f"X{k}"].dtype) for v in got])
    return [of_weight[part] for part in range(len(outputs) // count) for of_weight in results]


@pytest.mark.parametrize(("op", "states", "attributes"), OPTIMIZERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step", [0, 1, 30])
def test_optimizers_equal_the_reference(op: str, states: int, attributes: Any, dtype: Any, step: int) -> None:
    for shapes in ([(3, 2)], [(2,), (4, 1), ()]):
        feeds = {"R": np.asarray(0.1, dtype), "T": np.asarray(step)}
        for kind in ("X", "G", *(f"S{s}_" for s in range(states))):
            for k, shape in enumerate(shapes):
                value = np.asarray(f(*shape, dtype=dtype))
                feeds[f"{kind}{k}"] = np.abs(value) if kind.startswith("S") else value
        outputs = [f"y{k}" for k in range(len(shapes) * (1 + states))]
        compare(model([node(op, list(feeds), outputs, **attributes)], feeds, outputs), feeds, one_by_one, 1e-5, 1e-6)


MIXED = [
    helper.make_node("MatMul", ["x", "w"], ["h"]),
    helper.make_node("Tanh", ["h"], ["a"]),
    helper.make_node("Mul", ["a", "h"], ["m"]),
    helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0),
]


def mixed(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = x @ w
    return h, (torch.tanh(h) * h).sum()


def leaf(array: Any) -> torch.Tensor:
    return torch.tensor(array, requires_grad=True)


def test_gradients_equal_those_of_torch() -> None:
    feeds = {"x": f(3, 4), "w": f(4, 2)}
    # First in the file: what it differentiates is found all the same.
    nodes = [node("Gradient", ["w", "x"], ["dw", "dx"], xs=["w", "x"], y="y"), *MIXED]
    dw, dx, y = run(nodes, feeds, ["dw", "dx", "y"])
    x, w = leaf(feeds["x"]), leaf(feeds["w"])
    _, loss = mixed(x, w)
    wanted = (*torch.autograd.grad(loss, [w, x]), loss.detach())
    for got, want in zip((dw, dx, y), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_gradient_by_a_value_between() -> None:
    feeds = {"x": f(3, 4), "w": f(4, 2)}
    (dh,) = run([*MIXED, node("Gradient", ["h"], ["dh"], xs=["h"], y="y")], feeds, ["dh"])
    h = leaf(feeds["x"] @ feeds["w"])
    (want,) = torch.autograd.grad((torch.tanh(h) * h).sum(), [h])
    np.testing.assert_allclose(dh, want, rtol=1e-5, atol=1e-6)


def test_a_gradient_at_other_values() -> None:
    feeds = {"x": f(3, 4), "w": f(4, 2), "x1": f(3, 4), "w1": f(4, 2)}
    nodes = [*MIXED, node("Gradient", ["w1", "x1"], ["dw"], xs=["w"], zs=["x"], y="y")]
    (dw,) = run(nodes, feeds, ["dw"])
    w = leaf(feeds["w1"])
    (want,) = torch.autograd.grad(mixed(torch.tensor(feeds["x1"]), w)[1], [w])
    np.testing.assert_allclose(dw, want, rtol=1e-5, atol=1e-6)


def test_second_derivatives() -> None:
    """The specification's example: the gradient of a gradient by all variables."""
    feeds = {"x": f(3, 4), "w": f(4, 2)}
    nodes = [
        *MIXED,
        node("Gradient", ["x", "w"], ["dx", "dw"], xs=["x", "w"], y="y"),
        node("Gradient", ["x", "w"], ["dwdx", "dwdw"], xs=["x", "w"], y="dw"),
    ]
    got = run(nodes, feeds, ["dwdx", "dwdw"])
    x, w = leaf(feeds["x"]), leaf(feeds["w"])
    (dw,) = torch.autograd.grad(mixed(x, w)[1], [w], create_graph=True)
    for have, want in zip(got, torch.autograd.grad(dw.sum(), [x, w]), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def test_derivatives_end_at_an_order() -> None:
    feeds = {"x": np.array([0.5, -2], np.float32)}
    nodes = [helper.make_node("Sin", ["x"], ["y0"])]
    nodes += [node("Gradient", ["x"], [f"y{k + 1}"], xs=["x"], y=f"y{k}") for k in range(12)]
    (fourth,) = run(nodes, feeds, ["y4"])
    np.testing.assert_allclose(fourth, np.sin(feeds["x"]), rtol=1e-6)
    for last in (5, 12):
        text = refused(nodes, feeds, [f"y{last}"])
        assert "a derivative of an order above 4" in text
        assert text.count("error[") == 1


def test_equal_constants_are_different_variables() -> None:
    """Two biases that both start at zero are one op in the graph, and yet each has a gradient of its own."""
    zero, feeds = np.zeros(3, np.float32), {"x": f(2, 3)}
    nodes = [
        helper.make_node("Add", ["x", "b"], ["s"]),
        helper.make_node("Mul", ["s", "s"], ["q"]),
        helper.make_node("Add", ["q", "c"], ["t"]),
        helper.make_node("Add", ["t", "frozen"], ["y"]),
        node("Gradient", ["b", "c"], ["db", "dc"], xs=["b", "c"], y="y"),
    ]
    db, dc = run(nodes, feeds, ["db", "dc"], b=zero, c=zero, frozen=zero)
    np.testing.assert_allclose(db, 2 * feeds["x"].sum(0), rtol=1e-5)
    np.testing.assert_allclose(dc, [2, 2, 2])


def test_outputs_may_be_left_out_and_gradients_be_zero() -> None:
    feeds = {"a": f(2), "b": f(3)}
    nodes = [
        helper.make_node("Exp", ["a"], ["y"]),
        node("Gradient", ["a", "b"], ["", "db"], xs=["a", "b"], y="y"),
        node("Gradient", ["y"], ["dy"], xs=["y"], y="y"),
    ]
    db, dy = run(nodes, feeds, ["db", "dy"])
    assert db.tolist() == [0, 0, 0]
    assert dy.tolist() == [1, 1]


def test_a_gradient_in_a_branch_sees_the_nodes_around() -> None:
    inner = node("Gradient", ["a"], ["da"], xs=["a"], y="y")
    of = helper.make_tensor_value_info("da", TensorProto.FLOAT, [2])
    branch = helper.make_graph([inner], "then", [], [of])
    chosen = helper.make_node("If", ["yes"], ["out"], then_branch=branch, else_branch=branch)
    feeds = {"a": f(2)}
    nodes = [helper.make_node("Exp", ["a"], ["y"]), chosen]
    (da,) = run(nodes, feeds, ["out"], yes=np.array(True))
    np.testing.assert_allclose(da, np.exp(feeds["a"]), rtol=1e-6)


def refused(nodes: list[onnx.NodeProto], feeds: dict[str, Any], outputs: list[str]) -> str:
    with pytest.raises(DlcError) as caught:
        parse(model(nodes, feeds, outputs))
    return str(caught.value)


def test_what_is_malformed_is_reported() -> None:
    x = {"x": f(2), "n": np.array([1, 2])}
    exp = helper.make_node("Exp", ["x"], ["y"])
    text = refused([exp, node("Gradient", ["x"], ["d"], xs=["x"], zs=["n"], y="y")], x, ["d"])
    assert "1 operands for 1 names in xs and 1 in zs" in text
    text = refused([exp, node("Gradient", ["x"], ["d"], xs=["x"], y="z")], x, ["d"])
    assert "it names z, which nothing before it computes" in text
    text = refused([exp, node("Gradient", ["n"], ["d"], xs=["n"], y="y")], x, ["d"])
    assert "n is i64[2]: only floats have gradients" in text
    text = refused([node("Adagrad", ["x", "n", "x", "x"], ["d", "h"])], x, ["d", "h"])
    assert "4 operands for an optimizer with states per weight: 1" in text
    attributes = {"alpha": 0.9, "beta": 0.9, "mode": "fast", "norm_coefficient": 0.0}
    text = refused([node("Momentum", ["x", "n", "x", "x", "x"], ["d", "h"], **attributes)], x, ["d", "h"])
    assert "mode fast is neither standard nor nesterov" in text


def test_what_is_differentiated_and_refused_is_reported_once() -> None:
    nodes = [
        helper.make_node("Multinomial", ["x"], ["u"], name="drawn"),
        helper.make_node("Exp", ["u"], ["y"]),
        node("Gradient", ["x"], ["d"], xs=["x"], y="y"),
    ]
    text = refused(nodes, {"x": f(2)}, ["d"])
    assert text.count("error[") == 1
    assert "Multinomial, 1 node" in text
