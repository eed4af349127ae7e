"""What a training step keeps for the normalisations of a small transformer: their input and their output."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dlc.api.passes import run_passes
from dlc.base.report import Report
from dlc.base.types import Type, f32
from dlc.graph import Constant, Graph, Input, Op, Tensor, make_graph
from dlc.ops.elementwise import Add
from dlc.ops.linear import MatMul
from dlc.ops.normalize import GroupNorm, InstanceNorm, LayerNorm, RmsNorm
from dlc.ops.reduce import ReduceMean
from dlc.ops.shape import Reshape
from tests.passes.test_properties import made
from tests.training.nets import step_of

LAYERS, ROWS, WIDTH = 8, 128, 16
BYTES = ROWS * WIDTH * 4
PIPELINE = "fold-constants,simplify,lower,layout,fuse,order,plan-memory"


def weight(name: str, *shape: int) -> Op:
    values = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)
    return Constant(Tensor.of(values, f32), name)


def layer(x: Op, k: int) -> Op:
    return LayerNorm(x, weight(f"scale{k}", WIDTH), weight(f"bias{k}", WIDTH))


def rms(x: Op, k: int) -> Op:
    return RmsNorm(x, weight(f"scale{k}", WIDTH))


def group(x: Op, k: int) -> Op:
    rows = Reshape(x, to=(ROWS, WIDTH, 1))
    y = GroupNorm(rows, weight(f"scale{k}", WIDTH), weight(f"bias{k}", WIDTH), groups=2)
    return Reshape(y, to=(ROWS, WIDTH))


def instance(x: Op, k: int) -> Op:
    images = Reshape(x, to=(ROWS // 8, 8, WIDTH))
    y = InstanceNorm(images, weight(f"scale{k}", 8), weight(f"bias{k}", 8))
    return Reshape(y, to=(ROWS, WIDTH))


def network(norm: Callable[[Op, int], Op]) -> Graph:
    x = Input("x", Type(f32, (ROWS, WIDTH)))
    h: Op = x
    for k in range(LAYERS):
        h = Add(h, MatMul(norm(h, k), weight(f"w{k}", WIDTH, WIDTH)))
    return make_graph((x,), {"p": ReduceMean(h, axes=(1,))})


@pytest.mark.parametrize("norm", [layer, rms, group, instance])
def test_two_tensors_a_norm_live_until_the_backward_half(norm: Callable[[Op, int], Op]) -> None:
    step = step_of(network(norm), "loss=mse optimizer=sgd{lr=0.1}")
    plan = run_passes([made(t) for t in PIPELINE.split(",")], step, Report())
    # The first norm reads x, which is the caller's; then what the peak itself works with, and statistics.
    assert plan.facts["arena"] <= (2 * LAYERS + 3) * BYTES
