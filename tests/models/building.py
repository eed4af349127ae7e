"""Models on their way through `dlc build`: the whole command, in this process, with one cache for all tests."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dlc.api.plan import Plan
from dlc.api.program import Program
from dlc.cli.frame import run
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Terminal
from dlc.cli.workspace import Workspace
from dlc.graph import Graph
from dlc.graph.constants import compute_ops
from dlc.runtime.loading import load
from tests.models.writing import Array

MAX_ERROR = 1e-4
"""Largest error that a network may make, relative to the largest magnitude of the output."""


@dataclass(frozen=True)
class Built:
    """What `dlc build` wrote, and what it said."""

    source: Path
    directory: Path
    document: Mapping[str, Any]

    @property
    def program(self) -> Program:
        """The program, loaded."""
        return load(self.directory)

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One run, by names of inputs and outputs."""
        inputs: dict[str, Any] = dict(feeds)
        return self.program(**inputs)

    @property
    def memory(self) -> Mapping[str, Any]:
        """Arena, bound and gap."""
        return self.document["memory"]


@dataclass(frozen=True)
class Bench:
    """Builds models. Kernels that several models share are compiled once, as in any use of dlc."""

    cache: Path

    def build(self, source: Path, directory: Path, *flags: str, target: str = "c") -> Built:
        """`dlc build SOURCE --target TARGET -o DIRECTORY …`, which must succeed."""
        text = io.StringIO()
        with redirect_stdout(text):
            where = ["-o", str(directory), "--cache-dir", str(self.cache)]
            code = run(["build", str(source), "--target", target, *where, "--json", *flags])
        document = json.loads(text.getvalue())
        assert code == 0, document["diagnostics"]
        return Built(source, directory, document)

    def compile(self, model: onnx.ModelProto, directory: Path, *flags: str, target: str = "c") -> Built:
        """`build` of a model that is written to a file first."""
        directory.mkdir(parents=True, exist_ok=True)
        source = directory / "model.onnx"
        source.write_bytes(model.SerializeToString())
        return self.build(source, directory / "out", *flags, target=target)

    def states(self, source: Path) -> dict[str, Graph | Plan]:
        """What every step of an earlier build gave, by name of the step, from the cache: nothing runs again."""
        space = Workspace.open(Terminal(), CacheOptions("require", self.cache))
        prepared = space.prepare(BuildOptions(str(source), "c"))
        found: dict[str, Graph | Plan] = {}
        with space.cache() as cache:
            space.compile(
                prepared,
                cache,
                stop_after="plan-memory",
                on_step=lambda step: found.update({step.title: step.handle.value}),
            )
        return found


def compute_nodes(graph: Graph) -> int:
    """How many ops a run computes; what only gives memory another shape counts too."""
    return len(compute_ops(graph))


def reference(source: Path, feeds: Mapping[str, Array], optimised: bool = True) -> dict[str, Array]:
    """What onnxruntime computes, by output name."""
    onnxruntime: Any = import_module("onnxruntime")  # it has no types
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(source), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def random_inputs(program: Program, seed: int = 1) -> dict[str, Array]:
    """Standard normal floats; integers of 0 and 1."""
    from dlc.runtime.feeds import random_feeds

    return random_feeds(program.signature.inputs, seed)


def assert_close(got: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    """All outputs within `MAX_ERROR`."""
    assert list(got) == list(want)
    for name, right in want.items():
        assert got[name].shape == right.shape, name
        assert got[name].dtype == right.dtype, name
        scale = float(np.abs(right).max())
        assert scale > 0, name
        assert np.ptp(right) > 1e-3 * scale, f"{name} is the same everywhere, so a comparison says nothing"
        error = float(np.abs(got[name].astype(np.float64) - right).max()) / scale
        assert error <= MAX_ERROR, f"{name}: {error:.2e} of the largest magnitude"
