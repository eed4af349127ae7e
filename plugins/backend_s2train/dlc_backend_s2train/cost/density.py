"""How much of a broadcast operand is not zero, as the array sees it: rows of a tile wait for the fullest of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.base.diagnostics import error


def row_density(x: NDArray[Any], rows: int = 4) -> float:
    """The part of array steps that is left when zeros are skipped, for `Assumptions.density`.

    Of each group of `rows` rows of a map, all channels and columns, the fullest counts; the mean over groups and
    images. Never below the plain part of elements that are not zero.

    Args:
        x: [n, channels, height, width]; NaN and infinities are not zero.
        rows: PE rows that wait for each other.

    Raises:
        DlcError: "bad-shape".
    """
    if x.ndim != 4 or not x.size or rows < 1:
        raise error("bad-shape", f"densities are those of [n, channels, rows, columns], not of {list(x.shape)}")
    full = np.count_nonzero(x, axis=(1, 3))
    padded = np.pad(full, ((0, 0), (0, -x.shape[2] % rows)))
    fullest = padded.reshape(len(x), -1, rows).max(axis=2)
    # A last group of fewer rows counts as much as its rows.
    waiting = [min(rows, x.shape[2] - begin) for begin in range(0, x.shape[2], rows)]
    return float((fullest * np.asarray(waiting)).sum() / x.size)
