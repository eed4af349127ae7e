"""Files are written whole, and nothing but files is replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dlc import DlcError
from dlc.files.writing import write_whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_whole(path, b"first", make_directory=True)
    write_whole(path, b"second")
    assert path.read_bytes() == b"second" and [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_pipe_and_a_directory_stay_what_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(DlcError, match="is a device or pipe"):
        write_whole(pipe, b"content")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(DlcError, match="is a directory"):
        write_whole(tmp_path, b"content")
