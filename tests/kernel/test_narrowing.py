"""What a type cannot hold: counted against arithmetic by hand, and told once for each tensor."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlc import Report
from dlc.base.narrowing import loss_of, narrowed, recording
from dlc.base.types import DTYPES, Array, DType, bf16, f16, f32, f64, i32

NARROW = [t for t in DTYPES.values() if t.is_float and t.format is not None and t.format.specials != "scale"]


def of(values: object, dtype: DType = f16) -> tuple[int, int, int, bool]:
    loss = loss_of(np.asarray(values, np.float64), dtype)
    return (loss.clipped, loss.flushed, loss.subnormal, loss.matters) if loss else (0, 0, 0, False)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([65504.0, 65519.99, -65504.0], (0, 0, 0, False)),
        ([65520.0, 1.0, -1e300], (2, 0, 0, True)),
        ([math.inf, -math.inf, math.nan, 0.0, -0.0], (0, 0, 0, False)),
        ([2.0**-24, 2.0**-14, 3 * 2.0**-24], (0, 0, 0, False)),
        ([2.0**-25, 1.01 * 2.0**-25], (0, 1, 1, True)),
        ([3e-6], (0, 0, 1, True)),
        ([3e-6, 1.0], (0, 0, 1, False)),
        ([1e-9, *np.ones(200)], (0, 1, 0, False)),
        ([1e-9, *np.zeros(200)], (0, 1, 0, True)),
        ([], (0, 0, 0, False)),
    ],
)
def test_values_that_f16_cannot_hold_are_counted(values: list[float], wanted: tuple[int, int, int, bool]) -> None:
    assert of(values) == wanted


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_limits_are_those_of_the_type(dtype: DType) -> None:
    assert dtype.format is not None
    top, least = dtype.format.largest, dtype.format.smallest
    assert of([top, -top] if dtype.format.signed else [top], dtype) == (0, 0, 0, False)
    assert of([least], dtype) == (0, 0, 0, False)
    assert of([4 * top], dtype)[0] == 1
    assert of([least / 4], dtype)[1] == 1


def test_wider_types_have_their_own_limits() -> None:
    assert of([1e-50, 1e39], f32) == (1, 1, 0, True)
    assert of([1e-50, 1e39], f64) == (0, 0, 0, False)
    assert of([1e-9, 1e30], bf16) == (0, 0, 0, False)
    assert of([2.0**31, 2.0**31 - 1, -(2.0**31)], i32) == (1, 0, 0, True)


def told(*conversions: tuple[Array, str]) -> Report:
    report = Report()
    with recording() as record:
        for values, name in conversions:
            narrowed(values, f16, name)
    record.tell(report, lambda name: (name, ("node of " + name,)), "chip")
    return report


def test_each_tensor_is_told_once_and_their_number_is_bounded() -> None:
    large = np.array([1e5, 2.0, -3e7], np.float32)
    report = told((large, "w"), (large, "w"), (np.ones(3), "u"))
    (warning,) = report.warnings
    assert warning.severity == "warning"
    assert warning.code == "value-range"
    for part in ('"w"', "chip", "2 of 3", "3e+07", "65504"):
        assert part in warning.message
    assert warning.location is not None
    assert warning.location.node == "node of w"
    many = told(*((large, f"w{k}") for k in range(100)))
    assert len(many.warnings) == 9
    assert "92 more tensors" in many.warnings[-1].message
    assert many.counts["tensors with values out of range"] == 100


def test_a_few_values_next_to_zero_are_no_warning() -> None:
    """A normal distribution has some: they are listed for --explain alone."""
    values = np.random.default_rng(0).standard_normal(200_000) * 1e-3
    report = told((values, "w"))
    assert not report.warnings
    assert [subject for subject, _ in report.misses] == ["w"]
