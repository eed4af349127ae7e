"""Small models on their way through the C backend: what its tests share."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from dlc_backend_c.backend import C

from dlc import Artifact, Backend, Job, Report
from dlc.api.plan import Plan
from dlc.api.schedules import with_schedules
from dlc.base.types import Type, f32
from dlc.files.hashing import OwnedFile
from dlc.graph import Constant, Graph, Input, Tensor, make_graph
from dlc.ops.elementwise import Add, Mul, Relu
from dlc.ops.linear import Conv, MatMul
from dlc.ops.normalize import Softmax
from dlc.ops.pool import MaxPool
from dlc.ops.shape import Reshape, Transpose
from dlc.passes.expand import Expand
from dlc.passes.lower import Lower
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory

Array = np.ndarray[Any, np.dtype[Any]]


def plan_of(graph: Graph, backend: Backend | None = None) -> Plan:
    """The plan of a graph, unfused: what the backend gets, with in-place steps and views, and room for its kernels."""
    report = Report()
    kernels = Lower().run(Expand().run(graph, report), report)
    return PlanMemory().run(Order().run(with_schedules(kernels, backend or C(), report), report), report)


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def constant(*shape: int, seed: int = 0) -> Constant:
    return Constant(Tensor.of(numbers(*shape, seed=seed)))


def small_net(name: str = "x", seed: int = 0) -> Graph:
    """Convolution, pool, view, product, softmax; two outputs, one of which is read again."""
    x = Input(name, Type(f32, (1, 3, 8, 8)))
    y = Relu(Conv(x, constant(4, 3, 3, 3, seed=seed), None, (1, 1), (1, 1, 1, 1), (1, 1), 1))
    y = Reshape(MaxPool(y, (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False), (1, 64))
    # A constant expression: evaluated when the weights are written.
    z = Softmax(MatMul(y, Transpose(constant(10, 64, seed=seed + 1), (1, 0))), 1)
    return make_graph((x,), {"probabilities": z, "features": y})


def sums(a: str = "a", b: str = "b", out: str = "y") -> Graph:
    """relu(a + b) * w: two inputs, one constant."""
    left, right = Input(a, Type(f32, (2, 3))), Input(b, Type(f32, (2, 3)))
    return make_graph((left, right), {out: Mul(Relu(Add(left, right)), constant(2, 3, seed=7))})


@dataclass
class Bench:
    """A workshop that remembers results by key, as the driver's does."""

    known: dict[tuple[tuple[str, str], ...], bytes] = field(default_factory=dict[tuple[tuple[str, str], ...], bytes])
    made: list[str] = field(default_factory=list[str])
    report: Report = field(default_factory=Report)

    def file(self, name: str, size: int) -> OwnedFile:
        del size
        return OwnedFile.create(name)

    def cached(self, jobs: Sequence[Job]) -> list[bytes]:
        for job in jobs:
            if job.key not in self.known:
                self.known[job.key] = job.make()
                self.made.append(job.subject)
        return [self.known[job.key] for job in jobs]


def content(artifact: Artifact, name: str) -> bytes:
    found = artifact.files[name]
    return found.read_bytes() if isinstance(found, Path) else bytes(found)


def shell(*command: str | Path, cwd: Path) -> str:
    """Output of a command that must succeed without a word on stderr."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout
