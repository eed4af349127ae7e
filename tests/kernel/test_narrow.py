"""Narrow types in numpy: rows that agree with ml_dtypes, and conversions that are those of ml_dtypes and ONNX."""

from __future__ import annotations

import math
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.types import DTYPES, NARROW, DType, Type, bool_, dtype_of_numpy, f16, f32, f64, in_compute_type
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.scalar import SCALARS
from dlc.kernel.text import parse_kernel
from tests.kernel.narrow_values import same, values_of

PAIRS = [(a, b) for a in DTYPES.values() for b in NARROW if a is not b] + [
    (a, b) for a in NARROW for b in DTYPES.values()
]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_row_says_what_ml_dtypes_says(dtype: DType) -> None:
    assert dtype_of_numpy(dtype.numpy) is dtype
    assert dtype.numpy.itemsize == dtype.itemsize
    assert Type.parse(str(Type(dtype, (2, 3)))) == Type(dtype, (2, 3))
    if dtype.format is None:
        info = ml_dtypes.iinfo(dtype.numpy)
        assert dtype.limits == (info.min, info.max)
        return
    facts = cast("Any", ml_dtypes.finfo)(dtype.numpy)
    assert dtype.format.largest == float(facts.max)
    assert dtype.format.smallest == float(facts.smallest_subnormal)
    infinite = math.isinf(float(np.asarray(math.inf, dtype.numpy)))
    assert dtype.extremes[1] == (math.inf if infinite else float(facts.max))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("source", "to"), PAIRS, ids=str)
def test_conversions_are_those_of_ml_dtypes(source: DType, to: DType) -> None:
    x = values_of(source)
    with np.errstate(all="ignore"):
        found = SCALARS[to.name].value(x)
        try:
            expected = x.astype(to.numpy)
        except TypeError:  # ml_dtypes lacks some pairs
            expected = x.astype(source.compute.numpy).astype(to.numpy)
    assert found.dtype == to.numpy
    if source.is_float and to.is_integer:  # elsewhere the result of C is undefined
        low, high = to.limits
        wide = x.astype(np.float64)
        inside = (wide > low - 1) & (wide < high + 1) & (np.abs(wide) < 2**62)
        found, expected = found[inside], expected[inside]
    assert same(found, expected)


@pytest.mark.filterwarnings("ignore:invalid value")
@given(st.floats(width=32), st.sampled_from([t for t in NARROW if t.is_float]))
def test_the_nearest_value_is_taken(value: float, to: DType) -> None:
    all_values = values_of(to).astype(np.float64)
    finite = all_values[np.isfinite(all_values)]
    assert to.format is not None
    found = float(SCALARS[to.name].value(np.float32(value)).astype(np.float64))
    if math.isfinite(value) and abs(value) <= to.format.largest and (to.format.signed or value >= 2**-126):
        assert abs(found - value) == np.abs(finite - value).min()
    elif not to.format.signed and 0 < value < 1:
        assert found in finite[:2]
    elif to.format.specials == "finite":
        assert abs(found) == (0 if math.isnan(value) else to.format.largest)
    else:
        assert not math.isfinite(found) or abs(found) == to.format.largest


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_arithmetic_is_rounded_to_the_type(dtype: DType) -> None:
    x = values_of(dtype)[:200]
    a, b = np.repeat(x, x.size), np.tile(x, x.size)
    kernel = parse_kernel(
        f"kernel({dtype}[{a.size}], {dtype}[{a.size}]) -> ({dtype}[{a.size}]) {{ r0[i] = p0[i]*p1[i] }}"
    )
    (found,) = run_kernel(kernel, [a, b])
    with np.errstate(all="ignore"):
        expected = np.multiply(in_compute_type(a), in_compute_type(b)).astype(dtype.numpy)
    assert same(found, expected)


def test_a_sum_of_narrow_elements_is_rounded_once() -> None:
    x = np.full(1000, 1.0, DTYPES["bf16"].numpy)  # from 256 on the next value is 2 away
    (found,) = run_kernel(parse_kernel("kernel(bf16[1000]) -> (bf16[1]) { i<1000: r0[0] += p0[i] }"), [x])
    assert float(found[0]) == 1000.0


def test_what_is_too_large_has_no_smaller_literal() -> None:
    (found,) = run_kernel(
        parse_kernel("kernel(i4[3]) -> (i4[3]) { r0[i] = p0[i] + 5 }"), [np.array([1, 2, 3], DTYPES["i4"].numpy)]
    )
    assert found.astype(int).tolist() == [6, 7, -8]


def test_types_that_numpy_has_stay_what_they_are() -> None:
    assert [t.narrow for t in (f16, f32, f64, bool_)] == [True, False, False, False]
    assert f16.numpy == np.float16
