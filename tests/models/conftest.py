"""Fixtures of the tests on whole networks."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.models.building import Bench


@pytest.fixture(scope="session")
def bench(shared: Path) -> Bench:
    """One cache for all tests and workers: several build the same networks."""
    return Bench(shared / "models")


@pytest.fixture
def place() -> Generator[Path]:
    """A directory that is gone after the test, unlike `tmp_path`."""
    with TemporaryDirectory(prefix="dlc-model-") as directory:
        yield Path(directory)
