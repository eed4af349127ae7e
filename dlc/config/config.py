"""Configuration: defaults < plugins < dlc.toml or [tool.dlc] < flags. Every value remembers where it came from.

A Config is a flat map from dotted key to Setting; `dlc.config.keys` has the table of what may be written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from dlc.base.budget import Budget
from dlc.base.cache_levels import (
    LONGEST_TIME,
    SHORTEST_TIMEOUT,
    Levels,
    parse_levels,
)
from dlc.base.cache_settings import DIRECTORY_VARIABLE, LEVELS_VARIABLE, TOKEN_VARIABLE, CacheMode
from dlc.base.diagnostics import DlcError, ExitCode, Location, error, escape
from dlc.base.own_places import is_within, user_cache
from dlc.config.keys import KEYS, KeyDoc, Paths, Pipeline, doc_of
from dlc.spec import Spec
from dlc.spec.configurable import UNTRUSTED
from dlc.spec.convert import Problem, read, write


@dataclass(frozen=True)
class Setting:
    """A value and where it came from."""

    value: Any
    origin: str
    """ "default", "plugin core", "dlc.toml:9", "--cache"."""
    foreign: str = ""
    """What the user can do about a value that somebody else may have written, where that matters; "" where not."""


@dataclass(frozen=True)
class Config:
    """All settings; a later layer replaces a key of an earlier one."""

    settings: Mapping[str, Setting]
    """By dotted key, for example "target.host.backend"."""
    file: Path | None = None
    """The file that was read."""
    text: str = ""
    """What it held."""

    def __getitem__(self, key: str) -> Setting:
        """The setting of a key that has a default or was given."""
        return self.settings[key]

    @property
    def cache_dir(self) -> Path | None:
        """Directory of the cache, or None for the user's.

        Raises DlcError (USAGE) if a file that is not trusted names one outside of the user's.
        """
        found = self.settings.get("cache.dir")
        if found is None:
            return None
        if found.foreign and not is_within(found.value, user_cache()):
            message = (
                f"cache.dir sets where dlc writes and removes files and takes libraries from, and {found.origin} is "
                "not trusted"
            )
            help = f"{found.foreign}; --cache-dir and {DIRECTORY_VARIABLE} need no trust"
            raise error(UNTRUSTED, message, help=help, exit_code=ExitCode.USAGE)
        return found.value

    @property
    def cache_size(self) -> int:
        """Bytes."""
        return self["cache.size"].value

    @property
    def cache_mode(self) -> CacheMode:
        """How the cache is used."""
        return self["cache.mode"].value

    @property
    def trusted_keys(self) -> tuple[str, ...]:
        """Public keys whose results the cache uses; () for all results. Raises DlcError (USAGE) if a file that is not
        trusted names them."""
        found = self["cache.trusted-keys"]
        if found.foreign and found.value:
            message = f"cache.trusted-keys sets whose results dlc uses, and {found.origin} is not trusted"
            raise error(UNTRUSTED, message, help=found.foreign, exit_code=ExitCode.USAGE)
        return found.value

    @property
    def signed_since(self) -> str:
        """A date or time; "" for none."""
        return self["cache.signed-since"].value

    @property
    def cache_levels(self) -> Levels:
        """Levels behind the cache's directory. Raises DlcError (USAGE), whose text holds no credentials."""
        given = self["cache.levels"]
        try:
            levels = parse_levels(given.value)
        except ValueError as problem:
            raise _refused(
                "bad-option", f"cache.levels: {problem}", given, "as in https://cache.example/dlc#rw"
            ) from None
        if levels and given.foreign:
            message = f"cache.levels says where results come from that dlc runs, and {given.origin} is not trusted"
            raise _refused(UNTRUSTED, message, given, given.foreign)
        if self.file is not None and given.origin.startswith(f"{self.file.name}:"):
            for level in levels:
                if level.has_credentials:
                    help = f"give them by {LEVELS_VARIABLE}, {TOKEN_VARIABLE} or ~/.netrc"
                    raise _refused("bad-config", f"cache.levels: {level.label} has credentials in a file", given, help)
        for key, least in (("cache.level-timeout", SHORTEST_TIMEOUT), ("cache.upload-time", 0.0)):
            if not least <= self[key].value <= LONGEST_TIME:
                message = f"{key} is {self[key].value:g} and not from {least:g} to {LONGEST_TIME:g} seconds"
                raise _refused("bad-option", message, self[key])
        return Levels(levels, self["cache.level-timeout"].value, self["cache.upload-time"].value)

    @property
    def as_trusted(self) -> "Config":
        """The same after the user said that the file is trusted."""
        return self.with_settings({key: replace(setting, foreign="") for key, setting in self.settings.items()})

    @property
    def budget(self) -> Budget:
        """What a build may cost.

        Raises DlcError (USAGE): the text is not of its form, or a file that is not trusted raises a limit.
        """
        given = self["build.budget"]
        budget = Budget.parse(given.value, given.origin)
        if given.foreign and (raised := budget.above(Budget())):
            message = f"build.budget raises the limit of {', '.join(raised)}, and {given.origin} is not trusted"
            raise _refused(UNTRUSTED, message, given, given.foreign)
        return budget

    @property
    def disabled(self) -> tuple[str, ...]:
        """Names of plugins that are not loaded."""
        return self["plugins.disable"].value

    @property
    def op_packs(self) -> Paths:
        """Files and directories of op packs that no plugin brings."""
        return self["plugins.ops"].value

    def named(self, prefix: str, suffix: str = "") -> Mapping[str, Setting]:
        """Settings `prefix.NAME` or `prefix.NAME.suffix`, by NAME."""
        tail = f".{suffix}" if suffix else ""
        return {
            key[len(prefix) + 1 : len(key) - len(tail)]: setting
            for key, setting in self.settings.items()
            if key.startswith(prefix + ".") and key.endswith(tail)
        }

    def with_settings(self, settings: Mapping[str, Setting]) -> "Config":
        """This configuration with a layer on top."""
        return replace(self, settings=MappingProxyType({**self.settings, **settings}))

    def with_pipelines(self, pipelines: Mapping[str, tuple[str, str]]) -> "Config":
        """With named pipelines of plugins, name → (text, plugin), below everything that a file or flag says."""
        layer = {
            f"pipeline.{name}": Setting(
                Spec.parse_pipeline(text, f"pipeline {name} of plugin {plugin}"), f"plugin {plugin}"
            )
            for name, (text, plugin) in pipelines.items()
        }
        return replace(self, settings=MappingProxyType({**layer, **self.settings}))

    def with_flag(self, key: str, text: str, flag: str) -> "Config":
        """With one key set on the command line; raises DlcError (USAGE)."""
        doc = doc_of(key.split("."))
        assert doc, key
        try:
            value = _from_text(doc, text, flag)
        except Problem as problem:
            raise error("bad-option", f"{flag}: {problem}", help=problem.help, exit_code=ExitCode.USAGE) from None
        return self.with_settings({key: Setting(value, flag)})

    def show(self) -> tuple[tuple[str, str, str], ...]:
        """(key, value as text, origin) of everything set, sorted by key."""
        return tuple((key, _to_text(key, s.value), s.origin) for key, s in sorted(self.settings.items()))


def default_config() -> Config:
    """What holds when nothing is said."""
    values = {doc.key: Setting(doc.default, "default") for doc in KEYS if doc.default is not None}
    return Config(MappingProxyType(values))


def _refused(code: str, message: str, setting: Setting, help: str = "") -> DlcError:
    return error(code, message, location=Location(setting.origin), help=help, exit_code=ExitCode.USAGE)


def _from_text(doc: KeyDoc, text: str, source: str) -> object:
    if doc.kind is Pipeline:
        return Spec.parse_pipeline(text, source)
    if doc.kind is Spec:
        return Spec.parse(text, source)
    if doc.kind is Path:
        return Path(text)
    if doc.kind is Paths:
        return tuple(map(Path, text.split(",")))
    return read(doc.kind, tuple(text.split(",")) if "," in text else text)


def _to_text(key: str, value: object) -> str:
    doc = doc_of(key.split("."))
    assert doc
    if doc.kind is Pipeline:
        return Spec.print_pipeline(cast("Pipeline", value))
    if doc.kind is Path:
        return escape(str(value))
    if doc.kind is Paths:
        return ",".join(escape(str(path)) for path in cast("Paths", value))
    shown = write(doc.kind, value)
    return ",".join(str(item) for item in shown) if isinstance(shown, tuple) else str(shown)
