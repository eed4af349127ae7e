"""A file that is appended to holds what was appended, by direct I/O or not."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.files import appending
from dlc.files.appending import DIRECT_ABOVE, Appender

SIZES = st.lists(st.integers(0, 9000), max_size=12)


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "_BUFFER", 4096)


def pieces(sizes: list[int]) -> list[bytes]:
    return [bytes((k + i) % 251 for i in range(size)) for k, size in enumerate(sizes)]


@pytest.mark.parametrize("expected", [0, DIRECT_ABOVE + 1])
@given(sizes=SIZES)
def test_it_holds_what_was_appended_and_reads_it_back(
    expected: int, sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, parts = tmp_path_factory.mktemp("appending") / "file", pieces(sizes)
    whole = b"".join(parts)
    with Appender(path, expected) as file:
        for part in parts:
            file.write(part)
        assert file.size == len(whole)
        for start in range(0, len(whole), 1777):
            assert file.read(start, min(5000, len(whole) - start)) == whole[start : start + 5000]
    assert path.read_bytes() == whole


def test_direct_transfers_are_whole_blocks_and_the_rest_is_not_direct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    opened = os.open

    def noting(path: Path, flags: int, mode: int = 0o777) -> int:
        asked.append(flags & os.O_DIRECT)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", noting)
    for expected in (0, DIRECT_ABOVE, DIRECT_ABOVE + 1):
        with Appender(tmp_path / "file", expected) as file:
            file.write(bytes(5000))
    assert asked[:2] == [0, 0] and asked[2] == os.O_DIRECT
    assert (tmp_path / "file").stat().st_size == 5000


def test_a_file_system_without_direct_io_is_written_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, written, refused = os.open, os.write, list[str]()

    def refusing(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            refused.append("open")
            raise OSError(errno.EINVAL, "no direct I/O")
        return opened(path, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        with Appender(tmp_path / "a", DIRECT_ABOVE + 1) as file:
            file.write(b"x" * 5000)

    def once(fd: int, data: memoryview) -> int:
        if "write" not in refused:
            refused.append("write")
            raise OSError(errno.EINVAL, "not aligned")
        return written(fd, data)

    monkeypatch.setattr(os, "write", once)
    with Appender(tmp_path / "b", DIRECT_ABOVE + 1) as file:
        file.write(b"x" * 5000)
    assert refused == ["open", "write"]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"x" * 5000


def test_a_full_medium_is_an_error_of_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"), Appender(tmp_path / "file") as file:
        for _ in range(4):
            file.write(bytes(4096))
