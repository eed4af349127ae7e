"""Comparisons that the range of a type decides: what is left of them computes the same."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dlc.base.types import DTYPES, DType, Type, bool_
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Axis, Const
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.needed import only_needed

INTEGERS = tuple(d for d in DTYPES.values() if not d.is_float and d is not bool_)


def compared(dtype: DType, fn: str, with_: int, *, mirrored: bool) -> Kernel:
    p, r, i = Param("p0", Type(dtype, (5,))), Param("r0", Type(bool_, (5,))), Axis("i", 5)
    args = (p[i], Const(with_))
    return Kernel.canonical((p,), (r,), (Nest("r0", (i,), (i,), Apply(fn, args[::-1] if mirrored else args)),))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_comparisons_with_the_ends_of_a_range_keep_their_meaning(dtype: DType) -> None:
    least, largest = dtype.limits
    values = np.array([least, least + 1, 3, largest - 1, largest], dtype.numpy)
    fns = ("lt", "le", "gt", "ge", "eq", "ne")
    for fn, bound, mirrored in product(fns, (least, least + 1, largest - 1, largest), (False, True)):
        kernel = compared(dtype, fn, bound, mirrored=mirrored)
        (got,), (want,) = run_kernel(only_needed(kernel), [values]), run_kernel(kernel, [values])
        assert np.array_equal(got, want), (fn, bound, mirrored)
        assert isinstance(only_needed(kernel).nests[0].body, Const) == (len(set(want.tolist())) == 1)
