"""Rows of a data set that is too large to be kept: read when they are asked for, while the file is the same."""

from pathlib import Path

import numpy as np
import pytest

from dlc.base.diagnostics import DlcError
from dlc.files import inputs
from dlc.training.loop.arrays import FileRows, stored_arrays


def test_rows_are_read_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "KEPT", 0)
    values = np.arange(60, dtype=np.float32).reshape(20, 3)
    np.savez(tmp_path / "d.npz", x=values)
    np.save(tmp_path / "y.npy", values[:, 0])
    with inputs.Inputs().active():
        found = stored_arrays([str(tmp_path / "d.npz"), f"y={tmp_path / 'y.npy'}"], ("x", "y"))
        rows, labels = found["x"].load(), found["y"].load()
        assert isinstance(rows, FileRows) and len(rows) == 20
        assert np.array_equal(rows[3:9], values[3:9]) and np.array_equal(rows[::4], values[::4])
        index = np.array([[7, 0], [19, 7]])
        assert np.array_equal(rows[index], values[index]) and np.array_equal(labels[index], values[:, 0][index])
        assert np.array_equal(rows.reshape((20, 1, 3))[18:], values[18:, None])
        (tmp_path / "d.npz").write_bytes((tmp_path / "d.npz").read_bytes()[:100])
        with pytest.raises(DlcError, match="changed while it was used"):
            rows[:1]
