"""Elements that numpy's files have no name for are stored as bytes, and read as what the program wants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc import DlcError
from dlc.api.program import Port
from dlc.base.types import NARROW, DType, Type, f32
from dlc.runtime.feeds import random_feeds, read_feeds, write_arrays
from tests.kernel.narrow_values import same, values_of


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_arrays_are_written_and_read_again(dtype: DType, tmp_path: Path) -> None:
    value = values_of(dtype)[:4]
    port = Port("x", Type(dtype, value.shape))
    write_arrays(tmp_path / "x.npz", {"x": value})
    found = read_feeds([str(tmp_path / "x.npz")], [port])["x"]
    assert found.dtype == dtype.numpy
    assert same(found, value)


def test_bytes_are_not_read_as_a_type_of_another_size(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x.npz", {"x": np.ones(4, np.dtype("V2"))})
    with pytest.raises(DlcError, match=r"i4\[4\]"):
        read_feeds([str(tmp_path / "x.npz")], [Port("x", Type(next(t for t in NARROW if t.name == "i4"), (4,)))])


def test_a_refusal_says_how_to_convert(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(4, np.float32))
    with pytest.raises(DlcError) as caught:
        read_feeds([str(tmp_path / "x.npy")], [Port("x", Type(NARROW[0], (4,)))])
    assert "f32[4]" in caught.value.diagnostics[0].message
    assert "ml_dtypes.bfloat16" in caught.value.diagnostics[0].help


@pytest.mark.parametrize("dtype", [f32, *NARROW], ids=str)
def test_random_elements_are_numbers(dtype: DType) -> None:
    found = random_feeds([Port("x", Type(dtype, (50,)))], 0)["x"]
    assert found.dtype == dtype.numpy
    assert np.isfinite(found.astype(np.float64)).all()
