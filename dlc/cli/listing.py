"""What `dlc list` shows, from the declarations: the classes themselves are imported only where nothing else tells."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from dlc.base.diagnostics import Diagnostic, ExitCode, did_you_mean, error, escape
from dlc.plugins.discovery import load_registry
from dlc.plugins.plugin import EXTRAS, pip_install
from dlc.spec import Spec

if TYPE_CHECKING:
    from dlc.config.config import Config
    from dlc.plugins.entry import Entry, Kind
    from dlc.plugins.registry import Registry

KINDS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "passes": ("passes",),
    "ops": ("ops",),
    "frontends": ("frontends",),
    "backends": ("backends",),
    "pipelines": ("passes", "pipelines"),
    "machines": ("backends", "machines"),
    "schedules": ("schedules",),
    "optimizers": ("optimizers",),
    "losses": ("losses",),
    "initializers": ("initializers",),
    "allocators": ("allocators",),
}
"""What can be listed of what plugins offer → the tables needed for it."""

LISTINGS: Final = (*KINDS, "errors")
"""What can be listed, besides the formats of frontends."""


@dataclass(frozen=True)
class Listing:
    """One listing, for people and for programs."""

    text: str
    items: tuple[Mapping[str, Any], ...]
    problems: tuple[Diagnostic, ...]
    """Plugins that could not be asked."""


def listing(kind: str, config: Config) -> Listing:
    """Everything of one kind; or, for the name of a frontend, the operators of its format that it reads.

    Raises DlcError (USAGE) for anything else.
    """
    if kind == "errors":
        return _errors(config)
    if kind in KINDS:
        registry = load_registry(config.disabled, KINDS[kind], config.op_packs)
        match kind:
            case "pipelines":
                text, items = _pipelines(registry, config)
            case "ops":
                text, items = _ops(registry)
            case "machines":
                text, items = _machines(registry)
            case _:
                text, items = _configurables(registry.tables[KINDS[kind][0]])
        return Listing(text, items, registry.problems)
    registry = load_registry(config.disabled, ("frontends", "onnx_rules"), config.op_packs)
    if kind not in registry.frontends:
        raise error(
            "unknown-listing",
            f"no list is named {kind}",
            help="dlc list exec:PATH shows what an executable says of itself"
            if kind == "exec"
            else pip_install(kind)
            if kind in EXTRAS
            else did_you_mean(kind, [*LISTINGS, *registry.frontends], "listings"),
            exit_code=ExitCode.USAGE,
        )
    rows = sorted(registry.frontend(Spec(kind)).supported())
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"{name:{width}}  {versions}".rstrip() for name, versions in rows]
    items = tuple({"name": name, "versions": versions} for name, versions in rows)
    return Listing("\n".join(lines) or f"{kind} does not say what it reads", items, registry.problems)


def overview(config: Config, width: int) -> Listing:
    """What can be listed: names of all that is installed, but for ops, which are many and take long to import."""
    simple: tuple[Kind, ...] = ("schedules", "optimizers", "losses", "initializers", "allocators")
    registry = load_registry(config.disabled, kinds=("frontends", "backends", "passes", "pipelines", *simple))
    names = {
        "frontends": sorted(registry.frontends),
        "backends": sorted(registry.backends),
        "pipelines": sorted({*registry.pipelines, *config.named("pipeline")}),
        "passes": list(registry.passes),
        **{kind: sorted(registry.tables[kind]) for kind in simple},
    }
    rows = {
        **{kind: ", ".join(found) for kind, found in names.items()},
        "ops": "what graphs are made of",
        "machines": "what backends build for",
        "errors": "codes of messages, which dlc explain explains",
    }
    wide = max(map(len, rows)) + 2
    lines: list[str] = []
    for kind, text in rows.items():
        wrapped = textwrap.wrap(text, max(width - wide, 20), break_on_hyphens=False) or [""]
        lines += [f"{head:{wide}}{line}" for head, line in zip((kind, *[""] * len(wrapped)), wrapped, strict=False)]
    reader = "onnx" if "onnx" in registry.frontends else "FRONTEND"
    lines += ["", f"dlc list KIND shows each with its options, dlc list {reader} what that reads."]
    items = tuple({"kind": kind, "names": names.get(kind)} for kind in rows)
    return Listing("\n".join(lines), items, registry.problems)


def _configurables(table: Mapping[str, Entry]) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """Name and summary, and below them every option with its default."""
    lines: list[str] = []
    items: list[Mapping[str, Any]] = []
    width = max((len(name) for name in table), default=0)
    for name, entry in table.items():
        found = entry.declaration()
        lines.append(f"{name:{width}}  {found.summary}".rstrip())
        shown = [(f"{o.key}={o.default}", f"{o.doc}  ({o.type})") for o in found.options]
        wide = max((len(text) for text, _ in shown), default=0)
        lines += [f"{'':{width}}    {text:{wide}}  {doc}" for text, doc in shown]
        items.append(
            {
                "name": name,
                "summary": found.summary,
                "doc": found.doc,
                "options": [asdict(option) for option in found.options],
                "plugin": entry.plugin,
            }
        )
    return "\n".join(lines), tuple(items)


def _ops(registry: Registry) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    lines: list[str] = []
    items: list[Mapping[str, Any]] = []
    for name, op in sorted(registry.loaded_ops().items()):
        entry = registry.ops[name]
        call = f"{name}({', '.join(op.operand_names)})" + "".join(f" {key}=" for key in op.attr_names)
        summary = (op.__doc__ or "").strip().partition("\n")[0]
        lines.append(f"{call}\n    {summary}".rstrip())
        items.append(
            {
                "name": name,
                "operands": list(op.operand_names),
                "attributes": list(op.attr_names),
                "summary": summary,
                "plugin": entry.plugin,
            }
        )
    return "\n".join(lines), tuple(items)


def _machines(registry: Registry) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """What each backend builds for."""
    rows = [
        (name, machine, what)
        for name in sorted(registry.backends)
        for machine, what in registry.backend(Spec(name)).machines().items()
    ]
    wide, width = (max((len(row[k]) for row in rows), default=0) for k in (0, 1))
    lines = [f"{name:{wide}}  {machine:{width}}  {what}".rstrip() for name, machine, what in rows]
    items = tuple({"backend": name, "name": machine, "description": what} for name, machine, what in rows)
    return "\n".join(lines) or "no backend names machines", items


def _errors(config: Config) -> Listing:
    """Every diagnostic code with the first sentence of its explanation, by area."""
    from dlc.plugins.explanations import areas

    found = areas(config.disabled)
    width = max((len(e.code) for area in found for e in area.explanations), default=0)
    lines: list[str] = []
    for area in found:
        lines += ["", escape(f"{area.title} ({area.package})")]
        lines += [f"  {escape(e.code):{width}}  {escape(e.summary)}" for e in area.explanations]
    items = tuple(
        {"code": e.code, "area": e.area, "package": e.package, "summary": e.summary}
        for area in found
        for e in area.explanations
    )
    return Listing("\n".join(lines[1:]), items, ())


def _pipelines(registry: Registry, config: Config) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    from dlc.driver.pipeline import named_pipelines

    configured = config.named("pipeline")
    rows = [
        (
            name,
            Spec.print_pipeline(specs),
            configured[name].origin if name in configured else f"plugin {registry.pipelines[name].plugin}",
        )
        for name, specs in named_pipelines(registry, config).items()
    ]
    width = max((len(name) for name, _, _ in rows), default=0)
    lines = [f"{name:{width}}  {text}  ({origin})" for name, text, origin in rows]
    return "\n".join(lines), tuple({"name": n, "pipeline": text, "origin": o} for n, text, o in rows)
