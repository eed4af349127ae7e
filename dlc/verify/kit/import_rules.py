"""Checks of import rules for ONNX operators: every one is used by a sample model, with the right values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dlc.plugins.plugin import pip_install
from dlc.spec import Spec
from dlc.verify.kit.check import Check, Skipped, Wrong
from dlc.verify.kit.frontends import read_sample, survive

if TYPE_CHECKING:
    from dlc.api.frontend import Frontend
    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject


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
            compared += read_sample(subject, sample, frontend)
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
    return survive(subject, "onnx", samples)


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
    Check("import-rules", "every rule is used by a sample model, with the right values", imports, "onnx_rules"),
    Check(
        "import-hostile", "damaged models with its operators end in a graph or a message", imports_survive, "onnx_rules"
    ),
)
