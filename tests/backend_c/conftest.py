"""Fixtures of the C backend's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dlc_backend_c.backend import C

from dlc import Artifact, Report, Spec
from dlc.graph import Graph
from dlc.runtime.install import install
from tests.backend_c.models import Bench, plan_of

Compile = Callable[..., Artifact]


@pytest.fixture(scope="session")
def bench() -> Bench:
    """Objects shared by all tests of a session: most of them compile the same kernels."""
    return Bench()


@pytest.fixture
def compile_model(bench: Bench) -> Compile:
    """`compile_model(graph, "c{…}", directory)`: emit, build and install."""

    def compile_(graph: Graph, spec: str, directory: Path | None = None, workshop: Bench | None = None) -> Artifact:
        backend = C.from_spec(Spec.parse(spec))
        artifact = backend.build(backend.emit(plan_of(graph, backend), Report()), workshop or bench)
        if directory is not None:
            install(artifact, directory)
        return artifact

    return compile_
