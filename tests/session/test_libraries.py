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


def test_the_first_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("Some.Thing-1.2.dist-info", "other-3.0-py3.11.egg-info", "numpy-0.1.dist-info"):
        (tmp_path / name).mkdir()
    found = libraries.versions(("some_thing", "other", "numpy"))
    assert found == "some_thing 1.2, other 3.0, numpy 0.1"
    assert libraries.names_in(found) == ("some_thing", "other", "numpy")
    libraries.installed.cache_clear()
