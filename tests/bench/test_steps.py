"""Work of steps, and the least time that a machine allows for it."""

import numpy as np
import pytest

from dlc.api.profile import Limits, Memory
from dlc.base.types import Type, f32, i64, parse_dims
from dlc.bench.steps import Work, least_time, measured, works
from dlc.graph import Constant, Input, Op, Tensor, make_graph
from dlc.ops.elementwise import Relu
from dlc.ops.index import Gather
from dlc.ops.linear import MatMul
from tests.backend_c.models import plan_of

LIMITS = Limits(100.0, (Memory("L1", 1000, 50.0), Memory("L2", 10_000, 20.0), Memory("memory", None, 5.0)))
"""A machine of 100 operations per second."""


def work_of(op: Op, *inputs: Input) -> Work:
    (found,) = works(plan_of(make_graph(inputs, {"y": op})))
    return found


def test_a_product() -> None:
    x = Input("x", Type(f32, (2, 3)))
    found = work_of(MatMul(x, Constant(Tensor.of(np.ones((3, 4), np.float32)))), x)
    assert found.operations == 2 * 2 * 3 * 4
    assert (found.constants, found.moved) == (3 * 4 * 4, (2 * 3 + 2 * 4) * 4)
    assert found.nodes == ("y",)


def test_of_a_table_only_rows_that_are_read_count() -> None:
    x = Input("x", Type(i64, (2,)))
    table = Constant(Tensor.of(np.ones((1000, 8), np.float32)))
    found = work_of(Gather(table, x, 0), x)
    assert found.constants == 2 * 8 * 4


@pytest.mark.parametrize(
    ("step", "whole", "seconds", "limit"),
    [
        (Work(0, "k", (), 1000, 100, 100), 500, 10.0, "compute"),
        (Work(0, "k", (), 10, 100, 100), 500, 200 / 50, "L1"),
        (Work(0, "k", (), 10, 100, 100), 100_000, 90 / 5 + 9 / 20 + 1 / 50 + 100 / 50, "memory"),
        (Work(0, "k", (), 10, 0, 4000), 100_000, 4000 / 20, "L2"),
        (Work(0, "k", ()), 500, None, ""),
    ],
)
def test_the_least_time(step: Work, whole: int, seconds: float | None, limit: str) -> None:
    least, what = least_time(step, whole, LIMITS)
    assert (least, what) == (seconds if seconds is None else pytest.approx(seconds), limit)


def test_steps_have_the_median_of_their_times() -> None:
    found = [Work(0, "k", (), 1000, 0, 100), Work(1, "", ())]
    first, second = measured(found, [(20.0, 1.0), (40.0, 1.0), (12.0, 5.0)], LIMITS)
    assert (first.seconds, first.share, first.part) == (20.0, 20 / 21, 0.5)
    assert (first.operations_rate, first.bytes_rate) == (50.0, 5.0)
    assert (second.seconds, second.part, second.operations_rate, second.limit) == (1.0, None, None, "")


def test_of_open_sizes_operations_are_not_known() -> None:
    x = Input("x", Type(f32, *parse_dims("batch(1,8),3")))
    found = works(plan_of(make_graph((x,), {"y": Relu(x)})))
    assert found and all(step.operations is step.bytes is None for step in found)
