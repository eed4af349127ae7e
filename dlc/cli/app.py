"""The commands as a typer application whose parts are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.completion import (
    completion_init,  # pyright: ignore[reportPrivateImportUsage]  # for flags of one's own
    install_callback,
    show_callback,
)
from typer.core import TyperGroup
from typer.main import get_command

from dlc.base.diagnostics import did_you_mean, render
from dlc.cli.help import dress
from dlc.cli.table import COMMANDS, Command, first_screen

if TYPE_CHECKING:
    from dlc.plugins.registry import Registry

CONTEXT = {"help_option_names": ["-h", "--help"]}

Shell = Literal["bash", "zsh", "fish", "powershell", "pwsh"]
"""Shells that have completion. The user names theirs: typer's own flags look for a shell among the parents of this
process, where there may be none or another one."""


class LazyGroup(TyperGroup):
    """The first screen. `ctx` and `formatter` are click's, which typer brings under a private name."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of the table."""
        return [command.name for command in COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now; commands of plugins are looked for when no own one has the name."""
        for command in COMMANDS:
            if command.name == cmd_name:
                return load_command(command)
        return _plugin_command(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """(name, command, rest of the arguments); an unknown name suggests the nearest."""
        command = self.get_command(ctx, args[0])
        if command is None:
            ctx.fail(f"there is no command {args[0]}; {did_you_mean(args[0], self.list_commands(ctx), 'commands')}")
        return args[0], command, args[1:]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The table; nothing is imported for it."""
        formatter.write(first_screen() + "\n")


def load_command(row: Command) -> Any:
    """The click command of one row."""
    module, _, attribute = row.target.partition(":")
    found: Any = getattr(import_module(f"dlc.cli.commands.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, _typer()
        found.command(row.name, context_settings=CONTEXT)(function)
    command = dress(get_command(found))
    command.name = row.name
    return command


def root() -> Any:
    """The click command `dlc`."""
    completion_init()
    app = typer.Typer(
        cls=LazyGroup,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
        help="dlc",
    )
    app.callback(invoke_without_command=True)(_root)
    return get_command(app)


def _typer() -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    install_completion: Annotated[
        Shell | None, typer.Option(callback=install_callback, expose_value=False, help="Install completion.")
    ] = None,
    show_completion: Annotated[
        Shell | None, typer.Option(callback=show_callback, expose_value=False, help="Print the completion script.")
    ] = None,
) -> None:
    """Compile models to plain C, with every result cached."""
    del install_completion, show_completion  # their callbacks have answered
    if version:
        from dlc.version import __version__

        typer.echo(f"dlc {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(first_screen())
        raise typer.Exit


def plugin_commands(registry: Registry) -> dict[str, dict[str, Any]]:
    """Commands that plugins add: plugin, with its package → name → command."""
    from dlc.plugins.registry import failed_hook

    found: dict[str, dict[str, Any]] = {}
    for hook in registry.commands:
        app = _typer()
        try:
            hook.call(app=app)
        # One plugin's mistake must not hide the commands of others.
        except (Exception, SystemExit) as problem:  # noqa: BLE001
            typer.echo(render(failed_hook(hook.plugin, "dlc_commands", problem)), err=True)
        if app.registered_commands or app.registered_groups:
            app.callback()(lambda: None)  # keeps a single command a group
            found.setdefault(hook.plugin, {}).update(getattr(get_command(app), "commands", {}))
    return found


def _plugin_command(name: str) -> Any:
    """The command of a plugin, or None; of two plugins with one name the first."""
    from dlc.plugins.discovery import load_registry

    found = plugin_commands(load_registry(kinds=()))
    return next((commands[name] for commands in found.values() if name in commands), None)
