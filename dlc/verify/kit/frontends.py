"""Checks of frontends and import rules: sample models by value, by text, and damaged in every way."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dlc.base.diagnostics import DlcError
from dlc.base.report import Report
from dlc.graph import evaluate, parse_graph, print_graph, verify
from dlc.plugins.plugin import pip_install
from dlc.spec import Spec
from dlc.verify.compare import Tolerance, compare
from dlc.verify.kit.check import Check, Skipped, Wrong
from dlc.verify.kit.process import python
from dlc.verify.kit.subject import in_words

if TYPE_CHECKING:
    from dlc.api.frontend import Frontend
    from dlc.api.samples import ModelSample
    from dlc.api.source import Source
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
    """That sample models are read, twice alike, as graphs that verify, print and parse, and give the right values."""
    frontend, compared = subject.registry.frontend(Spec(entry.name)), 0
    samples = _models(subject, entry)
    for sample in samples:
        compared += _read(subject, sample, frontend)
    if not compared:
        help = "give one ModelSample feeds and outputs, by another implementation or by hand"
        raise Wrong(f"no sample model of {entry.name} says what it computes", help)
    return f"{len(samples)} models, {compared} with values"


def _read(subject: Subject, sample: ModelSample, frontend: Frontend) -> bool:
    name = sample.source.name
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
    return _survives(subject, entry.name, _models(subject, entry))


def _survives(subject: Subject, frontend: str, samples: list[ModelSample]) -> str:
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


def imports(subject: Subject, entry: Entry) -> str:
    """That every import rule is used by a sample model, and that these give the right values."""
    called: dict[tuple[str, int, str], int] = {}
    counted = _counted(entry.load(), entry.name, called)
    others = [r for r in subject.registry.onnx_rules if (r.plugin, r.domain) != (entry.plugin, entry.name)]
    own = next(r for r in subject.registry.onnx_rules if (r.plugin, r.domain) == (entry.plugin, entry.name))
    frontend = _onnx(subject).with_onnx_rules((*others, replace(own, load=lambda: counted)), lambda: subject.classes)
    compared = 0
    for sample in subject.samples.models:
        if sample.source.suffix == ".onnx":
            compared += _read(subject, sample, frontend)
    if unused := [mark for mark, times in called.items() if not times]:
        operator, since, domain = unused[0]
        help = "add a ModelSample with the operator to models of the Samples of dlc_samples"
        raise Wrong(f"no sample model uses the rule of {domain or 'ai.onnx'}.{operator} since version {since}", help)
    if not compared:
        raise Wrong("no sample model says what it computes", "give one ModelSample feeds and outputs")
    return f"{len(called)} rules, {compared} models with values"


def imports_survive(subject: Subject, entry: Entry) -> str:
    """See `survives`, of models with operators of the plugin."""
    _onnx(subject)
    samples = [s for s in subject.samples.models if s.source.suffix == ".onnx"]
    if not samples:
        raise Wrong(
            f"no sample model uses the rules of {entry.name}", "add a ModelSample to the Samples of dlc_samples"
        )
    return _survives(subject, "onnx", samples)


def _onnx(subject: Subject) -> Frontend:
    if "onnx" not in subject.registry.frontends:
        raise Skipped("the ONNX frontend is not installed", pip_install("onnx"))
    return subject.registry.frontend(Spec("onnx"))


def _counted(module: ModuleType, domain: str, called: dict[tuple[str, int, str], int]) -> ModuleType:
    """A module with the rules of another one, which count how often they are used."""
    found = ModuleType(module.__name__)
    for k, (function, marks) in enumerate(_rules(module)):
        own = [mark for mark in marks if (mark[2] or "ai.onnx") == domain or mark[2] == domain]
        called.update(dict.fromkeys(own, 0))
        counting: Any = _counting(function, own, called)
        counting.__module__, counting.onnx_rules = found.__name__, list(marks)
        setattr(found, f"rule_{k}", counting)
    return found


def _counting(
    function: Callable[..., Any], marks: list[tuple[str, int, str]], called: dict[tuple[str, int, str], int]
) -> Callable[..., Any]:
    @wraps(function)
    def rule(node: Any) -> Any:
        # A function may be the rule of several operators, and of several versions of one.
        own = [m for m in marks if m[0] == node.proto.op_type and m[1] <= node.version]
        if own:
            called[max(own, key=lambda m: m[1])] += 1
        return function(node)

    return rule


def _rules(module: ModuleType) -> Iterator[tuple[Callable[..., Any], list[tuple[str, int, str]]]]:
    """Functions of a module, or of all modules of a package, with their marks."""
    parts = walk_packages(getattr(module, "__path__", ()), f"{module.__name__}.")
    for each in (module, *(import_module(p.name) for p in parts)):
        for value in list(vars(each).values()):
            marks = getattr(value, "onnx_rules", None)
            if callable(value) and marks and getattr(value, "__module__", "") == each.__name__:
                yield value, marks


CHECKS = (
    Check("frontend-reads", "sample models are read, twice alike, with the right values", reads, "frontends"),
    Check("frontend-hostile", "damaged models end in a graph or a message", survives, "frontends"),
    Check("import-rules", "every rule is used by a sample model, with the right values", imports, "onnx_rules"),
    Check(
        "import-hostile", "damaged models with its operators end in a graph or a message", imports_survive, "onnx_rules"
    ),
)
