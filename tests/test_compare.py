"""What counts as close enough."""

import numpy as np
import pytest

from dlc.verify.compare import Tolerance, compare

NEAR = Tolerance(1e-3, 1e-6)
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "want", "wrong"),
    [
        ([NAN, 1.0], [NAN, 1.0], 0),
        ([INF, -INF], [INF, -INF], 0),
        ([NAN, 1.0], [1.0, NAN], 2),
        ([INF, -INF], [-INF, -INF], 1),
        ([1.0005, 1.1], [1.0, 1.0], 1),
    ],
)
def test_nan_and_infinities_on_both_sides_are_equal(got: list[float], want: list[float], wrong: int) -> None:
    a, b = np.array(got, np.float32), np.array(want, np.float32)
    assert compare("y", a, b, NEAR).wrong == wrong
