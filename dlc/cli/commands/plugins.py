"""`dlc plugins`."""

from __future__ import annotations

from pathlib import Path

import typer

from dlc.base.diagnostics import escape
from dlc.cli import flags
from dlc.cli.terminal import Outcome, Terminal, columns


def plugins(ctx: typer.Context, json: flags.Json = False) -> Outcome:
    """List installed plugins, what each offers, and why one does not work."""
    del json
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
        offers[plugin.partition(" ")[0]]["commands"] = list(commands)
    rows = [("plugin", "package", "version", "state", "offers")]
    items: list[dict[str, object]] = []
    for plugin in registry.plugins:
        offered = "; ".join(_offer(kind, names) for kind, names in offers[plugin.name].items())
        rows.append((plugin.name, plugin.distribution, plugin.version, plugin.state, offered or escape(plugin.reason)))
        items.append(
            {
                "name": plugin.name,
                "distribution": plugin.distribution,
                "version": plugin.version,
                "module": plugin.module,
                "state": plugin.state,
                "reason": plugin.reason,
                "offers": offers[plugin.name],
            }
        )
    return Outcome(columns([tuple(map(escape, row)) for row in rows]), {"plugins": items})


def _offer(kind: str, names: list[str]) -> str:
    """Few names are listed, many are counted."""
    return f"{kind} {', '.join(names)}" if len(names) <= 4 else f"{len(names)} {kind}"
