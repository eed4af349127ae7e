"""Tables of what plugins offer, by name: who has a name that several claim.

    core, plugins of this project   keep the plain name; another plugin's thing is selected by PLUGIN:NAME
    plugins of third parties alone  are all selected by PLUGIN:NAME; the plain name is an error that lists them
    ops                             have one name in the text of graphs: the later plugin is broken

So no plugin changes what a name means that dlc has, and none keeps commands from running that do not use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.plugins.entry import Entry, Kind
from dlc.plugins.op_packs import PACKS_MODULE
from dlc.plugins.plugin import Plugin

_SHARED: Mapping[Kind, Kind] = {"pipelines": "passes"}
"""Kinds whose names stand in the same places as those of another kind."""


@dataclass(frozen=True)
class Named:
    """Entries by name, and plugins with what became of their claims."""

    tables: Mapping[Kind, Mapping[str, Entry]]
    plugins: tuple[Plugin, ...]


def named(plugins: Sequence[Plugin], entries: Sequence[Entry], kinds: Iterable[Kind]) -> Named:
    """The tables. Raises DlcError (PLUGIN): an op pack that the user names has an op that there is already."""
    by_name = {plugin.name: plugin for plugin in plugins}
    for entry, other in _second_ops(entries):
        if PACKS_MODULE in (entry.module, other.module):
            raise _pack_clash(entry, other, by_name)
        reason = f"its op {entry.name} has the name of one of {by_name[other.plugin].title}"
        by_name[entry.plugin] = replace(by_name[entry.plugin], state="broken", reason=reason)
    tables: dict[Kind, dict[str, Entry]] = {kind: {} for kind in kinds}
    working = [e for e in entries if by_name[e.plugin].state == "ok"]
    claims: dict[tuple[Kind, str], list[Entry]] = {}
    for entry in working:
        claims.setdefault((_SHARED.get(entry.kind, entry.kind), entry.key), []).append(entry)
    for entry in working:
        claimed = claims[_SHARED.get(entry.kind, entry.kind), entry.key]
        # Of a hook that gives one name twice, the first counts.
        first = next((e for e in claimed if e.is_first_party), None) or _only(claimed)
        if first is None or first.plugin != entry.plugin:
            plugin = by_name[entry.plugin]
            found = entry.qualified(plugin.qualifier)
            by_name[plugin.name] = replace(plugin, clashes=(*plugin.clashes, _clash(found, claimed, by_name)))
            entry = found
        tables[entry.kind].setdefault(entry.key, entry)
    return Named(tables, tuple(by_name[plugin.name] for plugin in plugins))


def distinct(plugins: Iterable[Plugin]) -> tuple[Plugin, ...]:
    """Plugins under names of their own: of several with one name those of this project keep it, or else the first."""
    found: dict[str, Plugin] = {}
    for plugin in sorted(plugins, key=lambda p: not p.is_own):
        name, other = plugin.name, found.get(plugin.name)
        if other is None:
            found[name] = plugin
            continue
        qualified = f"{plugin.distribution}:{name}"
        clash = f"the plugin itself is called {qualified}: {name} is {other.title}"
        if qualified in found or other.distribution == plugin.distribution:
            reason = f"{plugin.distribution} has two entry points of this name"
            plugin = replace(plugin, state="broken", reason=reason)
            while qualified in found:
                qualified += "'"
        found[qualified] = replace(plugin, name=qualified, clashes=(clash,) if plugin.state == "ok" else ())
    return tuple(sorted(found.values(), key=lambda p: (p.name, p.module)))


def _only(claimed: Sequence[Entry]) -> Entry | None:
    return claimed[0] if all(e.plugin == claimed[0].plugin for e in claimed) else None


def _second_ops(entries: Sequence[Entry]) -> Iterable[tuple[Entry, Entry]]:
    """(op, the one that has its name): those of this project count first."""
    first: dict[str, Entry] = {}
    for entry in sorted((e for e in entries if e.kind == "ops"), key=lambda e: not e.is_first_party):
        other = first.setdefault(entry.name, entry)
        if other.plugin != entry.plugin:
            yield entry, other


def _clash(found: Entry, claimed: Sequence[Entry], plugins: Mapping[str, Plugin]) -> str:
    others = " and ".join(dict.fromkeys(plugins[e.plugin].title for e in claimed if e.plugin != found.plugin))
    kind = found.kind.replace("_", " ")
    return f"{found.name} of the {kind} is selected by this name: {found.plain} is of {others} too"


def _pack_clash(entry: Entry, other: Entry, plugins: Mapping[str, Plugin]) -> DlcError:
    first, second = plugins[other.plugin], plugins[entry.plugin]
    return error(
        "name-clash",
        f"two plugins offer {entry.name} among the ops: {first.title} and {second.title}",
        help="rename the op or its pack, or leave one of the files out",
        exit_code=ExitCode.PLUGIN,
    )
