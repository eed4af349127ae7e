"""The plain forms of `dlc build`, read without typer, whose import takes longer than a build that the cache has.

This is no second command line: it only answers when the build is in the cache and nothing is wrong. Whatever it does
not know (a flag, a form of a flag, an argument too many) it leaves to typer, which also words every complaint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from dlc.base.diagnostics import DlcError
from dlc.cli.options import FLAGS, MANY, BuildOptions, CacheOptions

if TYPE_CHECKING:
    from dlc.base.cache_settings import CacheMode
    from dlc.cli.terminal import Outcome, Terminal

VALUES: Final = {
    **{word: name for name, words in FLAGS.items() for word in words},
    "--output": "output",
    "-o": "output",
    "--cache": "cache",
    "--cache-dir": "cache_dir",
    "--cache-levels": "cache_levels",
    "--build-budget": "budget",
}
"""Flags that take a value, by what they mean."""

SWITCHES: Final = {
    "--quiet": "quiet",
    "-q": "quiet",
    "--json": "json",
    "--trust-config": "trust",
    "--strict-plugins": "strict",
}
_READING: Final = (None, "rw", "ro", "require")


def quick_build(terminal: Terminal, arguments: Sequence[str]) -> Outcome | None:
    """The outcome of `dlc build ARGUMENTS` if the cache has it all; None for anything else."""
    read = parse(arguments)
    if read is None:
        return None
    chosen, cache, output, switches = read
    terminal.json, terminal.quiet = "json" in switches, "quiet" in switches
    if "strict" in switches:
        from dlc.plugins.discovery import STRICT

        STRICT.set(True)
    from dlc.cli.rebuild import rebuild
    from dlc.cli.workspace import configuration, opened_cache

    try:
        config = configuration(cache)
        _ = config.cache_levels  # refused where they are wrong or not trusted, though none is asked
        if config.cache_mode not in _READING:
            return None
        with opened_cache(terminal, config, may_be_absent=True, shared=False) as opened:
            return rebuild(terminal, config, opened, chosen, output or default_output(chosen.model))
    except DlcError:
        return None  # typer's way meets the same problem and tells it


def default_output(model: str) -> Path:
    """Where a model is built to when nobody says otherwise."""
    return Path("build") / Path(model).stem


def parse(arguments: Sequence[str]) -> tuple[BuildOptions, CacheOptions, Path | None, frozenset[str]] | None:
    """What plain arguments say: choice, cache, output directory, switches; None if they are not all plain."""
    one: dict[str, str] = {}
    many: dict[str, tuple[str, ...]] = dict.fromkeys(MANY, ())
    switches: set[str] = set()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name = VALUES.get(word)
        if word in SWITCHES:
            switches.add(SWITCHES[word])
        elif name and rest and name in MANY:
            many[name] += (rest.pop(0),)
        elif name and rest:
            one[name] = rest.pop(0)
        elif word.startswith("-") or "model" in one:
            return None
        else:
            one["model"] = word
    if "model" not in one or one.get("cache") not in _READING:
        return None
    said: dict[str, Any] = {name: text for name, text in one.items() if name == "model" or name in FLAGS}
    chosen = BuildOptions(**said, **dict[str, Any](many))
    directory = Path(one["cache_dir"]) if "cache_dir" in one else None
    output = Path(one["output"]) if "output" in one else None
    mode = cast("CacheMode | None", one.get("cache"))
    cache = CacheOptions(mode, directory, one.get("cache_levels"), "trust" in switches, one.get("budget"))
    return chosen, cache, output, frozenset(switches)
