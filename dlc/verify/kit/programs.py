"""Programs of graphs that are in memory, as `dlc build` makes them of files."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dlc.api.frontend import Frontend
from dlc.api.source import Source
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.types import Array
from dlc.driver.build import compile_source
from dlc.driver.pipeline import resolve
from dlc.driver.program import session_of
from dlc.graph import Graph
from dlc.verify.compare import compare
from dlc.verify.kit.check import Skipped, Wrong
from dlc.verify.kit.subject import in_words
from dlc.verify.reference import tolerance_for

if TYPE_CHECKING:
    from dlc.api.artifact import Artifact
    from dlc.api.backend import Backend
    from dlc.base.report import Report
    from dlc.verify.kit.subject import Subject


@dataclass(frozen=True)
class Model:
    """What programs are made of: a model's file, and what reads it."""

    source: Source
    frontend: Frontend
    package: str = "dlc"
    """Of the frontend."""

    @classmethod
    def of(cls, graph: Graph) -> Model:
        """A graph that is in memory."""
        return cls(Source(label="graph"), _frontend_of(graph))


def artifact_of(subject: Subject, model: Model | Graph, spec: str) -> Artifact | None:
    """What a target makes of a model; None where it refuses the model, with a reason."""
    compiler = subject.compiler
    given = Model.of(model) if isinstance(model, Graph) else model
    try:
        pipeline = resolve(subject.registry, compiler.config, spec)
        session = session_of(subject.registry, compiler.cache, given.source.path or Path(), 1)
        build = compile_source(given.source, given.frontend, given.package, pipeline, session)
    except DlcError as problem:
        if problem.exit_code in (ExitCode.MODEL, ExitCode.LIMIT):
            return None
        raise
    return cast("Artifact", build.last.value)


def program_of(subject: Subject, model: Model | Graph, spec: str) -> Any:
    """The loaded program of a model; None where the target refuses the model, with a reason.

    Raises:
        Skipped: programs of the target cannot run on this machine.
    """
    from dlc.runtime.install import install
    from dlc.runtime.loading import load

    artifact = artifact_of(subject, model, spec)
    if artifact is None:
        return None
    directory = Path(tempfile.mkdtemp(prefix="dlc-"))
    remove = partial(shutil.rmtree, directory, ignore_errors=True)
    try:
        install(artifact, directory)
        found: Any = load(directory, subject.registry)
    except DlcError as problem:
        remove()
        if "cannot-load" in {d.code for d in problem.diagnostics}:
            help = "give the backend a load() with a simulator, or run the kit where its programs run"
            raise Skipped(in_words(problem), help) from None
        raise
    except BaseException:
        remove()
        raise
    weakref.finalize(found, remove)
    return found


def _frontend_of(graph: Graph) -> Frontend:
    """What reads the graph, whatever the source."""

    @dataclass(frozen=True)
    class Given(Frontend):
        """A graph that is in memory."""

        name = "given"

        def parse(self, source: Source, report: Report) -> Graph:
            """The graph."""
            return graph

    return Given()


def agree(
    what: str,
    program: Any,
    values: Mapping[str, Array],
    want: Mapping[str, Array],
    backend: Backend,
    name: str = "numpy",
) -> None:
    """Call a program and compare its outputs. Raises Wrong.

    Args:
        what: Program and model, for messages.
        program: The program.
        values: Of its inputs, by name.
        want: Of its outputs, by name.
        backend: That made it: it may know its tolerance.
        name: Of the reference: "expected" for ONNX's own files.
    """
    got = program(**{p.name: values[p.name] for p in program.signature.inputs})
    for output, expected in want.items():
        if output not in got:
            raise Wrong(f"{what}: there is no output {output}", "programs return all outputs of the signature")
        mine = got[output]
        if (mine.dtype, mine.shape) != (expected.dtype, expected.shape):
            types = f"{mine.dtype}{list(mine.shape)}, not {expected.dtype}{list(expected.shape)}"
            raise Wrong(f"{what}: {output} is {types}", "outputs have the types of the signature")
        found = compare(output, mine, expected, tolerance_for(name, expected, None, None, backend.tolerance))
        if not found.ok:
            raise Wrong(
                f"{what}: {output} differs in {found.wrong} of {found.size} elements, by {found.max_abs:.3g}",
                "dlc debug first-divergence finds the op; Backend.tolerance says what the target's numbers allow",
            )
