"""The order of elements: a permutation, equal elements in the order they have, NaN larger than any number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.types import Type, f32
from dlc.graph import Input
from dlc.kernel.define import ShapeError
from dlc.kernel.evaluate import run_kernel
from dlc.ops.order import Rank

VALUES = st.lists(st.sampled_from([0.0, 1.0, -1.0, 2.5, np.nan, np.inf, -np.inf]), min_size=1, max_size=8)


@given(VALUES, st.booleans())
def test_a_rank_is_the_place_in_the_sorted_order(values: list[float], largest: bool) -> None:
    x = np.array(values, np.float32)
    op = Rank(Input("x", Type(f32, x.shape)), axis=0, largest=largest)
    (by_loops,) = run_kernel(op.kernel, (x,))
    ranks = op.evaluate(x)
    np.testing.assert_array_equal(by_loops, ranks)
    assert sorted(ranks) == list(range(len(values)))
    keys = [(np.inf, 1) if np.isnan(v) else (float(v), 0) for v in x]
    order = sorted(range(len(values)), key=lambda k: keys[k], reverse=largest)
    assert [int(ranks[k]) for k in order] == list(range(len(values)))


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(ShapeError, match="axis 1 of"):
        Rank(Input("x", Type(f32, (3,))), axis=1)
