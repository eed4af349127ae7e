"""Loss, weight update and pruning: against PyTorch, Python's math, and statistics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.codes import Flag, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper
from dlc_backend_s2train.simulator import reproducible
from dlc_backend_s2train.simulator.operands import Mode, OperandError
from hypothesis import given
from hypothesis import strategies as st

from tests.backend_s2train.numerics_cases import WHOLE, do, halves, same_bits

F: Any = torch.nn.functional


@given(st.lists(st.floats(-110, 0, width=32), min_size=1, max_size=50))
def test_exp_is_rounded_correctly(numbers: list[float]) -> None:
    x = np.array(numbers, np.float32)
    assert reproducible.exp(x).tolist() == [float(np.float32(math.exp(float(v)))) for v in x]


@given(st.lists(st.floats(2.0**-149, 2.0**127, width=32), min_size=1, max_size=50))
def test_log_is_rounded_correctly(numbers: list[float]) -> None:
    x = np.array(numbers, np.float32)
    assert reproducible.log(x).tolist() == [float(np.float32(math.log(float(v)))) for v in x]


def test_exp_and_log_of_what_is_not_finite() -> None:
    with np.errstate(all="ignore"):
        assert reproducible.exp(np.array([-np.inf, np.nan, 0], np.float32))[[0, 2]].tolist() == [0, 1]
        assert np.isnan(reproducible.exp(np.array([np.nan], np.float32))[0])
        assert reproducible.log(np.array([np.inf, 1], np.float32)).tolist() == [np.inf, 0]
        assert np.isnan(reproducible.log(np.array([np.nan], np.float32))[0])


@pytest.mark.parametrize("scale", [1.0, 1024.0])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_softmax_cross_entropy_agrees_with_torch(scale: float, classes: int) -> None:
    z = halves(classes, 6, classes, scale=4)
    labels = np.random.default_rng(0).integers(0, classes, 6).astype(np.int32)
    found = do(
        Opcode.LOSS,
        Stage.FORWARD,
        flags=Flag.SOFTMAX_CE,
        hyper=Hyper(scale=scale),
        also=("dst0", "dst1"),
        src0=z,
        aux=labels,
    )
    t = torch.tensor(z.astype(np.float64), requires_grad=True)
    loss = F.cross_entropy(t, torch.tensor(labels.astype(np.int64)))
    loss.backward()
    assert t.grad is not None
    assert found["dst1"].shape == (1,) and found["dst1"].item() == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(found["dst0"] / scale, t.grad.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mode", ["fast", "bit-true"])
def test_a_fused_loss_sees_fp32_logits(mode: Mode) -> None:
    """Linear with a bias and the loss in one: as the partial sum, the norm in fp32, then the loss."""
    g, hyper = Geometry(5, 16, 7), Hyper(scale=8.0)
    x, w, b = halves(0, 5, 16), halves(1, 7, 16), halves(2, 7)
    labels = np.array([0, 6, 3, 3, 1], np.int32)
    bn = np.stack([np.zeros(7), np.ones(7), np.ones(7), b]).astype(np.float32)
    flags = Flag.BN_FORWARD | Flag.SOFTMAX_CE
    fused = do(
        Opcode.LINEAR, Stage.FORWARD, flags, g, hyper, mode=mode, also=("dst1",), src0=x, src1=w, bn0=bn, aux=labels
    )
    out = WHOLE | Splitting.ACCUMULATE_OUT
    acc = do(Opcode.LINEAR, Stage.FORWARD, geometry=g, splitting=out, mode=mode, src0=x, src1=w)["dst0"]
    logits = acc.reshape(5, 7) + b
    alone = do(Opcode.LOSS, Stage.FORWARD, flags=Flag.SOFTMAX_CE, hyper=hyper, also=("dst1",), src0=logits, aux=labels)
    assert same_bits(fused["dst0"], alone["dst0"]) and same_bits(fused["dst1"], alone["dst1"])


def test_large_logits_do_not_overflow() -> None:
    z = np.array([[60000.0, -60000.0]], np.float32)
    found = do(Opcode.LOSS, Stage.FORWARD, flags=Flag.SOFTMAX_CE, also=("dst1",), src0=z, aux=np.array([1], np.int32))
    assert found["dst1"].item() == 120000.0 and found["dst0"].tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize("left", [(2,), (0, 1, 4), (0, 1, 2, 3, 4)])
def test_samples_of_negative_labels_do_not_count(left: tuple[int, ...]) -> None:
    z, labels = halves(0, 5, 7, scale=4), np.array([0, 6, 3, 3, 1], np.int32)
    labels[list(left)] = [-1, -100, -(1 << 31), -7, -2][: len(left)]
    z[left[0], 2] = np.inf
    given: Any = {"flags": Flag.SOFTMAX_CE, "hyper": Hyper(scale=8.0), "also": ("dst1",), "src0": z, "aux": labels}
    found = do(Opcode.LOSS, Stage.FORWARD, **given)
    t = torch.tensor(np.nan_to_num(z).astype(np.float64), requires_grad=True)
    loss = F.cross_entropy(t, torch.tensor(np.maximum(labels, -1).astype(np.int64)), ignore_index=-1)
    if len(left) == 5:
        assert np.isnan(found["dst1"]).all() and torch.isnan(loss) and same_bits(found["dst0"], np.zeros_like(z))
        return
    loss.backward()
    assert t.grad is not None
    assert found["dst1"].item() == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(found["dst0"] / 8, t.grad.numpy(), rtol=1e-5, atol=1e-7)
    assert same_bits(found["dst0"][list(left)], np.zeros((len(left), 7), np.float32))


@pytest.mark.parametrize("label", [3, 1 << 30])
def test_a_label_that_is_no_class_is_refused(label: int) -> None:
    with pytest.raises(OperandError, match=f"label {label} of sample 1 is not a class of 3"):
        do(Opcode.LOSS, Stage.FORWARD, flags=Flag.SOFTMAX_CE, src0=halves(0, 2, 3), aux=np.array([0, label], np.int32))


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_steps_are_those_of_torch(momentum: float, decay: float, nesterov: bool) -> None:
    w = halves(0, 4, 5)
    hyper = Hyper(rate=0.1, momentum=momentum, decay=decay, scale=64.0, nesterov=nesterov)
    p = torch.nn.Parameter(torch.tensor(w.astype(np.float64)))
    optimizer: Any = torch.optim.SGD([p], lr=0.1, momentum=momentum, weight_decay=decay, nesterov=nesterov)
    master, velocity = w, np.zeros_like(w)
    for step in range(8):
        g = halves(step + 1, 4, 5)
        p.grad = torch.tensor(g.astype(np.float64)) / 64
        optimizer.step()
        state: Any = {"aux": velocity} if momentum else {}
        found = do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=hyper, src0=g, dst0=w, dst1=master, **state)
        master, w = found["dst1"], found["dst0"]
        velocity = found.get("aux", velocity)
        np.testing.assert_allclose(master, p.detach().numpy(), rtol=1e-5, atol=1e-6)
        assert same_bits(master, w)
    assert np.abs(master - halves(0, 4, 5)).max() > 1e-3


def test_without_a_master_the_stored_weight_is_widened() -> None:
    w, g = np.array([1.0], np.float32), np.array([0.5], np.float32)
    found = do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=Hyper(rate=0.25), src0=g, dst0=w)
    assert set(found) == {"dst0"} and found["dst0"].item() == 0.875


def test_pruning_keeps_the_mean_and_what_is_large() -> None:
    x = np.random.default_rng(0).normal(0, 0.5, (1, 40_000)).astype(np.float32)
    dy, t = np.ones((1, 1), np.float32), 0.75
    g = Geometry(1, 40_000, 1)
    hyper = Hyper(threshold=t, seed=3)
    found, again, other = (
        do(Opcode.LINEAR, Stage.WEIGHT_GRADIENT, Flag.PRUNE, g, hyper, run=run, src0=dy, src1=x)["dst0"].reshape(-1)
        for run in (0, 0, 1)
    )
    x = x.reshape(-1)
    assert same_bits(found, again) and not same_bits(found, other)
    large = np.abs(x) >= t
    np.testing.assert_array_equal(found[large], x[large])
    small, was = found[~large], x[~large]
    assert set(np.unique(np.abs(small)).tolist()) == {0.0, t}
    assert (np.sign(small) == np.sign(was))[small != 0].all()
    # In each tenth of the range: as many as |g| / t, within six standard deviations.
    for low in np.arange(0, t, t / 10):
        part = (np.abs(was) >= low) & (np.abs(was) < low + t / 10)
        p, n = np.abs(was[part]).astype(np.float64) / t, part.sum()
        assert abs((small[part] != 0).sum() - p.sum()) < 6 * math.sqrt((p * (1 - p)).sum())
        assert n > 100


def test_pruning_is_for_the_last_of_several_sums() -> None:
    g = Geometry(1, 3, 1)
    dy, x = np.ones((1, 1), np.float32), np.array([[0.1, -0.2, 0.3]], np.float32)
    out = do(
        Opcode.LINEAR,
        Stage.WEIGHT_GRADIENT,
        Flag.PRUNE,
        g,
        Hyper(threshold=1.0),
        splitting=WHOLE | Splitting.ACCUMULATE_OUT,
        src0=dy,
        src1=x,
    )
    assert same_bits(out["dst0"].reshape(1, 3), x)


def test_nothing_is_pruned_without_a_threshold_nor_is_nan() -> None:
    g = Geometry(1, 3, 1)
    dy, x = np.ones((1, 1), np.float32), np.array([[0.1, np.nan, -0.0]], np.float32)
    for threshold in (0.0, 1.0):
        hyper = Hyper(threshold=threshold)
        found = do(Opcode.LINEAR, Stage.WEIGHT_GRADIENT, Flag.PRUNE, g, hyper, src0=dy, src1=x)["dst0"].reshape(-1)
        assert np.isnan(found[1]) and found[2] == 0
    assert found[0] in (0.0, 1.0)


def test_softmax_alone_is_torchs() -> None:
    z = halves(1, 4, 7)
    got = do(Opcode.LOSS, Stage.FORWARD, src0=z)["dst0"]
    want = torch.softmax(torch.tensor(z, dtype=torch.float64), 1).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-6)
