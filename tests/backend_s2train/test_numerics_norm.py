"""Batch normalisation in training mode: against PyTorch in fp64, and a loop in the stated order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Hyper
from dlc_backend_s2train.simulator.operands import Array, Mode, OperandError

from tests.backend_s2train.numerics_cases import do, halves, norm_of, same_bits

F: Any = torch.nn.functional
HYPER = Hyper(epsilon=1e-5, momentum=0.9)
FORWARD = Flag.BN_TRAIN
BACKWARD = Flag.BN_TRAIN | Flag.BN_BACKWARD
both_modes = pytest.mark.parametrize("mode", ["fast", "bit-true"])
both_ranks = pytest.mark.parametrize("shape", [(4, 3, 5, 6), (16, 5)], ids=["map", "vector"])


def train(x: Array, bn: Array, mode: Mode, **more: Any) -> dict[Any, Array]:
    return do(Opcode.ELTWISE, Stage.FORWARD, FORWARD, hyper=HYPER, mode=mode, also=("dst1",), src0=x, bn0=bn, **more)


@both_modes
@both_ranks
def test_forward_backward_and_running_statistics_agree_with_torch(mode: Mode, shape: tuple[int, ...]) -> None:
    channels, count = shape[1], int(np.prod(shape)) // shape[1]
    x, dy, bn = halves(0, *shape) * 2 + 1, halves(1, *shape), norm_of(channels)
    running = np.stack([np.arange(channels), np.arange(channels) + 0.5]).astype(np.float32)
    found = train(x, bn, mode, bn1=running)
    a, scale, shift = (torch.tensor(t.astype(np.float64), requires_grad=True) for t in (x, bn[2], bn[3]))
    mean, var = (torch.tensor(row.astype(np.float64)) for row in running)
    y = F.batch_norm(a, mean, var, scale, shift, training=True, momentum=1 - HYPER.momentum, eps=HYPER.epsilon)
    np.testing.assert_allclose(found["dst0"], y.detach().numpy(), rtol=2**-10, atol=2**-12)
    np.testing.assert_allclose(found["bn1"][0], mean.numpy(), rtol=1e-5, atol=1e-6)
    # torch moves towards the unbiased variance, ONNX and this machine towards the biased one.
    moved = 0.9 * running[1] + (var.numpy() - 0.9 * running[1]) * (count - 1) / count
    np.testing.assert_allclose(found["bn1"][1], moved, rtol=1e-5)
    y.backward(torch.tensor(dy.astype(np.float64)))
    back = do(Opcode.ELTWISE, Stage.BACKWARD, BACKWARD, mode=mode, src0=dy, src1=x, bn0=bn, bn1=found["dst1"])
    for result, grad in ((back["dst0"], a.grad), (back["dst1"][0], scale.grad), (back["dst1"][1], shift.grad)):
        assert grad is not None
        np.testing.assert_allclose(result, grad.numpy(), rtol=1e-4, atol=2e-5)


@both_modes
@both_ranks
def test_running_statistics_at_inference_agree_with_torch(mode: Mode, shape: tuple[int, ...]) -> None:
    """`bn1` takes the place of the first two rows of `bn0`."""
    channels = shape[1]
    x, bn = halves(0, *shape) * 2 + 1, norm_of(channels)
    running = np.stack([np.arange(channels), np.arange(channels) + 0.5]).astype(np.float32)
    found = do(Opcode.ELTWISE, Stage.FORWARD, Flag.BN_FORWARD, hyper=HYPER, mode=mode, src0=x, bn0=bn, bn1=running)
    a, mean, var, scale, shift = (torch.tensor(t.astype(np.float64)) for t in (x, *running, bn[2], bn[3]))
    y = F.batch_norm(a, mean, var, scale, shift, training=False, eps=HYPER.epsilon)
    np.testing.assert_allclose(found["dst0"], y.numpy(), rtol=2**-10, atol=2**-12)
    with pytest.raises(OperandError, match="mean and variance"):
        do(Opcode.ELTWISE, Stage.FORWARD, Flag.BN_FORWARD, hyper=HYPER, src0=x, bn0=bn, bn1=bn)


def test_bit_true_sums_sample_by_sample_row_by_row() -> None:
    x = halves(3, 3, 2, 4, 5) * 3
    bn = norm_of(2)
    statistics = train(x, bn, "bit-true")["dst1"]
    count = np.float32(60)
    for c in range(2):
        values = [np.float32(x[n, c, i, j]) for n, i, j in np.ndindex(3, 4, 5)]
        total = np.float32(0)
        for v in values:
            total = np.float32(total + v)
        mean = np.float32(total / count)
        square = np.float32(0)
        for v in values:
            square = np.float32(square + np.float32(np.float32(v - mean) * np.float32(v - mean)))
        variance = np.float32(square / count)
        rstd = np.float32(np.float32(1) / np.sqrt(np.float32(variance + np.float32(1e-5))))
        assert same_bits(statistics[:, c], np.array([mean, rstd]))


@both_modes
def test_the_norm_comes_before_the_rest_of_the_unit(mode: Mode) -> None:
    x, bn, res = halves(0, 2, 3, 4, 4), norm_of(3), halves(1, 2, 3, 4, 4)
    flags = FORWARD | Flag.ADD | Flag.RELU | Flag.MASK_WRITE | Flag.POOL_2 | Flag.POINTER_WRITE
    found = do(Opcode.ELTWISE, Stage.FORWARD, flags, hyper=HYPER, mode=mode, src0=x, bn0=bn, res=res)
    normed = F.batch_norm(*(torch.tensor(t) for t in (x,)), None, None, torch.tensor(bn[2]), torch.tensor(bn[3]), True)
    expected = F.max_pool2d(F.relu(normed + torch.tensor(res)), 2).numpy()
    np.testing.assert_allclose(found["dst0"], expected, rtol=2**-10, atol=2**-10)


@both_modes
def test_masks_come_before_the_norm_on_the_way_back(mode: Mode) -> None:
    x, dy, bn = halves(0, 2, 3, 4, 4), halves(1, 2, 3, 4, 4), norm_of(3)
    statistics = train(x, bn, mode)["dst1"]
    mask: Array = halves(2, *x.shape) > 0
    masked = do(
        Opcode.ELTWISE,
        Stage.BACKWARD,
        BACKWARD | Flag.MASK_READ,
        mode=mode,
        src0=dy,
        src1=x,
        bn0=bn,
        bn1=statistics,
        mask=mask,
    )
    before = do(Opcode.ELTWISE, Stage.BACKWARD, BACKWARD, mode=mode, src0=dy * mask, src1=x, bn0=bn, bn1=statistics)
    for slot in ("dst0", "dst1"):
        np.testing.assert_array_equal(masked[slot], before[slot])


def test_a_frozen_norm_is_the_published_example() -> None:
    """Section 4.2: w .5, b .25, mean .1, var .81, x 1.3 give y 0.91666255, in fp64 and with eps 1e-5."""
    bn = np.array([[0.1], [1 / np.sqrt(0.81 + 1e-5)], [0.5], [0.25]], np.float32)
    x = np.array([[1.3]], np.float32)
    y = do(Opcode.ELTWISE, Stage.FORWARD, Flag.BN_FORWARD, src0=x, bn0=bn)["dst0"]
    assert y.item() == np.float32(np.float16(0.91666255))
    g = do(Opcode.ELTWISE, Stage.BACKWARD, Flag.BN_BACKWARD, src0=np.ones((1, 1), np.float32), bn0=bn)["dst0"]
    assert g.item() == pytest.approx(0.5555521, rel=1e-6)


def test_what_has_no_statistics_is_refused() -> None:
    with pytest.raises(OperandError, match="no statistics"):
        train(np.zeros((0, 3), np.float32), norm_of(3), "fast")
    with pytest.raises(OperandError, match="running statistics"):
        train(halves(0, 2, 3), norm_of(3), "fast", bn1=np.zeros((2, 4), np.float32))
    with pytest.raises(OperandError, match="src1 is"):
        src = halves(0, 2, 3)
        do(Opcode.ELTWISE, Stage.BACKWARD, BACKWARD, src0=src, src1=src[:1], bn0=norm_of(3), bn1=norm_of(3)[:2])
