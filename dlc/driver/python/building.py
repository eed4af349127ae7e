"""Builds inside of Python: a model or a graph, and how it is to be built, to a program and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.driver.graph_source import Given
from dlc.driver.prepare import Prepared, resolved
from dlc.driver.program import Compiler
from dlc.driver.python.compiled import BuildReport, Compiled

if TYPE_CHECKING:
    from dlc.api.source import Source
    from dlc.cache.step_record import StepRecord
    from dlc.driver.python.options import Options
    from dlc.graph.graph import Graph


def program_of(source: Source, options: Options) -> Compiled:
    """The program of a model. Raises DlcError."""
    compiler = _compiler(options)
    try:
        return _built(compiler, compiler.prepare(source, options.choice(compiler.registry)), options)
    finally:
        compiler.cache.close()


def program_of_graph(graph: Graph, title: str, options: Options) -> Compiled:
    """The program of a graph, whose sizes and shapes are those that it has. Raises DlcError."""
    frontend, source = Given.of(graph, title)
    compiler = _compiler(options)
    try:
        choice = options.choice(compiler.registry)
        pipeline = resolved(compiler.registry, compiler.config, frontend, choice.target or "c", choice)
        return _built(compiler, Prepared(source, frontend, "dlc", pipeline), options)
    finally:
        compiler.cache.close()


def _compiler(options: Options) -> Compiler:
    return Compiler.open(
        options.cache_dir,
        options.cache,
        jobs=options.jobs,
        ops=options.ops,
        trusted_keys=options.trusted_keys,
        signing_key=options.signing_key,
        cache_key=options.cache_key,
        levels=options.cache_levels,
    )


def _built(compiler: Compiler, prepared: Prepared, options: Options) -> Compiled:
    steps: list[StepRecord[Any]] = []
    build = compiler.build(prepared, steps.append)
    place = None if options.output is None else Path(options.output)
    program = compiler.loaded(build.last.value, place)
    return Compiled(program, BuildReport(tuple(steps)), options, lambda: steps[0].handle.value)
