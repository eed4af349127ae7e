"""Ops that hold graphs: text, verification, values and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from dlc.base.diagnostics import DlcError
from dlc.base.types import Type, f32
from dlc.driver.state_text import op_classes
from dlc.graph import Graph, If, Input, Loop, Op, Scan, Splat, evaluate, make_graph, parse_graph, print_graph, verify
from dlc.graph.bodies import CONDITION, COUNTER, body_of
from dlc.graph.gradient import gradients
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Add
from dlc.plugins.discovery import load_registry
from tests.graph.regions import CASES, VECTOR, Array, Case, I, expected, recurrent

EVERY = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def ops() -> Mapping[str, type[Op]]:
    return op_classes(load_registry())


@EVERY
def test_text_and_verification(name: str, ops: Mapping[str, type[Op]]) -> None:
    graph = CASES[name][0].graph
    text = print_graph(graph)
    again = parse_graph(text, ops)
    assert again.digest == graph.digest
    assert print_graph(again) == text
    assert not verify(graph)


@EVERY
def test_values_are_those_of_pytorch(name: str) -> None:
    case, runs = CASES[name]
    for feeds in runs:
        for key, want in expected(case, feeds).items():
            # Sums are in another order on every processor, and 300 steps add up what that gives.
            np.testing.assert_allclose(evaluate(case.graph, feeds)[key], want, rtol=1e-5, atol=1e-5, err_msg=key)


def differentiated(case: Case) -> tuple[Graph, list[str]]:
    """The gradient of ⟨outputs, seeds⟩ by every float input, as a graph, and the outputs with a seed."""
    graph = case.graph
    floats = [(n, y) for n, y in zip(graph.names, graph.outputs, strict=True) if y.dtype.is_float and n != "z"]
    seeds = [Input(f"seed {n}", y.type) for n, y in floats]
    wrt = [i for i in graph.inputs if i.dtype.is_float]
    found = gradients([y for _, y in floats], seeds, wrt)
    names = [i.name for i in wrt]
    return make_graph((*graph.inputs, *seeds), dict(zip(names, found, strict=True))), [n for n, _ in floats]


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("scan", "branch"))])
def test_gradients_are_those_of_pytorch(name: str) -> None:
    case, runs = CASES[name]
    graph, seeded = differentiated(case)
    assert not verify(graph)
    for feeds in runs:
        random = np.random.default_rng(1)
        seeds = {i.name: random.standard_normal(i.shape).astype(np.float32) for i in graph.inputs[-len(seeded) :]}
        got = evaluate(graph, {**feeds, **seeds})
        args = {i.name: torch.tensor(feeds[i.name], requires_grad=i.dtype.is_float) for i in case.graph.inputs}
        results = dict(zip(case.graph.names, case.torch(*args.values()), strict=True))
        total: Any = sum((results[n] * torch.tensor(seeds[f"seed {n}"])).sum() for n in seeded)
        total.backward()
        for key, have in got.items():
            grad = args[key].grad
            want = np.zeros(have.shape) if grad is None else grad.numpy()
            np.testing.assert_allclose(have, want, rtol=2e-4, atol=1e-5, err_msg=key)


def test_a_second_derivative_of_a_scan() -> None:
    """Stored values have cotangents then."""
    case = recurrent(3)
    h, x, w = case.graph.inputs
    one = Splat(1.0, VECTOR)
    (first,) = gradients(case.graph.outputs[:1], (one,), (h,))
    second = gradients((first,), (one,), (h, x, w))
    graph = make_graph(case.graph.inputs, dict(zip("hxw", second, strict=True)))
    feeds = case.feeds()
    args = [torch.tensor(feeds[i.name], dtype=torch.float64, requires_grad=True) for i in case.graph.inputs]
    (inner,) = torch.autograd.grad(case.torch(*args)[0].sum(), args[0], create_graph=True)
    want = torch.autograd.grad(inner.sum(), args)
    got = evaluate(graph, feeds)
    for key, grad in zip("hxw", want, strict=True):
        np.testing.assert_allclose(got[key], grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_loop_of_unknown_length_has_no_gradient() -> None:
    case = next(c for n, (c, _) in CASES.items() if n.startswith("loop"))
    with pytest.raises(DlcError, match="how often it runs is known at run time only") as caught:
        gradients(case.graph.outputs, (Splat(1.0, VECTOR),), case.graph.inputs[-1:])
    assert "constant number of iterations" in caught.value.diagnostics[0].help


def test_the_graph_of_a_scan_is_not_larger_for_more_steps() -> None:
    small, large = (print_graph(differentiated(recurrent(n))[0]) for n in (5, 5000))
    assert len(large.splitlines()) == len(small.splitlines())


BODY = body_of((I, Input("c0", VECTOR)), (Add(Input("c0", VECTOR), Input("c0", VECTOR)),), {})
ONCE = body_of((Input("v0", VECTOR),), (Input("v0", VECTOR),), {})
C, ROWS = Input("c", VECTOR), Input("rows", Type(f32, (4, 3)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Scan((C,), (), (), BODY, -1), "-1 iterations"),
        (lambda: Scan((C,), (ROWS,), (), BODY, 3), "has not 3 rows"),
        (lambda: Scan((C,), (ROWS,), (), BODY, 4), "body takes"),
        (lambda: Loop(C, None, (C,), (), BODY), "number of iterations is f32"),
        (lambda: Loop(None, C, (C,), (), BODY), "condition is f32"),
        (lambda: Loop(None, None, (C,), (), BODY), "where (bool[], f32[3]) are handed on"),
        (lambda: If(C, (C,), ONCE, ONCE), "condition is f32"),
        (lambda: If(Input("b", CONDITION), (ROWS,), ONCE, ONCE), "then takes"),
    ],
)
def test_bodies_that_do_not_fit(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(ShapeError) as caught:
        make()
    assert words in str(caught.value)


def test_a_body_reads_its_own_inputs_only() -> None:
    leaking = body_of((I, Input("c0", VECTOR)), (Add(Input("c0", VECTOR), C),), {})
    graph = make_graph((C,), {"y": Scan((C,), (), (), leaking, 2)})
    assert [d.message for d in verify(graph)] == ["input 'c' is read but not declared"]


def test_equal_bodies_are_one_digest() -> None:
    assert recurrent(4).graph.digest == recurrent(4).graph.digest != recurrent(5).graph.digest


def test_bodies_nested_too_deeply_in_a_text(ops: Mapping[str, type[Op]]) -> None:
    line = 'graph(%0 "c0": f32[]) {\n %1 = scan([%0], [], []) steps=1 body='
    with pytest.raises(DlcError, match="nested deeper than"):
        parse_graph(line * 100, ops)
    wrong = 'graph(%0 "c": f32[]) {\n %1 = scan([%0], [], []) steps=1 body=3\n return %1 "y"\n}'
    with pytest.raises(DlcError, match="'body' must be a graph"):
        parse_graph(wrong, ops)


def test_an_empty_scan_gives_what_it_was_given() -> None:
    feeds: dict[str, Array] = {**recurrent(0).feeds()}
    found = evaluate(recurrent(0).graph, feeds)
    assert np.array_equal(found["last"], feeds["h"])
    assert found["y"].shape == (0, 3)
    assert COUNTER.shape == found["k"].shape
