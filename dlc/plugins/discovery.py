"""Find plugins, keep them apart, and turn what they offer into one immutable Registry.

Discovery reads metadata only. Each plugin gets a hook manager of its own, so that a broken one leaves no trace in the
others: it is quarantined, named, and everything else works. Names must be unique; a clash names both plugins.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast, get_args

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.lazy import Lazy
from dlc.files.inputs import active
from dlc.plugins import hookspecs
from dlc.plugins.entry import Entry, Kind, reason_of
from dlc.plugins.entry_points import EntryPoint, entry_points
from dlc.plugins.guard import attempt
from dlc.plugins.machines import machine_files
from dlc.plugins.op_packs import PACKS_MODULE, content_digest, named_packs, pack_entries, plugin_packs
from dlc.plugins.plugin import Plugin
from dlc.plugins.registry import Observer, Registry

if TYPE_CHECKING:
    from pluggy import HookImpl, PluginManager

    from dlc.api.samples import Samples

GROUP = "dlc"

KINDS: tuple[Kind, ...] = get_args(Kind)
BACKENDS: tuple[Kind, ...] = ("backends",)
"""All that it takes to load what was built."""
RESERVED = frozenset({"input", "constant", "splat", "call", "again", "copy", "item", "cotangent", "if", "scan", "loop"})
"""Text names of the ops of graphs themselves, those that `dlc.graph` defines: no plugin can offer another."""
_HOOKS: Mapping[Kind, str] = {kind: f"dlc_{kind}" for kind in KINDS}
_OF_PACKS: frozenset[Kind] = frozenset({"ops", "onnx_rules"})
"""What op packs offer."""
_MANAGERS: "dict[str, tuple[Mapping[str, object], PluginManager]]" = {}
"""Module → what its names meant, and its hook manager."""


@dataclass(frozen=True)
class _Loaded:
    """A plugin whose module is imported and whose hooks are known to fit."""

    plugin: Plugin
    manager: "PluginManager"
    entries: tuple[Entry, ...]


def list_plugins(disable: Iterable[str] = ()) -> tuple[Plugin, ...]:
    """Installed plugins by name, from metadata alone: no third-party code runs.

    Raises DlcError (PLUGIN) when two distributions use one name.
    """
    blocked = set(disable)
    found: dict[str, Plugin] = {}
    for point in sorted(entry_points(GROUP), key=lambda p: (p.name, p.module)):
        plugin = _plugin(point)
        other = found.get(point.name)
        if other and (other.distribution, other.module) != (plugin.distribution, plugin.module):
            raise _clash("plugins", point.name, other, plugin)
        found[point.name] = replace(plugin, state="blocked", reason="disabled") if plugin.name in blocked else plugin
    return tuple(found.values())


def load_registry(disable: Iterable[str] = (), kinds: Iterable[Kind] = KINDS, packs: Iterable[Path] = ()) -> Registry:
    """Import every plugin that is not disabled and collect the tables named by `kinds`.

    A plugin that cannot be imported, has an unknown hook or fails in one is left out and stands in `problems`.

    Args:
        disable: Names of plugins that are not loaded.
        kinds: What is collected.
        packs: Op packs beside those of plugins: files, or directories of such.

    Raises:
        DlcError: (PLUGIN) two plugins offer the same name, or there is something wrong in one of `packs`.
    """
    kinds, packs = tuple(kinds), tuple(packs)
    plugins: list[Plugin] = []
    loaded: list[_Loaded] = []
    for plugin in (core(), *list_plugins(disable)):
        if plugin.state == "blocked":
            plugins.append(plugin)
            continue
        outcome = _load(plugin, kinds)
        if isinstance(outcome, Plugin):
            plugins.append(outcome)
        else:
            plugins.append(outcome.plugin)
            loaded.append(outcome)
    named: list[Entry] = []
    with active().active():  # what is read of a pack and its digest are of the same bytes
        if _OF_PACKS.intersection(kinds):
            for plugin, file in named_packs(packs):
                plugins.append(plugin)
                named += pack_entries(plugin, file, kinds)
        digest = content_digest(packs) if packs else ""
    entries = [*(e for one in loaded for e in one.entries), *named]
    return _registry(tuple(plugins), loaded, entries, kinds, digest)


def samples_of(plugin: Plugin) -> "Samples":
    """What the plugin's hook `dlc_samples` gives; empty where it has none.

    Raises:
        DlcError: (PLUGIN) what it gives cannot be loaded, or is another thing.
    """
    from dlc.api.samples import Samples

    for hook in _implementations(hook_manager(import_module(plugin.module)), "dlc_samples"):
        found = hook()
        if isinstance(found, Lazy):
            lazy = found
            outcome = attempt(lazy.load, plugin.title, ours=plugin.is_own)
            if outcome.problem:
                message = f"plugin {plugin.name}: its samples cannot be loaded: {reason_of(outcome.problem)}"
                raise error("plugin", message, exit_code=ExitCode.PLUGIN) from outcome.problem
            found = outcome.value
        if not isinstance(found, Samples):
            message = f"plugin {plugin.name}: dlc_samples must give a dlc.Samples, not {type(found).__name__}"
            raise error("plugin", message, exit_code=ExitCode.PLUGIN)
        return found
    return Samples()


def packs_of(plugin: Plugin) -> tuple[Path, ...]:
    """The files of the op packs that a plugin brings."""
    hooks = _implementations(hook_manager(import_module(plugin.module)), "dlc_op_packs")
    return tuple(f for hook in hooks for f in plugin_packs(plugin, cast("Iterable[object]", hook())))


def core() -> Plugin:
    """dlc itself, as the first of the plugins."""
    from dlc.version import __version__

    return Plugin("core", "dlc.plugins.builtin", "dlc", __version__)


def _plugin(point: EntryPoint) -> Plugin:
    return Plugin(point.name, point.module, point.distribution, point.version)


def _load(plugin: Plugin, kinds: tuple[Kind, ...]) -> Plugin | _Loaded:
    """The plugin's hooks and entries, or the plugin with the reason why there are none."""

    def load() -> Plugin | _Loaded:
        module = import_module(plugin.module)
        if reason := _incompatible(module):
            return replace(plugin, state="incompatible", reason=reason)
        manager = hook_manager(module)
        entries = [e for kind in kinds for e in _entries(plugin, kind, manager)]
        return _Loaded(plugin, manager, (*entries, *_pack_entries(plugin, kinds, manager)))

    if plugin.module == "dlc.plugins.builtin":
        return load()  # what it raises is our own bug, not a plugin's
    # Third-party code may raise anything; the reason is shown, and nothing else depends on this plugin.
    outcome = attempt(load, plugin.title, ours=plugin.is_own)
    if outcome.value is None:
        return replace(plugin, state="broken", reason=reason_of(outcome.problem))
    if isinstance(outcome.value, Plugin):
        return replace(outcome.value, changes=outcome.changes)
    return replace(outcome.value, plugin=replace(plugin, changes=outcome.changes))


def hook_manager(module: ModuleType) -> "PluginManager":
    """A hook manager for one plugin. A hook that dlc does not know is an error: it would never be called.

    A command asks for the same plugins several times: the answer stays while the module's names mean the same objects.
    """
    from pluggy import PluginManager

    names = dict(vars(module))
    if known := _MANAGERS.get(module.__name__):
        before, manager = known
        if len(before) == len(names) and all(before.get(name, _MANAGERS) is value for name, value in names.items()):
            return manager
    manager = PluginManager("dlc")
    manager.add_hookspecs(hookspecs)
    manager.register(module)
    manager.check_pending()
    _MANAGERS[module.__name__] = names, manager
    return manager


def _incompatible(module: ModuleType) -> str:
    """Why the plugin's `dlc_api = ">=0.1"` excludes this version, or ""."""
    wanted: object = getattr(module, "dlc_api", "")
    if not isinstance(wanted, str) or not wanted:
        return ""
    from packaging.specifiers import SpecifierSet

    from dlc.version import __version__

    return "" if SpecifierSet(wanted).contains(__version__, prereleases=True) else f"it needs dlc {wanted}"


def _entries(plugin: Plugin, kind: Kind, manager: "PluginManager") -> Iterable[Entry]:
    for hook in _implementations(manager, _HOOKS[kind]):
        offered = hook()
        if kind == "pipelines":
            for name, text in cast("Mapping[object, object]", offered).items():
                if not isinstance(name, str) or not isinstance(text, str):
                    raise TypeError(f"{_HOOKS[kind]} must map names to spec text, not {name!r} to {text!r}")
                yield Entry(kind, name, plugin.name, plugin.module, text, plugin.is_own)
        elif kind == "rules":
            for rule in cast("Iterable[Any]", offered):
                if not isinstance(rule, Lazy) and not callable(getattr(rule, "apply", rule)):
                    raise TypeError(f"{_HOOKS[kind]} must return rules or dlc.Lazy, not {rule!r}")
                name = getattr(rule, "name", None) or getattr(rule, "__name__", type(rule).__name__)
                yield Entry(kind, str(name), plugin.name, plugin.module, rule, plugin.is_own)
        elif kind == "onnx_rules":
            for item in cast("Iterable[object]", offered):
                if not isinstance(item, Lazy) or not item.name or ":" in item.target:
                    raise TypeError(f"{_HOOKS[kind]} must return dlc.Lazy(domain, module), not {item!r}")
                yield Entry(kind, item.name, plugin.name, plugin.module, item, plugin.is_own)
        elif kind == "machines":
            for name, file in machine_files(plugin, cast("Iterable[object]", offered)):
                yield Entry(kind, name, plugin.name, plugin.module, file, plugin.is_own)
        else:
            for item in cast("Iterable[object]", offered):
                target = cast("type[Any]", item)
                yield Entry(kind, _class_name(kind, item), plugin.name, plugin.module, target, plugin.is_own)


def _pack_entries(plugin: Plugin, kinds: tuple[Kind, ...], manager: "PluginManager") -> Iterable[Entry]:
    if _OF_PACKS.isdisjoint(kinds):
        return
    for hook in _implementations(manager, "dlc_op_packs"):
        for file in plugin_packs(plugin, cast("Iterable[object]", hook())):
            yield from pack_entries(plugin, file, kinds)


def _class_name(kind: Kind, item: object) -> str:
    if not isinstance(item, type | Lazy):
        raise TypeError(f"{_HOOKS[kind]} must return classes or dlc.Lazy, not {item!r}")
    attribute = "text_name" if kind == "ops" and not isinstance(item, Lazy) else "name"
    name: object = getattr(item, attribute, None)
    if not isinstance(name, str):
        raise TypeError(f"{_HOOKS[kind]}: {getattr(item, '__name__', item)} has no name")
    if kind == "ops" and name in RESERVED:
        raise TypeError(f"{_HOOKS[kind]}: {name} is an op of graphs themselves; choose another name")
    return name


def _implementations(manager: "PluginManager", hook: str) -> Iterable[Callable[..., object]]:
    implementations: list[HookImpl] = getattr(manager.hook, hook).get_hookimpls()
    return [i.function for i in implementations]


def _registry(
    plugins: tuple[Plugin, ...],
    loaded: list[_Loaded],
    entries: Iterable[Entry],
    kinds: tuple[Kind, ...],
    packs: str,
) -> Registry:
    tables: dict[Kind, dict[str, Entry]] = {kind: {} for kind in kinds}
    by_name = {plugin.name: plugin for plugin in plugins}
    for entry in entries:
        other = tables[entry.kind].setdefault(entry.key, entry)
        if other is not entry:
            raise _clash(entry.kind, entry.name, by_name[other.plugin], by_name[entry.plugin])
    return Registry(
        plugins=plugins,
        tables=tables,
        problems=tuple(found for p in plugins if (found := p.problem())),
        observers=_observers(loaded, "dlc_step_done"),
        commands=_observers(loaded, "dlc_commands"),
        op_packs=packs,
    )


def _observers(loaded: list[_Loaded], hook: str) -> tuple[Observer, ...]:
    return tuple(Observer(one.plugin.title, h) for one in loaded for h in _implementations(one.manager, hook))


def _clash(kind: str, name: str, first: Plugin, second: Plugin) -> DlcError:
    """What can go is the plugin of a third party; of two, the later one."""
    which = first if second.is_own else second
    them = which.title if first.is_own or second.is_own else "one of them"
    if which.module == PACKS_MODULE:
        help = "rename the op or its pack, or leave one of the files out"
    elif kind == "plugins":
        help = f"remove {them}: pip uninstall {which.distribution}"
    else:
        help = f'disable {them} in dlc.toml: [plugins] disable = ["{which.name}"]'
    return error(
        "name-clash",
        f"two plugins offer {name} among the {kind}: {first.title} and {second.title}",
        help=help,
        exit_code=ExitCode.PLUGIN,
    )
