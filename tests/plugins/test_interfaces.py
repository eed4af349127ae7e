"""Sources: identity and content of what the user gave."""

import os
from pathlib import Path

import pytest
from blake3 import blake3

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError


@pytest.mark.parametrize("content", [b"", b"abc", b"x" * (3 << 20)])
def test_a_file_and_its_bytes_are_the_same_source(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.ONNX"
    path.write_bytes(content)
    file, data = Source(path), Source(data=content, label="model.onnx")
    assert file.digest == data.digest == blake3(content).hexdigest()
    assert bytes(file.view()) == bytes(data.view()) == content
    assert file.suffix == data.suffix == ".onnx"
    assert file.view().readonly


def test_a_changed_file_has_a_new_digest(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"one")
    first = Source(path).digest
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert Source(path).digest != first


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "absent", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(DlcError, match=reason):
            _ = Source(path).digest
        with pytest.raises(DlcError, match=reason):
            Source(path).view()
