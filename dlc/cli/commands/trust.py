"""`dlc trust`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.terminal import Outcome, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlc.config.config import Config

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]", help="dlc.toml or pyproject.toml. By default the one that applies to the current directory."
    ),
]
Revoke = Annotated[bool, typer.Option("--revoke", help="Revoke the trust in all versions of the file.")]


def trust(ctx: typer.Context, file: File = None, revoke: Revoke = False, json: flags.Json = False) -> Outcome:
    """Trust a directory's configuration to run programs, with its current content; after an edit dlc asks again.

    Only options that set what dlc runs need trust, such as a compiler and its flags. Command-line options never do.
    """
    del json
    from dlc.config.file import find_file, load_config
    from dlc.config.trust import distrust
    from dlc.config.trust import trust as remember

    found = file or find_file(Path.cwd())
    if found is None or not found.is_file():
        raise error(
            "no-such-file",
            f"{file} is not a file" if file else "this directory has no configuration file",
            help="give the path of a dlc.toml",
            exit_code=ExitCode.USAGE,
        )
    name = escape(str(found))
    if revoke:
        ending = " any longer" if distrust(found) else ""
        return Outcome(f"{name} is not trusted{ending}", {"file": str(found), "trusted": False})
    config = load_config(Path.cwd(), found)
    runs = list(_runs(ctx.obj, config))
    remember(found, config.text)
    head = f"{name} is trusted with its current content; "
    head += "these options set what dlc runs:" if runs else "no option in it sets what dlc runs"
    return Outcome(
        "\n".join([head, *(f"  {escape(text)}  ({origin})" for text, origin in runs)]),
        {"file": str(found), "trusted": True, "runs": [{"option": text, "origin": origin} for text, origin in runs]},
    )


def _runs(terminal: Terminal, config: Config) -> Iterator[tuple[str, str]]:
    """(option, where it stands) of all that targets and pipelines run, and of what decides it."""
    from dlc.plugins.discovery import load_registry
    from dlc.plugins.entry import Kind
    from dlc.spec import Spec

    if levels := config.as_trusted.cache_levels.levels:
        yield f"cache.levels={','.join(level.shown for level in levels)}", config["cache.levels"].origin
    if keys := config.as_trusted.trusted_keys:
        yield f"cache.trusted-keys={','.join(keys)}", config["cache.trusted-keys"].origin
    if (place := config.as_trusted.settings.get("cache.dir")) is not None:
        yield f"cache.dir={place.value}", place.origin
    registry = load_registry(config.disabled)
    terminal.tell(*registry.problems)
    groups: tuple[tuple[Kind, str, str], ...] = (
        ("backends", "target", "backend"),
        ("passes", "target", "pipeline"),
        ("passes", "pipeline", ""),
    )
    for kind, prefix, suffix in groups:
        for setting in config.named(prefix, suffix).values():
            for spec in (setting.value,) if isinstance(setting.value, Spec) else setting.value:
                entry = registry.tables[kind].get(spec.name)
                runs = {o.key for o in entry.declaration().options if o.runs} if entry else set[str]()
                chosen = Spec(spec.name, tuple(o for o in spec.options if o[0] in runs))
                if chosen.options:
                    yield str(chosen), setting.origin
