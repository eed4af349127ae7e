"""The helpers beside the tests can be imported by them, and builds share a cache."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def builds(shared: Path) -> Path:
    """The cache of all tests and workers: several build the same networks, and most share kernels."""
    return shared / "frontend_onnx"
