"""What all that is selected by name owes: it loads, is documented, and its options print and parse.

dlc's own tests hold its passes, frontends, backends and schedules to the same functions.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from dlc.api.backend import Backend
from dlc.api.frontend import Frontend
from dlc.api.passes import Pass, check_chain
from dlc.base.diagnostics import DlcError
from dlc.kernel.schedules.choice import Choice
from dlc.spec import Configurable, Spec
from dlc.training.step.loss import Loss
from dlc.training.step.optimizer import Optimizer
from dlc.verify.kit.check import Check, Skipped, Wrong
from dlc.verify.kit.subject import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlc.plugins.entry import Entry, Kind
    from dlc.verify.kit.subject import Subject

BASES: Mapping[Kind, type[Configurable]] = {
    "frontends": Frontend,
    "backends": Backend,
    "passes": Pass,
    "schedules": Choice,
    "optimizers": Optimizer,
    "losses": Loss,
    "initializers": Configurable,
}
"""Kinds that have options, and what derives from them."""


def documented(entry: Entry) -> str:
    """That listings and pages have something to show. Raises Wrong."""
    found: Any = entry.load()
    if entry.kind == "pipelines":
        return "its text says what it runs"
    if entry.kind == "rules":
        if not getattr(found, "equation", "").strip():
            raise Wrong(
                f"{entry.name} has no equation",
                "give its function a docstring with the equation: swish(x, 1) → swish(x)",
            )
        return found.equation.partition("\n")[0]
    text = inspect.getdoc(found) or ""
    if entry.kind in ("ops", "onnx_rules"):
        if not text.partition("\n")[0].strip():
            what = "computes, as an equation" if entry.kind == "ops" else "imports"
            raise Wrong(f"{entry.name} has no docstring", f"say in its first line what it {what}")
        return text.partition("\n")[0]
    base = BASES[entry.kind]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise Wrong(f"{entry.name} is not a {base.__name__}", f"derive it from dlc.{base.__name__}")
    if found.__doc__ is None or not text.strip() or _generated(found):
        raise Wrong(f"{found.__name__} has no docstring", "its first line is what dlc list shows")
    if not inspect.getdoc(inspect.getmodule(found)):
        raise Wrong(f"{found.__module__} has no docstring", "say in the module's first line what it is for")
    for option in found.options_doc():
        if not option.doc:
            raise Wrong(
                f"option {option.key} of {entry.name} is not explained", f'write {option.key} = option(…, "what it is")'
            )
        if option.doc.endswith("."):
            raise Wrong(
                f"option {option.key} of {entry.name}: “{option.doc}” ends with a full stop",
                "write a phrase, not a sentence",
            )
    return text.partition("\n")[0]


def _generated(found: type[Any]) -> bool:
    """Whether a docstring is what `dataclass` writes where there is none: "Twice(factor: float = 2.0)"."""
    return (found.__doc__ or "").startswith(f"{found.__name__}(")


def converts(entry: Entry) -> str:
    """That specs and instances convert both ways, and that listings read what the class says. Raises Wrong."""
    found: type[Configurable] = entry.load()
    default = found.from_spec(Spec(entry.name))
    if default != found():
        raise Wrong(
            f"{entry.name}: what the spec without options gives differs from {found.__name__}()",
            "make the class a frozen dataclass whose only fields are options",
        )
    text = str(default)
    if (again := found.from_spec(Spec.parse(text))) != default:
        raise Wrong(f"{text} parses as {again}, not as what printed it", "make the class a frozen dataclass")
    keys = [key for key, _ in default.to_spec().options]
    if (listed := [o.key for o in entry.declaration().options]) != keys:
        raise Wrong(
            f"{entry.name} has the options {keys}, dlc list shows {listed}",
            "declare all options as fields of the class",
        )
    return text


def loads(subject: Subject, entry: Entry) -> str:
    """That what a hook promised is there, under its name."""
    del subject
    found: Any = entry.load()
    return getattr(found, "__module__", None) or getattr(found, "__name__", None) or "text"


def is_documented(subject: Subject, entry: Entry) -> str:
    """See `documented`."""
    del subject
    return documented(entry)


def spec_converts(subject: Subject, entry: Entry) -> str:
    """See `converts`; then the further options of the samples."""
    text = converts(entry)
    found: type[Configurable] = entry.load()
    others = subject.specs(entry)[1:]
    for spec in others:
        made = found.from_spec(spec)
        if found.from_spec(Spec.parse(str(made))) != made:
            raise Wrong(f"{made} does not parse as what printed it", "make the class a frozen dataclass")
    return text


def pipeline_leads(subject: Subject, entry: Entry) -> str:
    """That the levels of a pipeline's passes follow each other, and end with what some backend takes."""
    from dlc.config.config import default_config
    from dlc.driver.pipeline import expand_pipeline, named_pipelines

    registry = subject.registry
    try:
        named = named_pipelines(registry, default_config())
        stages = [registry.stage(spec) for spec in expand_pipeline(named[entry.name], named)]
        level = check_chain(stages)
    except DlcError as problem:
        raise Wrong(in_words(problem), problem.diagnostics[0].help) from None
    return f"{len(stages)} passes, to {'a plan' if level == 'plan' else level}"


def is_sound(subject: Subject, entry: None) -> str:
    """That the plugin is imported, its hooks are known, and it changes nothing that others use."""
    del entry
    plugin = subject.plugin
    if plugin.state != "ok":
        raise Wrong(f"it is {plugin.state}: {plugin.reason}", "mend it, or [plugins] disable in dlc.toml")
    if plugin.changes:
        raise Wrong(f"importing it changes {' and '.join(plugin.changes)}", "a plugin changes nothing that others use")
    if not subject.everything:
        raise Wrong(f"{plugin.module} offers nothing", "mark its hooks with dlc.hookimpl")
    return f"{plugin.distribution} {plugin.version}"


def states_versions(subject: Subject, entry: None) -> str:
    """That it says which dlc it works with: another one then says so instead of failing somewhere."""
    del entry
    from importlib import import_module

    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    wanted: object = getattr(import_module(subject.plugin.module), "dlc_api", None)
    if subject.plugin.is_own and wanted is None:
        raise Skipped("released together with dlc")
    if not isinstance(wanted, str) or not wanted:
        raise Wrong(
            f"{subject.plugin.module} has no dlc_api", 'write dlc_api = ">=0.1,<0.2" into the module of its hooks'
        )
    try:
        SpecifierSet(wanted)
    except InvalidSpecifier:
        raise Wrong(f'dlc_api = "{wanted}" is no version specifier', 'write dlc_api = ">=0.1,<0.2"') from None
    return wanted


CHECKS = (
    Check("plugin", "it is imported, its hooks are known, it changes nothing that others use", is_sound),
    Check("versions", "it says which versions of dlc it works with", states_versions),
    *(
        Check("loads", "what its hooks name is there, under that name", loads, kind)
        for kind in (*BASES, "ops", "rules", "onnx_rules")
    ),
    *(
        Check("documented", "docstrings and options say what they are", is_documented, kind)
        for kind in (*BASES, "ops", "rules", "onnx_rules")
    ),
    *(Check("spec", "options print and parse back", spec_converts, kind) for kind in BASES),
    Check("pipeline", "each pass takes what the one before it leaves", pipeline_leads, "pipelines"),
)
