"""Checks of frontends: sample models by value, by text, as programs, and damaged in every way."""

from __future__ import annotations

import base64
import json
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from dlc.base.diagnostics import DlcError
from dlc.base.report import Report
from dlc.graph import evaluate, parse_graph, print_graph, verify
from dlc.plugins.plugin import pip_install
from dlc.spec import Spec
from dlc.verify.compare import Tolerance, compare
from dlc.verify.kit.check import Check, Skipped, Wrong, tried
from dlc.verify.kit.process import python
from dlc.verify.kit.programs import Model, agree, program_of
from dlc.verify.kit.random_graphs import feeds
from dlc.verify.kit.subject import in_words

if TYPE_CHECKING:
    from dlc.api.frontend import Frontend
    from dlc.api.samples import ModelSample
    from dlc.api.source import Source
    from dlc.base.types import Array
    from dlc.graph import Graph
    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject

NEAR: Final = Tolerance(1e-4, 1e-5)
SECONDS: Final = 5.0
"""Of processor time, for one damaged file."""
_WALL: Final = 240.0
"""Seconds for all damaged copies of one model."""


def _models(subject: Subject, entry: Entry) -> list[ModelSample]:
    """The sample models that a frontend reads. Raises Wrong: there is none."""
    found: list[ModelSample] = []
    for sample in subject.samples.models:
        try:
            reader = subject.registry.frontend_for(sample.source)
        except DlcError:
            continue
        if reader.name == entry.name:
            found.append(sample)
    if not found:
        help = 'add ModelSample(Source(data=…, label="model.suffix")) to models of the Samples of dlc_samples'
        raise Wrong(f"no sample model is read by {entry.name}", help)
    return found


def reads(subject: Subject, entry: Entry) -> str:
    """That sample models are read, twice alike, as graphs that verify, print and parse, and give the right values.

    So it is with the options that the samples name, each with one model at least; what their values are nobody says.
    """
    default, *others = subject.specs(entry)
    frontend, compared = subject.registry.frontend(default), 0
    samples = _models(subject, entry)
    for sample in samples:
        compared += read_sample(subject, sample, frontend)
    if not compared:
        help = "give one ModelSample feeds and outputs, by another implementation or by hand"
        raise Wrong(f"no sample model of {entry.name} says what it computes", help)
    for spec in others:
        _read_with(subject, spec, samples)
    options = f", read with {len(others)} more options" if others else ""
    return f"{len(samples)} models, {compared} with values{options}"


def _read_with(subject: Subject, spec: Spec, samples: list[ModelSample]) -> None:
    """A spec of the samples reads one of the models; others it may refuse."""
    frontend, refusals = subject.registry.frontend(spec), list[str]()
    for sample in samples:
        try:
            frontend.graph(sample.source, Report())
        except DlcError as problem:
            refusals.append(f"{sample.source.name}: {in_words(problem)}")
            continue
        with tried(str(spec)):
            read_sample(subject, replace(sample, outputs={}), frontend, f" by {spec}")
    if len(refusals) == len(samples):
        help = "add a ModelSample that these options are for, or take them out of specs of the Samples of dlc_samples"
        raise Wrong(f"{spec} reads no sample model: {refusals[0]}", help)


def builds(subject: Subject, entry: Entry) -> str:
    """That programs of the sample models, read as a build reads them, give the values of what is read."""
    if not subject.all_targets:
        raise Skipped("no backend is installed", pip_install("c"))
    built, refused = 0, list[str]()
    samples = _models(subject, entry)
    for spec in subject.specs(entry):
        frontend = subject.registry.frontend(spec)
        for sample, target in product(samples, subject.all_targets):
            what = f"{sample.source.name} by {spec} for {target}"
            try:
                graph = frontend.graph(sample.source, Report())
            except DlcError:
                continue  # `reads` says whether that is right
            with tried(what):
                program = program_of(subject, Model(sample.source, frontend, entry.package), target)
                if program is None:
                    refused.append(what)
                    continue
                values = {**feeds(graph, subject.seed), **_values(graph, sample)}
                if values.keys() == {i.name for i in graph.inputs}:
                    backend = subject.registry.backend(Spec.parse(target))
                    agree(what, program, values, evaluate(graph, values), backend)
            built += 1
    if not built:
        help = "add a ModelSample of ops that the target has; --target chooses another one"
        raise Wrong(f"no sample model of {entry.name} is built: {', '.join(refused)} are refused", help)
    return f"{built} programs" + (f", {len(refused)} refused" if refused else "")


def _values(graph: Graph, sample: ModelSample) -> dict[str, Array]:
    """Of the inputs that the sample says, as far as an option has not changed their shapes."""
    found: dict[str, Array] = {}
    for i in graph.inputs:
        given = np.asarray(sample.feeds.get(i.name, ()))
        if i.name in sample.feeds and (given.shape == i.shape or (i.type.is_open and given.ndim == len(i.shape))):
            found[i.name] = given.astype(i.dtype.numpy)
    return found


def read_sample(subject: Subject, sample: ModelSample, frontend: Frontend, how: str = "") -> bool:
    """Whether the sample says what the model computes. `how` it is read is told behind its name."""
    name = f"{sample.source.name}{how}"
    try:
        graph = frontend.graph(sample.source, Report())
    except DlcError as problem:
        raise Wrong(f"{name} is not read: {in_words(problem)}", problem.diagnostics[0].help) from None
    if problems := verify(graph):
        raise Wrong(f"{name}: {problems[0].message}", "build ops by their classes")
    if frontend.graph(sample.source, Report()) != graph:
        raise Wrong(
            f"{name} is read as another graph the second time", "parse must depend on the file and its options only"
        )
    tensors = {t.digest: t for t in graph.tensors}
    again = parse_graph(print_graph(graph), subject.classes, lambda _, digest: tensors.get(digest))
    if again.digest != graph.digest:
        raise Wrong(f"the graph of {name} prints, and parses as another one", "use attributes that text can hold")
    if not sample.outputs:
        return False
    _compare(name, graph, sample)
    return True


def _compare(name: str, graph: Graph, sample: ModelSample) -> None:
    inputs, outputs = {i.name for i in graph.inputs}, set(graph.names)
    if lacking := sorted((inputs - set(sample.feeds)) | (set(sample.outputs) - outputs)):
        raise Wrong(
            f"{name}: {lacking[0]} is an input without a value, or no output; it has {sorted(inputs | outputs)}"
        )
    got = evaluate(graph, sample.feeds)
    for output, want in sample.outputs.items():
        if got[output].shape != np.shape(want):
            raise Wrong(f"{name}: {output} is {list(got[output].shape)}, the sample says {list(np.shape(want))}")
        found = compare(output, got[output], np.asarray(want).astype(got[output].dtype), NEAR)
        if not found.ok:
            where = f"in {found.wrong} of {found.size} elements, by {found.max_abs:.3g}"
            text = f"{name}: {output} differs from the sample {where}"
            raise Wrong(text, "dlc build MODEL --stop-after parse shows the graph")


def survives(subject: Subject, entry: Entry) -> str:
    """That damaged models end in a graph or a message: no traceback, no endless loop, no memory without bounds."""
    return survive(subject, entry.name, _models(subject, entry))


def survive(subject: Subject, frontend: str, samples: list[ModelSample]) -> str:
    """See `survives`, of models that a frontend reads."""
    count = 0
    for sample in samples:
        reader = subject.registry.frontend(Spec(frontend))
        request = {
            "frontend": frontend,
            "label": sample.source.name,
            "data": base64.b64encode(bytes(sample.source.view())).decode(),
            "companions": _companions(reader, sample.source),
            "seed": subject.seed,
            "rounds": subject.rounds,
            "seconds": SECONDS,
        }
        with tempfile.TemporaryDirectory() as empty:
            ran = python(["-m", "dlc.verify.kit.hostile"], Path(empty), _WALL, given=json.dumps(request))
        lines = [json.loads(line) for line in ran.out.splitlines() if line.startswith("{")]
        tried = [line["how"] for line in lines if "how" in line]
        count += len(tried)
        if lines and "done" in lines[-1]:
            continue
        if not tried:
            raise Wrong(f"a fresh Python cannot read {sample.source.name}: {ran.err.strip()[-500:]}")
        wrong = lines[-1].get("wrong", "it hangs" if ran.code == -1 else f"the process ends with status {ran.code}")
        raise Wrong(
            f"{sample.source.name}, {tried[-1]}: {wrong}",
            "check what the file says before it is used, and raise a DlcError with a Location (dlc.error)",
        )
    return f"{count} damaged files"


def _companions(frontend: Frontend, source: Source) -> dict[str, str]:
    """Contents, in base 64, of the other files of a model that lie in its directory, by their names there."""
    if source.path is None:
        return {}
    root = source.path.parent
    paths = [c.path for c in frontend.companions(source) if c.path is not None and c.path.is_relative_to(root)]
    return {str(path.relative_to(root)): base64.b64encode(path.read_bytes()).decode() for path in paths}


CHECKS = (
    Check("frontend-reads", "sample models are read, twice alike, with the right values", reads, "frontends"),
    Check("frontend-builds", "programs of sample models give the values of what is read", builds, "frontends"),
    Check("frontend-hostile", "damaged models end in a graph or a message", survives, "frontends"),
)
