"""Checkpoints that do not fit, are damaged or cannot be written."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from dlc.training.loop.checkpoint import read_checkpoint, write_checkpoint
from dlc.training.loop.loop import Course, State
from tests.training.linear import Linear, blobs
from tests.training.runs import ROWS, Start, data_of, weights


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seed": 1}, "--seed: 0, now 1"),
        ({"shuffle": False}, "--shuffle: True, now False"),
        ({"judged": False}, "rows of validation data: 11, now 0"),
    ],
)
def test_other_settings(start: Start, tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    start(epochs=1).go()
    run = start(epochs=2, **changes)
    before = weights(run)
    with pytest.raises(DlcError, match="belongs to a run with other settings or data") as caught:
        run.resume(read_checkpoint(tmp_path / "c.dlc"))
    assert text in str(caught.value)
    assert weights(run) == before


def test_other_data(start: Start, tmp_path: Path) -> None:
    start(epochs=1).go()
    run = start(epochs=2)
    arrays = blobs(ROWS)
    arrays["x"][3] += 1
    run.course = replace(run.course, data=data_of(Linear(), tmp_path / "other.npz", arrays))
    with pytest.raises(DlcError, match=r"data: [0-9a-f]{12}, now [0-9a-f]{12}"):
        run.resume(read_checkpoint(tmp_path / "c.dlc"))


def test_another_program(start: Start, tmp_path: Path) -> None:
    start(epochs=1).go()
    content = (tmp_path / "c.dlc").read_bytes()
    run = start(Linear(classes=4), epochs=2)
    before = weights(run)
    with pytest.raises(DlcError, match="cannot be resumed from: it is of another program"):
        run.resume(read_checkpoint(tmp_path / "c.dlc"))
    assert weights(run) == before
    assert (tmp_path / "c.dlc").read_bytes() == content


@given(st.booleans(), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_damaged_checkpoints(tmp_path_factory: pytest.TempPathFactory, cut: bool, part: float, bits: int) -> None:
    directory = tmp_path_factory.mktemp("c")
    program = Linear()
    course = Course(data_of(program, directory / "d.npz"), None, 4, epochs=1)
    write_checkpoint(directory / "c.dlc", program, course, State())
    content = bytearray((directory / "c.dlc").read_bytes())
    at = int(part * len(content))
    if cut:
        del content[at:]
    else:
        content[at] ^= bits
    (directory / "c.dlc").write_bytes(content)
    with pytest.raises(DlcError, match="cannot be resumed from"):
        read_checkpoint(directory / "c.dlc")


HEADERS = [
    b"",
    b"[]",
    b"{}",
    b"[" * 5000,
    b'{"version": 2}',
    b'{"version": 1, "parts": {"program": 99}}',
    b'{"version": 1, "parts": {"program": -1}}',
    b'{"version": 1, "parts": {"evil": 0}}',
    b'{"version": 1, "parts": {"program": 0}, "identity": 5, "state": {}}',
    b'{"version": 1, "parts": {"program": 0}, "identity": {}, "state": {"epoch": "x"}}',
    b'{"version": 1, "parts": {"program": 0}, "identity": {}, "state": {"epoch": 1e999}}',
    b'{"version": 1, "parts": {"program": 0}, "identity": {}, "state": {"epoch": 1, "step": -1, "sum": 0, '
    b'"seconds": 0, "history": [], "best": 0, "trace": {"width": 1, "points": [], "pending": []}}}',
]


@pytest.mark.parametrize("text", HEADERS)
def test_headers_that_somebody_made(tmp_path: Path, text: bytes) -> None:
    """With a SHA-256 that fits."""
    content = b"dlc-train\n" + len(text).to_bytes(8, "little") + text
    (tmp_path / "c").write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(DlcError, match="cannot be resumed from"):
        read_checkpoint(tmp_path / "c")


def test_a_checkpoint_is_on_the_medium_before_it_takes_the_name(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(epochs=1).go()
    old, seen = (tmp_path / "c.dlc").read_bytes(), list[bytes]()
    monkeypatch.setattr("os.fsync", lambda _: seen.append((tmp_path / "c.dlc").read_bytes()))  # pyright: ignore
    start(epochs=1, seed=1).go()
    assert seen == [old]


def test_a_checkpoint_that_cannot_be_written(start: Start, tmp_path: Path) -> None:
    run = start(epochs=1)
    run.outputs = replace(run.outputs, checkpoint=tmp_path / "absent" / "c.dlc")
    with pytest.raises(DlcError, match="cannot be written"):
        run.go()
