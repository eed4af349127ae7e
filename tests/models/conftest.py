"""Fixtures of the tests on whole networks."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.models.building import Bench


@pytest.fixture(scope="session")
def bench() -> Generator[Bench]:
    """One cache for all tests. It goes with the session: weights of whole networks are large."""
    with TemporaryDirectory(prefix="dlc-models-") as directory:
        yield Bench(Path(directory))


@pytest.fixture
def place() -> Generator[Path]:
    """A directory that is gone after the test, unlike `tmp_path`."""
    with TemporaryDirectory(prefix="dlc-model-") as directory:
        yield Path(directory)
