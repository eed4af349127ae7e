"""Parts of a graph as programs: with the schedules and the compiler of the whole, and tensors for inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dlc.base.types import Array
from dlc.cache.step_record import Handle
from dlc.debug.states import StepState
from dlc.driver import steps
from dlc.driver.part_digests import part_digests
from dlc.driver.pipeline import ResolvedPipeline, Step
from dlc.driver.session import Session
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Input
from dlc.graph.walk import toposort
from dlc.plugins.registry import Registry
from dlc.runtime.install import install
from dlc.runtime.loading import load

TITLE = "part"
"""What generated names of a part start with."""


@dataclass(frozen=True)
class PartPrograms:
    """Builds and runs parts of a graph.

    Attributes:
        graph: What the parts are of: kernels with their schedules, for a target that has these.
        pipeline: What it was made by.
        passes: Of the pipeline, what makes a program of it.
        session: What it was built in.
        registry: The plugins.
    """

    graph: Graph
    pipeline: ResolvedPipeline
    passes: Sequence[Step]
    session: Session
    registry: Registry

    def run(self, known: Mapping[Op, Array], wanted: Sequence[Op]) -> Sequence[Array]:
        """Values of ops as a program computes them from those of others. Raises DlcError as a build does."""
        computed = [op for op in wanted if op not in known]
        if not computed:
            return [known[op] for op in wanted]
        part, feeds = part_of(self.graph, known, computed)
        with TemporaryDirectory(prefix="dlc-") as made:
            found = self._program(part, Path(made))(**feeds)
        values = {op: found[f"t{k}"] for k, op in enumerate(computed)}
        return [values[op] if op in values else known[op] for op in wanted]

    def _program(self, part: Graph, directory: Path) -> Callable[..., Mapping[str, Array]]:
        backend, package = self.pipeline.backend, self.pipeline.backend_package
        handle: Handle[Any] = Handle(part.kind, part.digest, lambda: part, part_digests(part))
        for step in (
            *map(steps.apply, self.passes),
            steps.emit(backend, package, TITLE),
            steps.compile_artifact(backend, package),
        ):
            handle = step.run(handle, self.session).handle
        install(handle.value, directory)
        return load(directory, self.registry)


def passes_after(state: StepState, pipeline: ResolvedPipeline) -> Sequence[Step]:
    """What the pipeline of a program of one function makes of a state."""
    (function,) = pipeline.functions
    return function.steps[state.passed :]


def part_of(graph: Graph, known: Mapping[Op, Array], wanted: Sequence[Op]) -> tuple[Graph, dict[str, Array]]:
    """(the part of a graph between some ops and others, its inputs by name). Outputs are called t0, t1, …"""
    new: dict[Op, Op] = {}
    feeds: dict[str, Array] = {}
    for op in known:
        new[op] = i = Input(f"i{len(feeds)}", op.type)
        feeds[i.name] = known[op]
    for op in toposort(wanted, tuple(known)):
        new[op] = op.with_operands([new[x] for x in op.operands])
    outputs = tuple(new[op] for op in wanted)
    used = toposort(outputs)
    inputs = tuple(i for i in used if isinstance(i, Input))
    names = tuple(f"t{k}" for k in range(len(outputs)))
    part = with_live_origins(replace(graph, inputs=inputs, outputs=outputs, names=names, aliases=(), labels={}))
    return part, {i.name: feeds[i.name] for i in inputs}


def function_name(directory: Path, kernel: str) -> str:
    """The C function of a kernel in the sources of a program; "" where no function has its digest in its name."""
    pattern = re.compile(rf"\b\w*{kernel[:16]}\w*\b")
    for path in sorted(directory.rglob("*.c")):
        if found := pattern.search(path.read_text(encoding="utf-8", errors="replace")):
            return found[0]
    return ""
