"""Densities: the fullest of four rows counts."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.cost.cycles import Assumptions, compute_cycles, row_density, work_of
from dlc_backend_s2train.isa.instruction_set import Opcode
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dlc.base.diagnostics import DlcError
from tests.backend_s2train.resnet18 import TABLE

maps = hnp.arrays(
    np.float16, hnp.array_shapes(min_dims=4, max_dims=4, max_side=6), elements=st.sampled_from([0.0, -0.0, 1.0, np.nan])
)


@given(maps)
def test_between_the_mean_and_all(x: np.ndarray[tuple[int, ...], np.dtype[np.float16]]) -> None:
    plain = np.count_nonzero(x) / x.size
    assert plain - 1e-9 <= row_density(x) <= 1
    assert row_density(x, 1) == pytest.approx(plain)
    assert row_density(np.ones_like(x)) == pytest.approx(1)
    assert row_density(np.zeros_like(x)) == 0


def test_by_hand() -> None:
    """Rows with 2, 0, 1, 0 of 2 and, in a last group, 1: all four wait for 2, then one for 1."""
    x = np.zeros((1, 1, 5, 2))
    x[0, 0, [0, 0, 2, 4], [0, 1, 1, 0]] = 1
    assert row_density(x) == pytest.approx((4 * 2 + 1) / 10)


def test_a_relu_halves_steps() -> None:
    x = np.maximum(np.random.default_rng(0).standard_normal((1, 64, 32, 32)), 0)
    work = work_of(Opcode.CONV, Stage.FORWARD, TABLE[1].geometry())
    cycles = compute_cycles(work, Assumptions(density=(row_density(x),)))
    assert 0.5 * work.steps < cycles < 0.55 * work.steps


@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 3), (1, 0, 2, 2)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DlcError) as caught:
        row_density(np.zeros(shape))
    assert caught.value.diagnostics[0].code == "bad-shape"
