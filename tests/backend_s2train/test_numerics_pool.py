"""Overlapping, padded and average pools against PyTorch; copies; what has no arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.isa.instruction_set import FORM_OF, Opcode
from dlc_backend_s2train.program import Geometry
from dlc_backend_s2train.simulator.arithmetic import ARITHMETIC, SILENT
from dlc_backend_s2train.simulator.operands import OperandError
from hypothesis import given
from hypothesis import strategies as st

from tests.backend_s2train.numerics_cases import do, halves

F: Any = torch.nn.functional


@st.composite
def pools(draw: st.DrawFn) -> Geometry:
    window, stride = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    pad = draw(st.integers(0, window // 2))
    h, w = (draw(st.integers(window, 9)) for _ in range(2))
    ho, wo = ((size + 2 * pad - window) // stride + 1 for size in (h, w))
    return Geometry(2, 3, 3, h, w, ho, wo, pool=(window, stride, pad))


@given(pools(), st.integers(0, 1000))
def test_max_pools_agree_with_torch(g: Geometry, seed: int) -> None:
    """Few different values: ties go to the first tap, as in torch."""
    x = np.random.default_rng(seed).integers(-2, 2, (2, 3, g.hi, g.wi)).astype(np.float32)
    dy = halves(seed, 2, 3, g.ho, g.wo)
    found = do(Opcode.POOL, Stage.FORWARD, Flag.POINTER_WRITE, g, src0=x)
    t = torch.tensor(x.astype(np.float64), requires_grad=True)
    y, indices = F.max_pool2d(t, *g.pool, return_indices=True)
    np.testing.assert_array_equal(found["dst0"], y.detach().numpy())
    window, stride, pad = g.pool
    rows = indices.numpy() // g.wi - np.arange(g.ho)[:, None] * stride + pad
    columns = indices.numpy() % g.wi - np.arange(g.wo) * stride + pad
    np.testing.assert_array_equal(found["ptr"], rows * window + columns)
    y.backward(torch.tensor(dy.astype(np.float64)))
    assert t.grad is not None
    back = do(Opcode.POOL, Stage.BACKWARD, Flag.POINTER_READ, g, src0=dy, ptr=found["ptr"])["dst0"]
    np.testing.assert_allclose(back, t.grad.numpy(), rtol=1e-5, atol=1e-5)


@given(pools(), st.integers(0, 1000))
def test_average_pools_agree_with_torch(g: Geometry, seed: int) -> None:
    x, dy = halves(seed, 2, 3, g.hi, g.wi), halves(seed + 1, 2, 3, g.ho, g.wo)
    t = torch.tensor(x.astype(np.float64), requires_grad=True)
    y = F.avg_pool2d(t, *g.pool, count_include_pad=False)
    found = do(Opcode.POOL, Stage.FORWARD, geometry=g, src0=x)["dst0"]
    np.testing.assert_allclose(found, y.detach().numpy(), rtol=1e-5, atol=1e-6)
    y.backward(torch.tensor(dy.astype(np.float64)))
    assert t.grad is not None
    back = do(Opcode.POOL, Stage.BACKWARD, geometry=g, src0=dy)["dst0"]
    np.testing.assert_allclose(back, t.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_a_nan_is_the_maximum() -> None:
    g = Geometry(1, 1, 1, 3, 3, 1, 1, pool=(3, 1, 0))
    x = np.array([[[[1, np.inf, 2], [np.nan, 3, np.nan], [4, 5, 6]]]], np.float32)
    found = do(Opcode.POOL, Stage.FORWARD, Flag.POINTER_WRITE, g, src0=x)
    assert np.isnan(found["dst0"].item()) and found["ptr"].item() == 3


@pytest.mark.parametrize("flags", [Flag.POINTER_WRITE, Flag(0)])
@pytest.mark.parametrize(
    "pool",
    [(0, 1, 0), (2, 0, 0), (2, 1, 2), (9, 1, 1)],
)
def test_pools_that_make_no_sense_are_refused(pool: tuple[int, int, int], flags: Flag) -> None:
    with pytest.raises(OperandError, match="does not fit"):
        do(Opcode.POOL, Stage.FORWARD, flags, Geometry(1, 1, 1, 4, 4, 2, 2, pool=pool), src0=halves(0, 1, 1, 4, 4))


@pytest.mark.parametrize("flags", [Flag.POINTER_WRITE, Flag(0)])
def test_a_window_without_data_is_refused(flags: Flag) -> None:
    g = Geometry(1, 1, 1, 4, 4, 5, 2, pool=(2, 2, 0))
    with pytest.raises(OperandError, match="nothing of the data"):
        do(Opcode.POOL, Stage.FORWARD, flags, g, src0=halves(0, 1, 1, 4, 4))


def test_every_instruction_of_the_table_of_forms_has_its_arithmetic() -> None:
    # A host function brings its own.
    missing = [key for key in FORM_OF if key[0] not in {*SILENT, Opcode.HOST} and key not in ARITHMETIC]
    assert not missing
    assert not [key for key in ARITHMETIC if key not in FORM_OF]


def test_a_copy_is_what_it_was() -> None:
    for x in (halves(0, 2, 3), np.array([True, False]), np.array([3], np.int32)):
        assert do(Opcode.COPY, Stage.FORWARD, src0=x)["dst0"] is x


def test_a_stage_that_is_not_there_is_refused() -> None:
    with pytest.raises(OperandError, match="no arithmetic"):
        do(Opcode.LOSS, Stage.BACKWARD)
