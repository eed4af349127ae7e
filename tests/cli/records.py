"""Records for tests: of small builds, of a ResNet-50, and of one with names that try to leave the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from dlc.cache.step_record import StepRecord
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Terminal
from dlc.cli.workspace import Workspace
from dlc.record.build import function_of, plans_of
from dlc.record.graph import linked, nodes_of
from dlc.record.passes import Job, pass_of
from dlc.record.record import (
    Kernel,
    Layer,
    MachineLimits,
    MemoryLimit,
    ProgramTimes,
    Record,
    Run,
    StepTimes,
)

NAME = "model.onnx"
PLAIN = "lower,order,plan-memory"


def steps_of(model: onnx.ModelProto, place: Path, pipeline: str = PLAIN) -> Sequence[StepRecord[Any]]:
    """The steps of a build that ends with a plan."""
    path = place / NAME
    path.write_bytes(model.SerializeToString())
    space = Workspace.open(Terminal(quiet=True), CacheOptions("off"))
    prepared = space.prepare(BuildOptions(str(path), "", pipeline))
    with space.cache() as cache:
        return space.compile(prepared, cache, stop_after="plan-memory").steps


def planned(model: onnx.ModelProto, place: Path, pipeline: str = PLAIN) -> Record:
    """The record of a build that ends with a plan, with kernels and times that nobody measured."""
    return record_of(steps_of(model, place, pipeline), pipeline)


def record_of(steps: Sequence[StepRecord[Any]], pipeline: str) -> Record:
    """See `planned`, of the steps of such a build."""
    (function,) = (function_of(name, plan) for name, plan in plans_of(steps).items())
    digests = dict.fromkeys(layer.kernel for layer in function.layers)
    kernels = tuple(_kernel(k, digest) for k, digest in enumerate(digests))
    parsed = nodes_of(steps[0].handle.value)
    return Record(
        NAME,
        "c{cpu=generic}",
        pipeline,
        "1.0",
        facts={"arena_bytes": function.memory.arena if function.memory else 0},
        passes=tuple(map(pass_of, steps)),
        graph=linked(parsed, function.layers),
        functions=(function,),
        kernels=kernels,
        runs=(_run(function.layers),),
    )


def _kernel(number: int, digest: str) -> Kernel:
    place = f"dlc_k_{digest[:16]}", "model.c", 10 * number + 1
    jobs = (Job("compile", digest, 5.0, cached=True),)
    return Kernel(digest, *place, "loops", 1000 * number, 64 * number, workspace=0, stack=96, jobs=jobs)


def _run(layers: Sequence[Layer]) -> Run:
    total = sum(range(1, len(layers) + 1))
    steps = tuple(
        StepTimes(
            step=k,
            kernel=layer.kernel,
            nodes=layer.nodes,
            ms=float(k + 1),
            share=(k + 1) / total,
            macs=4 * 10**5,
            operations=10**6,
            bytes=10**4 * (k + 1),
            gflops=1.0 + k % 60,
            gbytes_per_second=0.1,
            limit="compute",
            least_ms=0.1,
            part_of_limit=0.5,
            gain=1.0,
        )
        for k, layer in enumerate(layers)
    )
    own = ProgramTimes("dlc", "1.0", True, "", 9, 2.5, 2.0, 3.0, 400.0, 1.0, (), 1.0)
    limits = MachineLimits(80.0, (MemoryLimit("L1", 32768, 150.0), MemoryLimit("memory", None, 10.0)))
    return Run(1, "c", 0, ("x",), 10**6 * len(layers), 5.0, 0.1, (own,), limits, steps)
