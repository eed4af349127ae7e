"""Which libraries are installed, as keys of the cache tell it."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from dlc.base import libraries


@pytest.fixture(autouse=True)
def forgetful() -> None:
    libraries.installed.cache_clear()


def test_versions_are_those_of_the_metadata() -> None:
    assert libraries.versions(("numpy", "onnx")) == f"numpy {version('numpy')}, onnx {version('onnx')}"
    assert libraries.versions(("no-such-library",)) == "no-such-library ?"


def test_any_change_of_what_is_installed_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = libraries.fingerprint()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    libraries.installed.cache_clear()
    assert libraries.fingerprint() == before
    (tmp_path / "Some.Thing-1.2.dist-info").mkdir()
    (tmp_path / "other-3.0-py3.11.egg-info").mkdir()
    (tmp_path / "numpy-0.1.dist-info").mkdir()  # the first on the path counts
    libraries.installed.cache_clear()
    assert libraries.fingerprint() != before
    assert libraries.versions(("some_thing", "other", "numpy")) == "some_thing 1.2, other 3.0, numpy 0.1"
    libraries.installed.cache_clear()
