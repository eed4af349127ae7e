"""Branches and loops on S2Train: of known length they are unrolled, others are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlc import DlcError, Source
from dlc.base.types import Type, f32, i64
from dlc.driver.program import Compiler
from dlc.graph import Graph, Input, Loop, Scan, Splat, make_graph, print_graph
from dlc.graph.bodies import CONDITION, COUNTER, body_of
from dlc.ops.elementwise import Add, Relu
from dlc.ops.linear import MatMul

ROW = Type(f32, (1, 16))
I = Input("i", COUNTER)  # noqa: E741
WEIGHTS = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32) / 4


def source(graph: Graph) -> Source:
    return Source(data=print_graph(graph).encode(), label="model.dlc")


def test_a_scan_is_unrolled() -> None:
    """h = relu(h w + x[t])."""
    c, x = Input("c0", ROW), Input("x0", ROW)
    w = Input("v0", Type(f32, (16, 16)))
    body = body_of((I, c, x, w), (Relu(Add(MatMul(c, w), x)),), {})
    given = Input("h", ROW), Input("x", Type(f32, (3, 1, 16))), Input("w", Type(f32, (16, 16)))
    graph = make_graph(given, {"y": Scan((given[0],), (given[1],), (given[2],), body, 3)})
    program = Compiler.open().program(source(graph), "s2train")
    random = np.random.default_rng(1)
    feeds = {"h": random.standard_normal((1, 16)), "x": random.standard_normal((3, 1, 16)), "w": WEIGHTS}
    feeds = {n: v.astype(np.float32) for n, v in feeds.items()}
    h, xs, ws = (torch.tensor(feeds[n]) for n in "hxw")
    for row in xs:
        h = torch.relu(h @ ws + row)
    np.testing.assert_allclose(program(out=None, **feeds)["y"], h.numpy(), rtol=1e-2, atol=1e-2)


def test_a_loop_of_unknown_length_is_refused_with_the_reason() -> None:
    body = body_of((I, Input("c0", ROW)), (Splat(True, CONDITION), Relu(Input("c0", ROW))), {})
    n, x = Input("n", Type(i64, ())), Input("x", ROW)
    graph = make_graph((n, x), {"y": Loop(n, None, (x,), (), body)})
    with pytest.raises(DlcError, match="loop: a loop that ends at run time") as caught:
        Compiler.open().artifact(source(graph), "s2train")
    assert "compile for target c" in caught.value.diagnostics[0].help


def test_a_scan_that_is_too_long_is_refused() -> None:
    body = body_of((I, Input("c0", ROW)), (Relu(Input("c0", ROW)),), {})
    graph = make_graph((Input("x", ROW),), {"y": Scan((Input("x", ROW),), (), (), body, 1 << 40)})
    with pytest.raises(DlcError, match="too long to be unrolled"):
        Compiler.open().artifact(source(graph), "s2train")
