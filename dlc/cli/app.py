"""The commands as a typer application whose parts are imported when they are used."""

from __future__ import annotations

from functools import cache, wraps
from importlib import import_module
from pathlib import Path
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
from dlc.cli.help import dress, subcommands
from dlc.cli.table import COMMANDS, Command, first_screen
from dlc.cli.terminal import off_stdout

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
    _prepare(command)
    return command


def _prepare(command: Any) -> None:
    """Give a command and those below it what all of ours have: --strict-plugins, and stdout for the result alone."""
    for below in subcommands(command):
        _prepare(below)
    if command.callback is None:
        return
    if not subcommands(command) or command.invoke_without_command:
        command.params += _common_options()
    call = command.callback

    @wraps(call)
    def run(*arguments: Any, **options: Any) -> Any:
        with off_stdout():
            return call(*arguments, **options)

    command.callback = run


def _strict(value: bool) -> bool:
    if value:
        from dlc.plugins.discovery import STRICT

        STRICT.set(True)
    return value


def _common(
    strict: Annotated[
        bool,
        typer.Option(
            "--strict-plugins",
            callback=_strict,
            expose_value=False,
            help="A plugin that does not work is an error (exit code 6), not a warning.",
            rich_help_panel="Plugins",
        ),
    ] = False,
) -> None:
    """What every command of ours has."""
    del strict


@cache
def _common_options() -> list[Any]:
    """Made by typer, whose classes of options are private."""
    app = _typer()
    app.command()(_common)
    return [p for p in get_command(app).params if p.name != "help"]


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
    from dlc.plugins.guard import attempt
    from dlc.plugins.registry import failed_hook

    found: dict[str, dict[str, Any]] = {}
    for hook in registry.commands:
        app = _typer()

        def added(call: Any = hook.call, app: typer.Typer = app) -> dict[str, Any]:
            call(app=app)
            if not (app.registered_commands or app.registered_groups):
                return {}
            app.callback()(lambda: None)  # keeps a single command a group
            return dict(getattr(get_command(app), "commands", {}))

        # One plugin's mistake must not hide the commands of others.
        outcome = attempt(added, hook.plugin, ours=False)
        if outcome.problem:
            typer.echo(render(failed_hook(hook.plugin, "dlc_commands", outcome.problem)), err=True)
        if outcome.value:
            found.setdefault(hook.plugin, {}).update(outcome.value)
    return found


def _plugin_command(name: str) -> Any:
    """The command of a plugin, or None; of two plugins with one name the first, those of this project before others."""
    from dlc.config.file import load_config
    from dlc.plugins.discovery import load_registry

    with off_stdout():
        found = plugin_commands(load_registry(load_config(Path.cwd()).disabled, kinds=()))
    return next((commands[name] for commands in found.values() if name in commands), None)
