"""Cases → C: parsed, differentiated, run through the pipeline and emitted as `dlc build` does, with nothing kept.

What is computed stands beside it as a graph, for the evaluator of the reference.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from dlc_backend_c import target
from dlc_backend_c.manifest import read
from dlc_frontend_onnx.frontend import Onnx

from dlc.api.artifact import Artifact
from dlc.api.source import Source
from dlc.cache import Cache, MemoryStore
from dlc.config.config import Config
from dlc.config.file import load_config
from dlc.driver.build import compile_source
from dlc.driver.codec import Context
from dlc.driver.pipeline import ResolvedPipeline, resolve
from dlc.driver.session import Session
from dlc.driver.state_text import op_classes
from dlc.graph import Graph
from dlc.plugins.discovery import load_registry
from dlc.plugins.registry import Registry
from tests.frontend_onnx.building import parse
from tests.fuzz.case import Case, Tools
from tests.fuzz.found import frozen
from tests.fuzz.model import Array, Model


@dataclass(frozen=True)
class Call:
    """What a program is given, and what it has to compute of it."""

    model: Model
    """The case's, with numbers in place of the names of dimensions."""
    graph: Graph
    """What the pipeline was given to compile: the model, its gradients or a step of training. Of a model with open
    dimensions: the graph of `model`, which the importer reads without them."""
    feeds: Mapping[str, Array]


@dataclass(frozen=True)
class Program:
    """The C text of a case, and what it has to compute."""

    case: Case
    artifact: Artifact
    calls: tuple[Call, ...]
    """One, unless there are dimensions that are known when the program runs."""

    @property
    def prefix(self) -> str:
        return Path(self.artifact.entry).stem


@cache
def installed() -> tuple[Registry, Config]:
    """Plugins, and a configuration of no file."""
    return load_registry(()), load_config(Path("/"))


@contextmanager
def machine_of(tools: Tools) -> Generator[None]:
    """What `native` means is the tools' machine meanwhile: schedules depend on its caches and registers."""
    if not tools.machine:
        yield
        return
    vector_bytes, registers, l1, l2 = tools.machine
    own = target.native

    def native(features: frozenset[str]) -> target.CTarget:
        return replace(own(features), vector_bytes=vector_bytes, registers=registers, l1=l1, l2=l2)

    with patch.object(target, "native", native):
        yield


def pipeline_of(case: Case, prefix: str) -> ResolvedPipeline:
    """What `dlc build` would run for the case's flags; raises DlcError (USAGE) when they do not fit together."""
    tools = case.tools
    math, threads = "ordered" if tools.strict else "fast", f" threads={tools.threads}" if tools.threads > 1 else ""
    # Indices that are drawn may be out of range; the program limits them as the reference does.
    spec = f"c{{prefix={prefix} weights=text lib=none check=none cpu={tools.cpu} math={math}{threads}}}"
    pipeline = f"autodiff{{{case.train}}},infer" if case.kind == "train" else None
    grad = tuple(n for n, v in case.model.inputs.items() if v.dtype.kind == "f") if case.kind == "gradient" else ()
    registry, config = installed()
    return resolve(registry, config, spec, pipeline=pipeline, settings=case.settings, without=case.without, grad=grad)


def program_of(case: Case, prefix: str) -> Program:
    """The case, compiled to C text; raises DlcError as the command would, and anything else where dlc is broken."""
    pipeline = pipeline_of(case, prefix)
    registry, _ = installed()
    session = Session(Cache(MemoryStore(), "off"), Context(lambda: op_classes(registry)), jobs=1)
    source = Source(data=case.model.bytes, label="fuzz.onnx")
    limits = tuple(f"{name}:{sizes}" for name, sizes in case.model.ranges.items() if sizes)
    frontend = Onnx(unroll=case.unroll, dims=limits)
    done = compile_source(source, frontend, "dlc_frontend_onnx", pipeline, session, stop_after="emit")
    if case.model.calls:
        models = [frozen(case.model.at(sizes)) for sizes in case.model.calls]
        return Program(case, done.last.value, tuple(Call(m, parse(m.onnx), m.inputs) for m in models))
    before = max((k + 1 for k, s in enumerate(pipeline.steps) if s.stage.computes_other), default=0)
    graph: Graph = done.steps[before].handle.value
    return Program(case, done.last.value, (Call(case.model, graph, feeds_of(case, graph)),))


def feeds_of(case: Case, graph: Graph) -> dict[str, Array]:
    """Values of a graph's inputs: the model's, what weights begin with, and random seeds of gradients and labels."""
    rng = np.random.default_rng(case.seed)
    found: dict[str, Array] = {}
    for i in graph.inputs:
        initial: Any = i.initial
        if i.name in case.model.inputs:
            found[i.name] = case.model.inputs[i.name]
        elif initial is not None:
            found[i.name] = initial.array() if hasattr(initial, "array") else np.full(i.shape, initial, i.dtype.numpy)
        elif i.dtype.is_float:
            found[i.name] = rng.standard_normal(i.shape).astype(i.dtype.numpy)
        else:
            found[i.name] = np.zeros(i.shape, i.dtype.numpy)
    return found


def text_of(program: Program) -> dict[str, bytes]:
    """The C files of a program: its header, and one unit with its weights."""
    files, p = program.artifact.files, program.prefix
    source = bytes(read(files[f"{p}.c"]))
    weights = files.get(f"{p}_weights.c")
    if weights is not None:
        source += b"\n" + bytes(read(weights))
    return {f"{p}.h": bytes(read(files[f"{p}.h"])), f"{p}.c": source}
