"""`docs/pipeline-and-passes.md` from the declarations: docstrings, options, levels, presets."""

import re
import sys
from collections.abc import Iterator
from textwrap import dedent

from dlc import Rule
from dlc.api.passes import AnyPass
from dlc.passes.simplify import RULES
from dlc.plugins.discovery import load_registry
from dlc.plugins.entry import Entry
from dlc.plugins.registry import Registry
from dlc.spec import Spec

HEAD = """\
<!-- Written by `pytest tests/docs --update` from the passes' declarations; a test compares. Change those, not this. -->
# Pipeline and passes

A frontend reads a model and makes a graph of ops. Passes rewrite the graph, lower it to kernels and turn it into a
plan; a backend writes the plan as a program. A pass is a pure function of a graph or plan and of its options, so its
result can be cached, printed and parsed.

    file → frontend → graph of ops → … → graph of kernels → … → plan → backend → program

A pipeline is written as text: `name{option=value option=value},name,…`. The name of a pipeline inside a pipeline stands
for its passes. `-p` sets the pipeline, `--set PASS.OPTION=VALUE` changes an option, and `--without PASS` leaves a pass
out. `dlc.toml` can define pipelines, and `--print-pipeline` prints the passes that run, with all options.

"""


def page() -> str:
    """The whole page."""
    registry = load_registry(disable=other_plugins(), kinds=("passes", "pipelines"))
    presets = {name: [s.name for s in Spec.parse_pipeline(str(e.target))] for name, e in registry.pipelines.items()}
    order = list(dict.fromkeys(step for steps in presets.values() for step in steps))
    names = sorted(registry.passes, key=lambda n: (order.index(n) if n in order else len(order), n))
    sections = [section(registry, name, presets) for name in names]
    return HEAD + "\n\n".join([pipelines(registry), "## Passes", *sections, equations()]) + "\n"


def other_plugins() -> list[str]:
    """Plugins that are not dlc's own: the page is about what comes with dlc."""
    from dlc.plugins.discovery import list_plugins

    own = ("dlc-frontend-onnx", "dlc-frontend-kernel", "dlc-backend-c")
    return [p.name for p in list_plugins() if p.distribution not in own]


def pipelines(registry: Registry) -> str:
    """The named pipelines."""
    rows = [f"| `{name}` | `{entry.target}` |" for name, entry in registry.pipelines.items()]
    return "\n".join(["## Pipelines", "", "| name | passes |", "|---|---|", *rows])


def section(registry: Registry, name: str, presets: dict[str, list[str]]) -> str:
    """One pass: levels, docstring, options."""
    entry: Entry = registry.passes[name]
    stage: type[AnyPass] = entry.load()
    used = [f"`{preset}`" for preset, steps in presets.items() if name in steps]
    levels = {"ops": "graph of ops", "kernels": "graph of kernels", "plan": "plan"}
    facts = f"{levels[stage.level_in]} → {levels[stage.level_out]}"
    where = f"part of {', '.join(used)}" if used else "not part of a pipeline; add it by `-p` or in `dlc.toml`"
    parts = [f"### {name}", f"*{facts}; {where}*", *prose(name, sys.modules[stage.__module__].__doc__ or "")]
    if options := stage.options_doc():
        rows = [f"| `{o.key}` | {cell(o.type)} | `{cell(o.default)}` | {cell(o.doc)} |" for o in options]
        parts.append("\n".join(["| option | values | default | meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def equations() -> str:
    """What `simplify` knows."""
    rows = [f"| `{r.name}` | {cell(' '.join(r.equation.split()))} | {condition(r)} |" for r in RULES]
    head = ["## Equations of simplify", "", "| rule | equation | only with |", "|---|---|---|"]
    return "\n".join([*head, *rows])


def condition(rule: Rule) -> str:
    """Which option of the pass a rule needs."""
    return "`fast=yes`" if rule.fast else "`compose=yes`" if rule.composes else ""


def prose(name: str, doc: str) -> Iterator[str]:
    """A module's docstring as Markdown: what is indented is shown as it stands."""
    for part in re.split(r"\n\s*\n(?=\S)|\n\s*\n(?=    )", doc.strip().removeprefix(f"{name}: ")):
        if part.startswith("    "):
            yield f"```text\n{dedent(part).rstrip()}\n```"
        else:
            yield part[0].upper() + part[1:]


def cell(text: str) -> str:
    """Text inside a table."""
    return text.replace("|", "\\|")
