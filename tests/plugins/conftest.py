"""Distributions made on the spot: metadata and a module on sys.path, as pip would leave them."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`install(name, code)`: a distribution dlc-NAME 1.2 with the entry point NAME and the module dlc_test_NAME."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def make(name: str, code: str, distribution: str = "", point: str = "") -> None:
        distribution = distribution or f"dlc-{name}"
        info = tmp_path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[dlc]\n{point or name} = dlc_test_{name}\n")
        (tmp_path / f"dlc_test_{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, f"dlc_test_{name}", raising=False)
        importlib.invalidate_caches()

    return make
