"""A file of weights in memory: mapped, or copied where the system keeps the mapping in small pages and has room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c import weights_file
from dlc_backend_c.weights_file import LARGE_PAGE, Weights, weights_of

from dlc import DlcError, ExitCode

SIZE = 2 * LARGE_PAGE + 12345


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    np.random.default_rng(0).integers(0, 256, SIZE, np.uint8).tofile(path)
    return path


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A system with large pages and room for a copy, that maps files in small pages, where every file is large."""
    switch, mappings = tmp_path / "enabled", tmp_path / "smaps"
    switch.write_text("always [madvise] never\n")
    mappings.write_text("")
    monkeypatch.setattr(weights_file, "_SWITCH", switch)
    monkeypatch.setattr(weights_file, "_MAPPINGS", mappings)
    monkeypatch.setattr(weights_file, "SMALLEST", SIZE)
    monkeypatch.setattr(weights_file, "free_memory", lambda: 2 * SIZE)
    return monkeypatch


def private(array: np.ndarray[Any, Any]) -> bool:
    """Whether bytes are a copy: a mapping of the file cannot be written."""
    return array.flags.writeable


@pytest.mark.parametrize("how", ["mapped", "private", "auto"])
def test_the_bytes_are_those_of_the_file(how: Weights, file: Path, system: pytest.MonkeyPatch) -> None:
    del system
    found = weights_of(file, how)
    assert found.tobytes() == file.read_bytes()
    assert private(found) == (how != "mapped")
    if how == "private":
        assert found.ctypes.data % LARGE_PAGE == 0


@pytest.mark.parametrize("change", [("SMALLEST", SIZE + 1), ("free_memory", lambda: 2 * SIZE - 1)])
def test_small_files_and_little_memory_mean_no_copy(
    change: tuple[str, Any], file: Path, system: pytest.MonkeyPatch
) -> None:
    system.setattr(weights_file, *change)
    assert not private(weights_of(file, "auto"))


@pytest.mark.parametrize("text", ["always madvise [never]\n", None])
def test_systems_without_large_pages_mean_no_copy(text: str | None, file: Path, system: pytest.MonkeyPatch) -> None:
    switch = file.with_name("enabled" if text else "absent")
    switch.with_name("enabled").write_text(text or "")
    system.setattr(weights_file, "_SWITCH", switch)
    assert not private(weights_of(file, "auto"))


@pytest.mark.parametrize(("kilobytes", "copied"), [(4096, False), (2048, True), (0, True)])
def test_a_mapping_in_large_pages_is_not_copied(
    kilobytes: int, copied: bool, file: Path, system: pytest.MonkeyPatch
) -> None:
    class Mappings:
        """What the system says of the process, once the file is mapped."""

        @staticmethod
        def open(**_: Any) -> Any:
            sizes = "Rss: 4 kB\nFilePmdMapped: {} kB\n"
            own = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
            text = file.with_name("smaps")
            text.write_text("".join(f"{a}\n{sizes.format(kilobytes if a.endswith(str(file)) else 7)}" for a in own))
            return text.open()

    system.setattr(weights_file, "_MAPPINGS", Mappings)
    assert private(weights_of(file, "auto")) is copied


def test_other_ways(file: Path) -> None:
    way: Any = "read"
    with pytest.raises(DlcError, match="weights='read' is none of auto, mapped, private") as caught:
        weights_of(file, way)
    assert caught.value.exit_code is ExitCode.USAGE
