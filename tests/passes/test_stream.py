"""Layers that are computed some rows at a time: the same values, in less memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc import DlcError, ExitCode, Report
from dlc.base.types import Type, f32
from dlc.graph import Graph, Input, Op, evaluate, verify
from dlc.ops.elementwise import Add, Relu
from dlc.ops.linear import Conv
from dlc.ops.pool import AveragePool, MaxPool
from dlc.passes.expand import Expand
from dlc.passes.fuse import Fuse
from dlc.passes.layout import Layout
from dlc.passes.lower import Lower
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from dlc.passes.stream import Stream


def kernels(graph: Graph, *, layout: bool = True) -> Graph:
    lowered = Lower().run(Expand().run(graph, Report()), Report())
    return Fuse().run(Layout().run(lowered, Report()) if layout else lowered, Report())


def arena(graph: Graph) -> int:
    return PlanMemory().run(Order().run(graph, Report()), Report()).regions["arena"]


class Network:
    """Layers on an image, with weights as inputs."""

    def __init__(self, channels: int, size: int) -> None:
        self.inputs = [Input("x", Type(f32, (1, channels, size, size)))]
        self.top: Op = self.inputs[0]

    def conv(self, filters: int, kernel: int, stride: int, *, grouped: bool = False, dilation: int = 1) -> Op:
        channels = self.top.shape[1]
        group = channels if grouped else 1
        shape = (channels if grouped else filters, channels // group, kernel, kernel)
        self.inputs.append(Input(f"w{len(self.inputs)}", Type(f32, shape)))
        pad = dilation * (kernel // 2)
        self.top = Conv(
            self.top,
            self.inputs[-1],
            stride=(stride,) * 2,
            pads=(pad,) * 4,
            dilation=(dilation,) * 2,
            group=group,
        )
        return self.top

    def graph(self) -> Graph:
        return Graph(tuple(self.inputs), (self.top,), ("y",))

    def feeds(self, seed: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        return {i.name: rng.integers(-2, 3, i.shape).astype(np.float32) for i in self.inputs}


@st.composite
def networks(draw: st.DrawFn) -> Network:
    net = Network(draw(st.integers(1, 3)), draw(st.integers(7, 17)))
    for _ in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from(["conv", "conv", "depthwise", "relu", "residual", "max", "average"]))
        kernel, stride = draw(st.sampled_from([(1, 1), (3, 1), (3, 2), (5, 2), (2, 2)]))
        if net.top.shape[2] < 4:
            break
        match kind:
            case "conv":
                net.conv(draw(st.integers(1, 6)), kernel, stride, dilation=draw(st.integers(1, 2)))
            case "depthwise":
                net.conv(0, kernel, stride, grouped=True)
            case "relu":
                net.top = Relu(net.top)
            case "residual":
                before = net.top
                net.top = Add(before, net.conv(before.shape[1], 3, 1))
            case "max":
                net.top = MaxPool(net.top, (3, 3), (stride, stride), (1, 1, 1, 1))
            case _:
                net.top = AveragePool(net.top, (2, 2), (2, 2))
    return net


@settings(max_examples=20, deadline=None)
@given(networks(), st.integers(2, 5), st.booleans(), st.integers(0, 99))
def test_values_are_those_of_whole_layers(net: Network, bands: int, layout: bool, seed: int) -> None:
    whole = kernels(net.graph(), layout=layout)
    found = Stream(bands=bands).run(whole, Report())
    verify(found)
    feeds = net.feeds(seed)  # small whole numbers: sums are exact in any order
    np.testing.assert_array_equal(evaluate(found, feeds)["y"], evaluate(whole, feeds)["y"])
    assert arena(found) <= arena(whole)
    assert found == whole or arena(found) < arena(whole)


def deep() -> Graph:
    net = Network(3, 32)
    for filters, stride in ((8, 2), (16, 1), (16, 2), (24, 2)):
        net.conv(filters, 3, stride)
        net.top = Relu(net.top)
    return kernels(net.graph())


def test_the_arena_is_below_what_one_layer_reads_and_writes() -> None:
    whole = deep()
    sizes = [op.type.nbytes for op in whole.ops if op.runs]
    one = max(a + b for a, b in pairwise(sizes))
    report = Report()
    found = Stream(memory=one * 6 // 10).run(whole, report)
    assert arena(found) <= one * 6 // 10 < one <= arena(whole)
    assert "of extra work" in report.notes[0]


def test_what_fits_is_left_alone() -> None:
    whole = deep()
    assert Stream(memory=arena(whole)).run(whole, Report()) == whole


def test_less_memory_takes_more_work() -> None:
    whole, extra = deep(), list[float]()
    for percent in (90, 75, 60):
        report = Report()
        Stream(memory=arena(whole) * percent // 100).run(whole, report)
        extra.append(float(report.notes[0].split(" % of extra work")[0].rsplit(" ", 1)[1]))
    assert extra == sorted(extra) and extra[0] < extra[-1]


def test_memory_that_no_bands_meet_is_an_error() -> None:
    with pytest.raises(DlcError) as caught:
        Stream(memory=64).run(deep(), Report())
    (problem,) = caught.value.diagnostics
    assert (problem.code, caught.value.exit_code) == ("memory-limit", ExitCode.LIMIT)
    assert "64 bytes" in problem.message and "with whole layers" in problem.notes[0]
