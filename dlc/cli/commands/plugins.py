"""`dlc plugins`, and `dlc plugins new | test`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlc.base.diagnostics import ExitCode, error, escape, quote
from dlc.cli import flags
from dlc.cli.app import CONTEXT
from dlc.cli.terminal import Outcome, Terminal, columns, terminal_width

if TYPE_CHECKING:
    from dlc.verify.kit.check import Result

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    invoke_without_command=True,
)

Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="What it adds: frontend, backend (of ops), kernel-backend (of loops), op-pack, pass, schedule, optimizer "
        "or importer.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name, in lower-case words with hyphens: fast-gelu.")]
Directory = Annotated[
    Path | None, typer.Argument(metavar="[DIR]", help="New directory for the package. By default dlc-KIND-NAME.")
]
Tested = Annotated[str, typer.Argument(metavar="NAME", help="An installed plugin, as dlc plugins shows it.")]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        metavar="SPEC",
        help="Backend that ops of the plugin are built for, with options. May repeat. By default all installed ones.",
    ),
]
Level = Annotated[
    int,
    typer.Option(
        min=1,
        max=5,
        metavar="1..5",
        help="How far a backend has to be: 1 memories, 2 which ops, 3 values, 4 ONNX's node tests, bytes and cache "
        "keys, 5 costs.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="WORD", help="Checks whose name, or whose subject, has the word. May repeat."),
]
Rounds = Annotated[
    int, typer.Option(min=1, metavar="N", help="So many times as many graphs, damaged files and node tests as usual.")
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Of all that is drawn.")]


@app.callback()
def plugins(ctx: typer.Context, json: flags.Json = False) -> Outcome:
    """List installed plugins, what each offers, and why one does not work; make and test plugins."""
    del json
    if ctx.invoked_subcommand:
        return Outcome()
    from dlc.cli.app import plugin_commands
    from dlc.config.file import load_config
    from dlc.plugins.discovery import load_registry

    terminal: Terminal = ctx.obj
    config = load_config(Path.cwd())
    registry = load_registry(config.disabled, packs=config.op_packs)
    terminal.tell(*registry.problems)
    offers: dict[str, dict[str, list[str]]] = {plugin.name: {} for plugin in registry.plugins}
    for kind, table in registry.tables.items():
        for entry in table.values():
            offers[entry.plugin].setdefault(kind, []).append(entry.name)
    for plugin, commands in plugin_commands(registry).items():
        offers[plugin.partition(" (")[0]]["commands"] = list(commands)
    rows = [("plugin", "package", "version", "state", "load", "offers")]
    items: list[dict[str, object]] = []
    for plugin in registry.plugins:
        offered = "; ".join(_offer(kind, names) for kind, names in offers[plugin.name].items())
        took = f"{plugin.milliseconds:.1f} ms" if plugin.state != "blocked" else ""
        head = (plugin.name, plugin.distribution, plugin.version, plugin.state, took)
        rows.append((*head, offered or escape(plugin.reason)))
        items.append(
            {
                "name": plugin.name,
                "distribution": plugin.distribution,
                "version": plugin.version,
                "module": plugin.module,
                "object": plugin.attribute,
                "state": plugin.state,
                "reason": plugin.reason,
                "load_ms": round(plugin.milliseconds, 1),
                "offers": offers[plugin.name],
            }
        )
    return Outcome(columns([tuple(map(escape, row)) for row in rows], right=(4,)), {"plugins": items})


@app.command()
def new(kind: Kind, name: Name, directory: Directory = None, json: flags.Json = False) -> Outcome:
    """Write a package for a plugin: code that works, tests that pass, and a job for CI."""
    del json
    from dlc.plugins.scaffold import write_package

    written = write_package(kind, name, directory)
    lines = [f"{escape(str(written.directory))}: {len(written.files)} files", "", *written.next_steps]
    data = {
        "directory": str(written.directory),
        "distribution": written.distribution,
        "plugin": name,
        "files": list(written.files),
    }
    return Outcome("\n".join(lines), data)


@app.command()
def test(
    ctx: typer.Context,
    name: Tested,
    target: Targets = None,
    level: Level = 4,
    only: Only = None,
    rounds: Rounds = 1,
    seed: Seed = 0,
    json: flags.Json = False,
) -> Outcome:
    """Test an installed plugin: everything that it offers, by several ways. Exit code 3: a check failed."""
    del json
    from dlc.verify.kit.subject import Subject
    from dlc.verify.kit.table import cases, level_reached, run

    terminal: Terminal = ctx.obj
    subject = Subject.of(name, target or (), level, seed, rounds)
    found: list[Result] = []
    with terminal.progress() as progress:
        for case in cases(subject, only or ()):
            progress.at(f"{case.check.name} of {case.subject}")
            found.append(run(subject, case))
    if not found and only:
        words = " or ".join(map(quote, only))
        message = f"--only: {subject.plugin.name} has no check, and nothing that is checked, with {words} in its name"
        raise error("no-effect", message, help="leave --only out to see all checks", exit_code=ExitCode.USAGE)
    failed = [r for r in found if r.state == "failed"]
    skipped = [r for r in found if r.state == "skipped"]
    reached = level_reached(found)
    lines = [_table(found), *_advice(failed), ""]
    lines.append(
        f"{len(found)} checks, {len(failed)} failed, {len(skipped)} skipped"
        + (f", level {reached}" if any(r.level for r in found) and not only else "")
    )
    data = {
        "plugin": subject.plugin.name,
        "distribution": subject.plugin.distribution,
        "version": subject.plugin.version,
        "checks": [asdict(r) | {"seconds": round(r.seconds, 3)} for r in found],
        "failed": len(failed),
        "skipped": len(skipped),
        "level": reached,
    }
    return Outcome("\n".join(lines), data, ExitCode.MISMATCH if failed else ExitCode.OK)


def _table(found: Sequence[Result]) -> str:
    rows = [("check", "of", "", "found"), *((r.check, r.subject, r.state, r.text) for r in found)]
    return columns([tuple(map(escape, row)) for row in rows], width=terminal_width())


def _advice(failed: Sequence[Result]) -> list[str]:
    """What to do about each failure."""
    helps = [f"  {escape(r.check)} of {escape(r.subject)}: {escape(r.help)}" for r in failed if r.help]
    return ["", "what to do:", *helps] if helps else []


def _offer(kind: str, names: list[str]) -> str:
    """Few names are listed, many are counted."""
    return f"{kind} {', '.join(names)}" if len(names) <= 4 else f"{len(names)} {kind}"
