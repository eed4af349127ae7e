"""The post-processing unit: fused as composed, against PyTorch, and its corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.codes import NO_FLAGS, Flag, Slot, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper
from dlc_backend_s2train.simulator.operands import Array, Mode, OperandError, rounded
from hypothesis import given
from hypothesis import strategies as st

from dlc.graph import Constant, Tensor
from dlc.graph.walk import evaluate_ops
from dlc.ops.random import DropoutMask
from tests.backend_s2train.numerics_cases import WHOLE, convolution, do, halves, norm_of, same_bits

F: Any = torch.nn.functional
G = Geometry(2, 3, 4, 8, 8, 8, 8, 3, 3, pads=(1, 1, 1, 1))
OUT = WHOLE | Splitting.ACCUMULATE_OUT
FORWARD = (Flag.BN_FORWARD | Flag.ADD, Flag.RELU | Flag.MASK_WRITE, Flag.POOL_2 | Flag.POINTER_WRITE, Flag.DROPOUT)
HYPER = Hyper(keep=0.75, seed=5)
MODES: tuple[Mode, ...] = ("fast", "bit-true")


def eltwise(x: Array, flags: Flag, stage: Stage = Stage.FORWARD, **values: Any) -> dict[Slot, Array]:
    """The unit alone."""
    also = ("dst1",) if Flag.BN_BACKWARD_2 in flags else ()
    return do(Opcode.ELTWISE, stage, flags, hyper=HYPER, also=also, src0=x, **values)


def half(x: list[float]) -> Array:
    return np.array([[x]], np.float32).reshape(1, 1, 1, -1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("window", [Flag.POOL_2, Flag.POOL_4])
def test_fused_forward_is_the_composition_bit_for_bit(mode: Mode, window: Flag) -> None:
    x, w, _ = convolution(G)
    bn, res = norm_of(4), halves(9, 2, 4, 8, 8)
    flags = FORWARD[0] | FORWARD[1] | window | Flag.POINTER_WRITE | FORWARD[3]
    fused = do(Opcode.CONV, Stage.FORWARD, flags, G, HYPER, mode=mode, src0=x, src1=w, bn0=bn, res=res)
    acc = do(Opcode.CONV, Stage.FORWARD, NO_FLAGS, G, splitting=OUT, mode=mode, src0=x, src1=w)["dst0"]
    first = eltwise(acc, FORWARD[0], bn0=bn, res=res)
    second = eltwise(first["dst0"], FORWARD[1])
    third = eltwise(second["dst0"], window | Flag.POINTER_WRITE)
    last = eltwise(third["dst0"], FORWARD[3])
    assert same_bits(fused["dst0"], last["dst0"])
    assert same_bits(fused["mask"], second["mask"])
    assert same_bits(fused["ptr"], third["ptr"])
    assert same_bits(fused["aux"], last["aux"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("add", [Flag.ADD, Flag.ADD_SINGLE, NO_FLAGS])
def test_fused_backward_is_the_composition_bit_for_bit(mode: Mode, window: int, add: Flag) -> None:
    x, w, dy = convolution(G)
    n, c, h, v = x.shape[0], 3, 8 * window, 8 * window
    rng = np.random.default_rng(3)
    bits = {slot: rng.random((n, c, h, v)) < 0.6 for slot in ("mask", "aux")}
    bn0, bn1, res = norm_of(c, 1), norm_of(c, 2), halves(4, n, c, h, v)
    pool = {1: NO_FLAGS, 2: Flag.POOL_2 | Flag.POINTER_READ, 4: Flag.POOL_4 | Flag.POINTER_READ}[window]
    stages: list[tuple[Flag, dict[str, Any]]] = []
    if pool:
        stages += [(pool, {"ptr": rng.integers(0, window * window, (n, c, 8, 8)).astype(np.uint8)})]
    if add:
        stages += [(add, {"res": res, "bn1": bn1} if add is Flag.ADD_SINGLE else {"res": res})]
    stages += [(Flag.DROPOUT, {"aux": bits["aux"]}), (Flag.MASK_READ, {"mask": bits["mask"]})]
    # `bn1` is the norm of such an addend, or the second one.
    second = NO_FLAGS if add is Flag.ADD_SINGLE else Flag.BN_BACKWARD_2
    stages += [(Flag.BN_BACKWARD | second, {"bn0": bn0, "bn1": bn1} if second else {"bn0": bn0})]
    flags = NO_FLAGS
    values: dict[str, Any] = {}
    for more, operands in stages:
        flags, values = flags | more, values | operands
    given: Any = {"also": ("dst1",), **values}
    fused = do(Opcode.CONV, Stage.BACKWARD, flags, G, HYPER, mode=mode, src0=dy, src1=w, **given)
    g = do(Opcode.CONV, Stage.BACKWARD, NO_FLAGS, G, splitting=OUT, mode=mode, src0=dy, src1=w)["dst0"]
    results: dict[Slot, Array] = {}
    before = g
    for more, operands in stages:
        before = g
        results = eltwise(g, more, Stage.BACKWARD, **operands)
        g = results["dst0"]
    assert same_bits(fused["dst0"], g)
    # Without a second norm, what comes before the first.
    assert same_bits(fused["dst1"], results.get("dst1", before))


@pytest.mark.parametrize("mode", MODES)
def test_three_norms_in_one_word_are_the_composition(mode: Mode) -> None:
    """A single residual, a mask and two norms: the addend's norm is in `aux`."""
    x, w, dy = convolution(G)
    n, c, h, v = x.shape[0], 3, 8, 8
    own, bn0, bn1, res = norm_of(c, 3), norm_of(c, 1), norm_of(c, 2), halves(4, n, c, h, v)
    mask = np.random.default_rng(3).random((n, c, h, v)) < 0.6
    flags = Flag.ADD_SINGLE | Flag.MASK_READ | Flag.BN_BACKWARD | Flag.BN_BACKWARD_2
    given: Any = {"also": ("dst1",), "res": res, "aux": own, "mask": mask, "bn0": bn0, "bn1": bn1}
    fused = do(Opcode.CONV, Stage.BACKWARD, flags, G, HYPER, mode=mode, src0=dy, src1=w, **given)
    g = do(Opcode.CONV, Stage.BACKWARD, NO_FLAGS, G, splitting=OUT, mode=mode, src0=dy, src1=w)["dst0"]
    g = eltwise(g, Flag.ADD_SINGLE, Stage.BACKWARD, res=res, bn1=own)["dst0"]
    g = eltwise(g, Flag.MASK_READ, Stage.BACKWARD, mask=mask)["dst0"]
    last = eltwise(g, Flag.BN_BACKWARD | Flag.BN_BACKWARD_2, Stage.BACKWARD, bn0=bn0, bn1=bn1)
    assert same_bits(fused["dst0"], last["dst0"]) and same_bits(fused["dst1"], last["dst1"])


@pytest.mark.parametrize("mode", MODES)
def test_a_residual_block_agrees_with_torch(mode: Mode) -> None:
    """relu(bn(conv(x)) + r), pooled by 2: value and all gradients."""
    x, w, _ = convolution(G, 20)
    bn, res, top = norm_of(4, 21), halves(22, 2, 4, 8, 8), halves(23, 2, 4, 4, 4)
    flags = FORWARD[0] | FORWARD[1] | FORWARD[2]
    found = do(Opcode.CONV, Stage.FORWARD, flags, G, mode=mode, src0=x, src1=w, bn0=bn, res=res)
    a, b, r = (torch.tensor(t.astype(np.float64), requires_grad=True) for t in (x, w, res))
    mean, rstd, scale, shift = (torch.tensor(row.astype(np.float64)) for row in bn)
    normed = F.batch_norm(F.conv2d(a, b, padding=1), mean, rstd**-2, scale, shift, eps=0.0)
    y = F.max_pool2d(F.relu(normed + r), 2)
    np.testing.assert_allclose(found["dst0"], y.detach().numpy(), rtol=2**-10, atol=2**-12)
    y.backward(torch.tensor(top.astype(np.float64)))
    assert a.grad is not None and b.grad is not None and r.grad is not None
    back = Flag.POOL_2 | Flag.POINTER_READ | Flag.MASK_READ | Flag.BN_BACKWARD
    operands: dict[str, Any] = {"ptr": found["ptr"], "mask": found["mask"], "bn0": bn}
    g = do(Opcode.ELTWISE, Stage.BACKWARD, back, mode=mode, also=("dst1",), src0=top, **operands)
    np.testing.assert_array_equal(g["dst1"], r.grad.numpy())
    dy = rounded(g["dst0"])
    dx = do(Opcode.CONV, Stage.BACKWARD, NO_FLAGS, G, mode=mode, src0=dy, src1=w)["dst0"]
    dw = do(Opcode.CONV, Stage.WEIGHT_GRADIENT, NO_FLAGS, G, mode=mode, src0=dy, src1=x)["dst0"]
    np.testing.assert_allclose(dx, a.grad.numpy(), rtol=2**-9, atol=2**-7)
    np.testing.assert_allclose(dw, b.grad.numpy(), rtol=2**-9, atol=2**-6)


def test_resacc_single_is_double() -> None:
    """What was stored behind a norm's backward comes back: exactly where the norm's factors are powers of two."""
    g, other = halves(0, 2, 3, 4, 4), halves(1, 2, 3, 4, 4)
    bn = norm_of(3)
    bn[1], bn[2] = [0.5, 2, 4], [-1, 0.25, 8]
    stored = eltwise(g, Flag.BN_BACKWARD, Stage.BACKWARD, bn0=bn)["dst0"]
    single = eltwise(other, Flag.ADD_SINGLE, Stage.BACKWARD, res=stored, bn1=bn)["dst0"]
    double = eltwise(other, Flag.ADD, Stage.BACKWARD, res=g)["dst0"]
    assert same_bits(single, double)
    bn = norm_of(3, 5)
    stored = rounded(eltwise(g, Flag.BN_BACKWARD, Stage.BACKWARD, bn0=bn)["dst0"])
    single = eltwise(other, Flag.ADD_SINGLE, Stage.BACKWARD, res=stored, bn1=bn)["dst0"]
    # The stored fp16 is off by 2⁻¹¹ of g; the factors and products are fp32.
    assert (np.abs(single - double) <= 2.0**-11 * 1.01 * np.abs(g)).all()
    assert (single != double).any()


def test_a_bias_is_a_norm() -> None:
    g = Geometry(3, 6, 4)
    x, w, b = halves(0, 3, 6), halves(1, 4, 6), halves(2, 4)
    bn = np.stack([np.zeros(4), np.ones(4), np.ones(4), b]).astype(np.float32)
    y = do(Opcode.LINEAR, Stage.FORWARD, Flag.BN_FORWARD | Flag.RELU | Flag.MASK_WRITE, g, src0=x, src1=w, bn0=bn)
    expected = np.maximum(x.astype(np.float64) @ w.T + b, 0)
    np.testing.assert_allclose(y["dst0"].reshape(3, 4), expected, rtol=2**-11, atol=1e-6)
    np.testing.assert_array_equal(y["mask"].reshape(3, 4), expected > 0)


def test_relu_keeps_nan_and_has_one_zero() -> None:
    y = eltwise(half([-1.0, -0.0, 0.0, np.nan, np.inf, -np.inf]), Flag.RELU | Flag.MASK_WRITE)
    np.testing.assert_array_equal(y["dst0"].reshape(-1), [0, 0, 0, np.nan, np.inf, 0])
    assert not np.signbit(y["dst0"].reshape(-1)[[0, 1, 2, 5]]).any()
    assert y["mask"].reshape(-1).tolist() == [False, False, False, False, True, False]


def test_the_mask_is_that_of_the_stored_value() -> None:
    y = eltwise(half([2.0**-26, 2.0**-25, 2.0**-25 + 2.0**-40, 2.0**-24]), Flag.RELU | Flag.MASK_WRITE)
    assert y["dst0"].reshape(-1).tolist() == [0, 0, 2.0**-24, 2.0**-24]
    assert y["mask"].reshape(-1).tolist() == [False, False, True, True]


def test_masks_select_what_is_infinite_too() -> None:
    bits = np.array([[[[True, False, False]]]])
    g = eltwise(half([np.inf, np.inf, np.nan]), Flag.MASK_READ, Stage.BACKWARD, mask=bits)["dst0"]
    assert g.reshape(-1).tolist() == [np.inf, 0, 0]


@pytest.mark.parametrize(("window", "flag"), [(2, Flag.POOL_2), (4, Flag.POOL_4)])
@given(seed=st.integers(0, 1 << 32))
def test_pointers_name_the_first_maximum(window: int, flag: Flag, seed: int) -> None:
    """With few different values, so that ties are common; torch takes the first one as well."""
    x = np.random.default_rng(seed).choice([-2.0, -0.0, 0.0, 1.0], (1, 2, 8, 8)).astype(np.float32)
    y = eltwise(x, flag | Flag.POINTER_WRITE)
    values, indices = F.max_pool2d(torch.tensor(x), window, return_indices=True)
    rows, columns = indices.numpy() // 8, indices.numpy() % 8
    np.testing.assert_array_equal(y["ptr"], rows % window * window + columns % window)
    np.testing.assert_array_equal(y["dst0"], values.numpy())
    back = eltwise(y["dst0"] + 1, flag | Flag.POINTER_READ, Stage.BACKWARD, ptr=y["ptr"])["dst0"]
    expected = F.max_unpool2d(values + 1, indices, window).numpy()
    np.testing.assert_array_equal(back, expected)


def test_a_nan_is_the_maximum() -> None:
    x = np.array([[[[1, np.nan], [np.inf, np.nan]]]], np.float32)
    y = eltwise(x, Flag.POOL_2 | Flag.POINTER_WRITE)
    assert np.isnan(y["dst0"].item()) and y["ptr"].item() == 1


def test_dropout_keeps_what_dlc_keeps_and_backward_sees_the_same() -> None:
    x = np.ones((4, 5, 7, 9), np.float32)
    y = do(Opcode.ELTWISE, Stage.FORWARD, Flag.DROPOUT, hyper=HYPER, run=3, src0=x)
    seed, step = (Constant(Tensor.of(np.array(v, np.int64))) for v in (HYPER.seed, 3))
    mask: Array = evaluate_ops([DropoutMask(seed, x.shape, step, ratio=0.25)], {})[0]
    np.testing.assert_array_equal(y["aux"], mask)
    np.testing.assert_array_equal(y["dst0"], np.where(mask, np.float32(1 / 0.75), np.float32(0)))
    g = do(Opcode.ELTWISE, Stage.BACKWARD, Flag.DROPOUT, hyper=HYPER, run=99, src0=x, aux=y["aux"])["dst0"]
    assert same_bits(g, y["dst0"])


def test_dropout_differs_by_run_and_seed_and_has_its_rate() -> None:
    x = np.ones((64, 1024), np.float32)
    masks = [
        do(Opcode.ELTWISE, Stage.FORWARD, Flag.DROPOUT, hyper=Hyper(keep=0.9, seed=seed), run=run, src0=x)["aux"]
        for seed, run in ((1, 0), (1, 1), (2, 0))
    ]
    for mask in masks:
        # Six standard deviations of 65,536 draws.
        assert abs(mask.mean() - 0.9) < 6 * np.sqrt(0.09 / mask.size)
    assert all(0.7 < (a == b).mean() < 0.9 for a, b in ((masks[0], masks[1]), (masks[0], masks[2])))


def test_a_part_of_a_tensor_has_that_part_of_the_random_bits() -> None:
    x = np.ones((6, 10), np.float32)
    whole = do(Opcode.ELTWISE, Stage.FORWARD, Flag.DROPOUT, hyper=HYPER, src0=x)["aux"]
    part = do(Opcode.ELTWISE, Stage.FORWARD, Flag.DROPOUT, hyper=HYPER, first=20, src0=x[2:])["aux"]
    np.testing.assert_array_equal(part, whole[2:])


@pytest.mark.parametrize(("keep", "expected"), [(1.0, 1.0), (0.0, 0.0)])
def test_dropout_of_everything_or_nothing(keep: float, expected: float) -> None:
    x = np.ones((1, 100), np.float32)
    y = do(Opcode.ELTWISE, Stage.FORWARD, Flag.DROPOUT, hyper=Hyper(keep=keep), src0=x)
    assert (y["dst0"] == expected).all()


@pytest.mark.parametrize(
    ("flags", "stage", "values", "what"),
    [
        (Flag.POOL_4, Stage.FORWARD, {}, "do not tile"),
        (Flag.BN_FORWARD, Stage.FORWARD, {"bn0": np.ones((4, 3), np.float32)}, r"not \(4, 3\)"),
        (Flag.ADD, Stage.FORWARD, {"res": np.ones((2, 2, 6, 5), np.float32)}, "res is"),
        (Flag.MASK_READ, Stage.BACKWARD, {"mask": np.ones((2, 2, 6, 6), np.float32)}, "must be a bit"),
        (
            Flag.POOL_2 | Flag.POINTER_READ,
            Stage.BACKWARD,
            {"ptr": np.full((2, 2, 6, 6), 4, np.uint8)},
            "pointer 4 is not a position",
        ),
        (Flag.DROPOUT, Stage.FORWARD, {}, "probability"),
    ],
)
def test_what_does_not_fit_is_refused(flags: Flag, stage: Stage, values: Any, what: str) -> None:
    x = halves(0, 2, 2, 6, 6)
    with pytest.raises(OperandError, match=what):
        do(Opcode.ELTWISE, stage, flags, hyper=Hyper(keep=1.5), src0=x, **values)
