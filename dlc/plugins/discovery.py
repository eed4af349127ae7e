"""Find plugins, keep them apart, and turn what they offer into one immutable Registry.

Discovery reads metadata only. Each plugin gets a hook manager of its own, so that a broken one leaves no trace in the
others: it is quarantined, named, and everything else works. Every command and every function of Python comes through
`load_registry`, so this holds everywhere. `dlc.plugins.names` says who has a name that several plugins claim.
"""

import os
import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.lazy import Lazy
from dlc.config.keys import DISABLE_VARIABLE
from dlc.files.inputs import active
from dlc.plugins import hookspecs
from dlc.plugins.entry import Entry, Kind, reason_of
from dlc.plugins.entry_points import EntryPoint, entry_points
from dlc.plugins.guard import attempt
from dlc.plugins.names import distinct, named
from dlc.plugins.offered import KINDS, OF_PACKS, RESERVED, entries_of, implementations
from dlc.plugins.offered import packs_of as _packs_of
from dlc.plugins.op_packs import content_digest, named_packs, pack_entries
from dlc.plugins.plugin import Plugin
from dlc.plugins.registry import Observer, Registry

if TYPE_CHECKING:
    from pluggy import PluginManager

    from dlc.api.samples import Samples

__all__ = ["BACKENDS", "KINDS", "RESERVED", "list_plugins", "load_registry"]

GROUP: Final = "dlc"
BACKENDS: Final[tuple[Kind, ...]] = ("backends",)
"""All that it takes to load what was built."""
STRICT: Final[ContextVar[bool]] = ContextVar("strict_plugins", default=False)
"""Whether a plugin that does not work is an error (--strict-plugins)."""
_MANAGERS: "dict[tuple[str, str], tuple[Mapping[str, object], PluginManager]]" = {}
"""(module, attribute) → what the module's names meant, and the hook manager."""


@dataclass(frozen=True)
class _Loaded:
    """A plugin whose module is imported and whose hooks are known to fit."""

    plugin: Plugin
    manager: "PluginManager"
    entries: list[Entry]


def list_plugins(disable: Iterable[str] = ()) -> tuple[Plugin, ...]:
    """Installed plugins by name, from metadata alone: no third-party code runs.

    `disable`: names of plugins or distributions; those of `DISABLE_VARIABLE` come on top.
    """
    blocked = {*disable, *(name.strip() for name in os.environ.get(DISABLE_VARIABLE, "").split(","))}
    points = sorted(entry_points(GROUP), key=lambda p: (p.name, p.module, p.attribute))
    return tuple(
        replace(plugin, state="blocked", reason="disabled") if {plugin.name, plugin.distribution} & blocked else plugin
        for plugin in distinct(map(_plugin, points))
    )


def load_registry(disable: Iterable[str] = (), kinds: Iterable[Kind] = KINDS, packs: Iterable[Path] = ()) -> Registry:
    """Import every plugin that is not disabled and collect the tables named by `kinds`.

    A plugin that cannot be imported or fails in a hook is left out and stands in `problems`.

    Args:
        disable: Names of plugins that are not loaded.
        kinds: What is collected.
        packs: Op packs beside those of plugins: files, or directories of such.

    Raises:
        DlcError: (PLUGIN) there is something wrong in one of `packs`, or a plugin does not work and `STRICT` is set.
    """
    kinds, packs = tuple(kinds), tuple(packs)
    plugins: list[Plugin] = []
    loaded: list[_Loaded] = []
    for plugin in (core(), *list_plugins(disable)):
        if plugin.state != "ok":
            plugins.append(plugin)
            continue
        outcome = _load(plugin, kinds)
        if isinstance(outcome, Plugin):
            plugins.append(outcome)
        else:
            plugins.append(outcome.plugin)
            loaded.append(outcome)
    given: list[Entry] = []
    with active().active():  # what is read of a pack and its digest are of the same bytes
        if OF_PACKS.intersection(kinds):
            for plugin, file in named_packs(packs):
                plugins.append(plugin)
                given += pack_entries(plugin, file, kinds)
        digest = content_digest(packs) if packs else ""
    found = named(plugins, [*(e for one in loaded for e in one.entries), *given], kinds)
    problems = tuple(problem for plugin in found.plugins for problem in plugin.problems())
    if STRICT.get() and any(p.is_broken for p in found.plugins):
        broken = [p for plugin in found.plugins if plugin.is_broken for p in plugin.problems()]
        raise DlcError(*(replace(p, severity="error") for p in broken), exit_code=ExitCode.PLUGIN)
    works = {plugin.name for plugin in found.plugins if plugin.state == "ok"}
    working = sorted((one for one in loaded if one.plugin.name in works), key=lambda one: not one.plugin.is_own)
    return Registry(
        plugins=found.plugins,
        tables=found.tables,
        problems=problems,
        observers=_observers(working, "dlc_step_done"),
        commands=_observers(working, "dlc_commands"),
        op_packs=digest,
    )


def samples_of(plugin: Plugin) -> "Samples":
    """What the plugin's hook `dlc_samples` gives; empty where it has none.

    Raises:
        DlcError: (PLUGIN) what it gives cannot be loaded, or is another thing.
    """
    from dlc.api.samples import Samples

    def load() -> object:
        for hook in implementations(hook_manager(plugin), "dlc_samples"):
            found = hook()
            return found.load() if isinstance(found, Lazy) else found
        return Samples()

    outcome = attempt(load, plugin.title, ours=plugin.is_own)
    if outcome.problem:
        message = f"plugin {plugin.name}: its samples cannot be loaded: {reason_of(outcome.problem)}"
        raise error("plugin", message, exit_code=ExitCode.PLUGIN) from outcome.problem
    found = outcome.value
    if not isinstance(found, Samples):
        message = f"plugin {plugin.name}: dlc_samples must give a dlc.Samples, not {type(found).__name__}"
        raise error("plugin", message, exit_code=ExitCode.PLUGIN)
    return found


def packs_of(plugin: Plugin) -> tuple[Path, ...]:
    """The files of the op packs that a plugin brings."""
    return tuple(_packs_of(plugin, hook_manager(plugin)))


def core() -> Plugin:
    """dlc itself, as the first of the plugins."""
    from dlc.version import __version__

    return Plugin("core", "dlc.plugins.builtin", "dlc", __version__)


def _plugin(point: EntryPoint) -> Plugin:
    name = point.name or point.distribution
    plugin = Plugin(name, point.module, point.distribution, point.version, attribute=point.attribute)
    if not point.name:
        return replace(plugin, state="broken", reason="its entry point has no name")
    return plugin if point.module else replace(plugin, state="broken", reason="its entry point names no module")


def _load(plugin: Plugin, kinds: tuple[Kind, ...]) -> Plugin | _Loaded:
    """The plugin's hooks and entries, or the plugin with the reason why there are none."""

    def load() -> Plugin | _Loaded:
        if reason := _incompatible(import_module(plugin.module)):
            return replace(plugin, state="incompatible", reason=reason)
        manager = hook_manager(plugin)
        return _Loaded(replace(plugin, unknown_hooks=_unknown(manager)), manager, entries_of(plugin, kinds, manager))

    start = time.perf_counter()
    if plugin.module == "dlc.plugins.builtin":
        found = cast("_Loaded", load())  # what it raises is our own bug, not a plugin's
        took = (time.perf_counter() - start) * 1000
        return replace(found, plugin=replace(plugin, milliseconds=took))
    # Third-party code may raise anything; the reason is shown, and nothing else depends on this plugin.
    outcome = attempt(load, plugin.title, ours=plugin.is_own)
    took = (time.perf_counter() - start) * 1000

    def seen(of: Plugin) -> Plugin:
        return replace(of, changes=outcome.changes, output=outcome.output, milliseconds=took)

    if outcome.value is None:
        return seen(replace(plugin, state="broken", reason=reason_of(outcome.problem)))
    if isinstance(outcome.value, Plugin):
        return seen(outcome.value)
    return replace(outcome.value, plugin=seen(outcome.value.plugin))


def hook_manager(plugin: Plugin) -> "PluginManager":
    """A hook manager for one plugin alone.

    A command asks for the same plugins several times: the answer stays while the module's names mean the same objects.
    Raises ImportError: the entry point names an object that has no hooks.
    """
    from pluggy import PluginManager

    module = import_module(plugin.module)
    names = dict(vars(module))
    key = plugin.module, plugin.attribute
    if known := _MANAGERS.get(key):
        before, manager = known
        if len(before) == len(names) and all(before.get(name, _MANAGERS) is value for name, value in names.items()):
            return manager
    holder: object = module
    for part in filter(None, plugin.attribute.split(".")):
        holder = getattr(holder, part)
    manager = PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    manager.register(holder)
    if not isinstance(holder, ModuleType) and (isinstance(holder, type) or not manager.get_hookcallers(holder)):
        what = "a class" if isinstance(holder, type) else f"a {type(holder).__name__} without hooks"
        message = f"{plugin.module}:{plugin.attribute} is {what}: name a module, or an object that has hooks"
        raise ImportError(message)
    _MANAGERS[key] = names, manager
    return manager


def _unknown(manager: "PluginManager") -> tuple[str, ...]:
    """Hooks that this version does not have: a newer one may call them."""
    callers = {name: caller for name, caller in vars(manager.hook).items() if not name.startswith("_")}
    return tuple(
        sorted(
            name
            for name, caller in callers.items()
            if not caller.has_spec() and not all(i.optionalhook for i in caller.get_hookimpls())
        )
    )


def _incompatible(module: ModuleType) -> str:
    """Why the plugin's `dlc_api = ">=0.1"` excludes this version, or ""."""
    wanted: object = getattr(module, "dlc_api", "")
    if not isinstance(wanted, str) or not wanted:
        return ""
    from packaging.specifiers import SpecifierSet

    from dlc.version import __version__

    return "" if SpecifierSet(wanted).contains(__version__, prereleases=True) else f"it needs dlc {wanted}"


def _observers(loaded: list[_Loaded], hook: str) -> tuple[Observer, ...]:
    return tuple(Observer(one.plugin.title, h) for one in loaded for h in implementations(one.manager, hook))
