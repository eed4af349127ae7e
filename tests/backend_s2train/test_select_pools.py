"""Pools as instructions of their own, forward and backward, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dlc import DlcError
from dlc.graph import Op
from dlc.ops.pool import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from dlc.ops.reduce import ReduceMean
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.selected import Model, backward, instructions, select, simulated

F: Any = torch.nn.functional
Both = tuple[Callable[[Op], Op], Callable[[Any], Any]]
"""A pool as an op, and in torch."""


def greatest(k: int, stride: int, pad: int = 0, ceil: bool = False) -> Both:
    def op(x: Op) -> Op:
        return MaxPool(x, (k, k), (stride, stride), (pad,) * 4, ceil=ceil)

    return op, lambda x: F.max_pool2d(x, k, stride, pad, ceil_mode=ceil)


def mean(k: int, stride: int, pad: int = 0, ceil: bool = False, counted: bool = False) -> Both:
    def op(x: Op) -> Op:
        return AveragePool(x, (k, k), (stride, stride), (pad,) * 4, ceil=ceil, count_pad=counted)

    return op, lambda x: F.avg_pool2d(x, k, stride, pad, ceil, counted)


OVERLAPPING: dict[str, Both] = {
    "max 3/2 padded": greatest(3, 2, 1),
    "max 3/2": greatest(3, 2),
    "max 2/1": greatest(2, 1),
    "max 3/3 with a rest": greatest(3, 3),
    "max 3/2, ceil": greatest(3, 2, 0, True),
    "max 4/3 padded": greatest(4, 3, 2),
}
MEANS: dict[str, Both] = {
    "mean 2/2": mean(2, 2),
    "mean 2/2 counting no pads": mean(2, 2, counted=True),
    "mean 3/2 padded": mean(3, 2, 1),
    "mean 3/1 padded": mean(3, 1, 1),
    "mean 5/3": mean(5, 3),
    "mean of all": (GlobalAveragePool, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "reduced mean": (lambda x: ReduceMean(x, axes=(2, 3)), lambda x: x.mean((2, 3))),
    "reduced mean, kept": (lambda x: ReduceMean(x, axes=(2, 3), keep=True), lambda x: x.mean((2, 3), keepdim=True)),
}
SIZES = [(8, 8), (7, 9), (9, 6)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", [*OVERLAPPING, *MEANS])
def test_pool_and_its_gradient(name: str, size: tuple[int, int]) -> None:
    op, reference = {**OVERLAPPING, **MEANS}[name]
    m = Model()
    graph = backward(m.graph(op(m.x(2, 3, *size))))
    opcodes = [(i.opcode, i.stage) for i in instructions(select(graph))]
    assert opcodes == [("pool", "forward"), ("pool", "backward")]
    x = halves(1, 2, 3, *size)
    t = torch.tensor(x.astype(np.float64), requires_grad=True)
    y = reference(t)
    dy = halves(2, *y.shape)
    y.backward(torch.tensor(dy.astype(np.float64)))
    got = simulated(select(graph), {"x": x, "dy0": dy})
    assert t.grad is not None
    for key, want in (("scores", y.detach()), ("d x", t.grad)):
        # One rounding to fp16, after at most a window's length of fp32 roundings.
        np.testing.assert_allclose(got[key].reshape(want.shape), want.numpy(), rtol=6e-4, atol=1e-5)


def test_the_greatest_of_all() -> None:
    """Of 4 x 4 it is the unit's pool, of 3 x 2 an instruction."""
    for size, opcode in (((4, 4), "eltwise"), ((3, 2), "pool")):
        m = Model()
        graph = backward(m.graph(GlobalMaxPool(m.x(2, 3, *size))))
        assert {i.opcode for i in instructions(select(graph))} == {opcode}
        x, dy = halves(1, 2, 3, *size), halves(2, 2, 3, 1, 1)
        got = simulated(select(graph), {"x": x, "dy0": dy})
        np.testing.assert_array_equal(got["scores"], x.max((2, 3), keepdims=True))
        np.testing.assert_array_equal(got["d x"], np.where(x == x.max((2, 3), keepdims=True), dy, 0))


def test_a_pool_of_its_own_ends_the_chain_before_it() -> None:
    """conv - relu | pool | linear: the mask is kept, the pool's gradient goes through memory."""
    m = Model()
    op, _ = greatest(3, 2, 1)
    graph = m.graph(m.linear(m.flat(op(m.relu(m.conv(m.x(1, 2, 8, 8), 4)))), 3))
    found = [(i.opcode, i.stage, i.flags) for i in instructions(select(backward(graph)))]
    assert ("conv", "forward", ("relu", "mask_write")) in found
    assert ("pool", "forward", ("pointer_write",)) in found
    assert ("pool", "backward", ("pointer_read",)) in found
    assert ("eltwise", "backward", ("mask_read",)) in found


def test_windows_side_by_side_are_the_units() -> None:
    m = Model()
    (only,) = instructions(select(m.graph(m.pool(m.x(1, 2, 8, 8), 2))))
    assert (only.opcode, only.flags) == ("eltwise", ("pool_2",))


REFUSED: dict[str, tuple[Callable[[Op], Op], str]] = {
    "max of 5 x 5": (greatest(5, 2)[0], "pointer of four bits"),
    "rectangle": (lambda x: MaxPool(x, (3, 2), (1, 1)), "square"),
    "strides": (lambda x: AveragePool(x, (2, 2), (2, 1)), "square"),
    "first pads": (lambda x: MaxPool(x, (3, 3), (2, 2), (1, 0, 1, 0)), "square"),
    "dilated": (lambda x: MaxPool(x, (2, 2), (1, 1), dilation=(2, 2)), "dilation"),
    "mean of samples": (lambda x: ReduceMean(x, axes=(0, 2, 3)), "not a pool over rows and columns"),
    "max of 6 x 6": (GlobalMaxPool, "4 x 4 places"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_instruction_pools_is_refused(name: str) -> None:
    op, why = REFUSED[name]
    m = Model()
    graph = m.graph(m.note(op(m.x(2, 3, 6, 6)), "pool"))
    with pytest.raises(DlcError) as caught:
        select(graph)
    (text,) = caught.value.diagnostics
    assert why in text.message and text.location and text.location.node == "pool1"


def test_pools_of_sequences_are_refused() -> None:
    m = Model()
    with pytest.raises(DlcError, match="rows, columns"):
        select(m.graph(MaxPool(m.x(2, 3, 8), (2,), (2,))))


@pytest.mark.parametrize(("size", "top"), [((6, 6), 0), ((5, 5), 1), ((5, 6), 1)], ids=str)
def test_windows_that_reach_behind_the_map(size: tuple[int, int], top: int) -> None:
    """Pads behind the map only, as Inception's last pool has them on small images: their elements do not count."""
    model = Model()
    pool = AveragePool(model.x(2, 3, *size), (8, 8), (1, 1), (top, top, *(8 - extent - top for extent in size)))
    values = halves(0, 2, 3, *size)
    found = simulated(select(model.graph(pool)), {"x": values})["scores"]
    np.testing.assert_allclose(found[:, :, 0, 0], values.mean((2, 3)), rtol=2e-3, atol=1e-4)
