"""What the hooks of one plugin offer, checked; a hook that fails or returns something else is named with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args

from dlc.base.diagnostics import DlcError
from dlc.base.lazy import Lazy
from dlc.plugins.entry import Entry, HookFault, Kind, WrongResult, listed, place_of, shown
from dlc.plugins.machines import machine_files
from dlc.plugins.op_packs import pack_entries, plugin_packs
from dlc.plugins.plugin import Plugin

if TYPE_CHECKING:
    from pluggy import HookImpl, PluginManager

T = TypeVar("T")
Hook = Callable[..., object]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
OF_PACKS: Final[frozenset[Kind]] = frozenset({"ops", "onnx_rules"})
"""What op packs offer."""
RESERVED: Final = frozenset(
    {"input", "constant", "splat", "call", "again", "copy", "item", "cotangent", "if", "scan", "loop"}
)
"""Text names of the ops of graphs themselves, which `dlc.graph` defines and the core does not offer: no plugin can."""
_HOOKS: Final[Mapping[Kind, str]] = {kind: f"dlc_{kind}" for kind in KINDS}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
"""What a spec can spell."""
_OP: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What the text of a graph can spell."""


def entries_of(plugin: Plugin, kinds: tuple[Kind, ...], manager: PluginManager) -> list[Entry]:
    """Everything of these kinds. Raises HookFault, naming the hook and its place; DlcError: an op pack is not sound."""
    found: list[Entry] = []
    for kind in kinds:
        for hook in implementations(manager, _HOOKS[kind]):
            found += called(_HOOKS[kind], hook, lambda given, kind=kind: _entries(plugin, kind, given))
    if OF_PACKS.intersection(kinds):
        for file in packs_of(plugin, manager):
            found += pack_entries(plugin, file, kinds)
    return found


def packs_of(plugin: Plugin, manager: PluginManager) -> list[Path]:
    """The files of the op packs that a plugin brings; raises as `entries_of` does."""
    found: list[Path] = []
    for hook in implementations(manager, "dlc_op_packs"):
        found += called("dlc_op_packs", hook, lambda given: plugin_packs(plugin, given))
    return found


def implementations(manager: PluginManager, hook: str) -> list[Hook]:
    """The plugin's functions for a hook."""
    found: list[HookImpl] = getattr(manager.hook, hook).get_hookimpls()
    return [i.function for i in found]


def called(name: str, hook: Hook, read: Callable[[object], Iterator[T]]) -> list[T]:
    """What `read` makes of a hook's result.

    Raises HookFault: the hook raised an Exception, or its result is wrong; DlcError: a file that it names is.
    """
    try:
        return list(read(hook()))
    except WrongResult as problem:
        raise HookFault(str(problem), _line(hook)) from None
    except DlcError:
        raise
    except Exception as problem:
        raise HookFault(f"{name} failed: {type(problem).__name__}: {problem}", place_of(problem)) from problem


def _line(hook: Hook) -> str:
    """Where a hook is defined: `FILE:LINE`, or "" for what is no Python."""
    code = getattr(hook, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _entries(plugin: Plugin, kind: Kind, offered: object) -> Iterator[Entry]:
    name, own = _HOOKS[kind], (plugin.name, plugin.module)
    if kind == "pipelines":
        if not isinstance(offered, Mapping):
            raise WrongResult(f"{name} must return a dict of names and spec text, not {shown(offered)}")
        for key, text in cast("Mapping[object, object]", offered).items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise WrongResult(f"{name} must map names to spec text, not {shown(key)} to {shown(text)}")
            yield Entry(kind, _spelled(kind, key), *own, text, plugin.is_own)
    elif kind == "rules":
        for rule in cast("Iterator[Any]", listed(name, offered)):
            if not isinstance(rule, Lazy) and not callable(getattr(rule, "apply", rule)):
                raise WrongResult(f"{name} must return rules or dlc.Lazy, not {shown(rule)}")
            called = getattr(rule, "name", None) or getattr(rule, "__name__", type(rule).__name__)
            yield Entry(kind, str(called), *own, rule, plugin.is_own)
    elif kind == "onnx_rules":
        for item in listed(name, offered):
            if not isinstance(item, Lazy) or not item.name or ":" in item.target:
                raise WrongResult(f"{name} must return dlc.Lazy(domain, module), not {shown(item)}")
            yield Entry(kind, item.name, *own, item, plugin.is_own)
    elif kind == "machines":
        for machine, file in machine_files(plugin, offered):
            yield Entry(kind, machine, *own, file, plugin.is_own)
    else:
        for item in listed(name, offered):
            yield Entry(kind, _class_name(kind, item), *own, cast("type[Any]", item), plugin.is_own)


def _class_name(kind: Kind, item: object) -> str:
    if not isinstance(item, type | Lazy):
        raise WrongResult(f"{_HOOKS[kind]} must return classes or dlc.Lazy, not {shown(item)}")
    attribute = "text_name" if kind == "ops" and not isinstance(item, Lazy) else "name"
    name: object = getattr(item, attribute, None)
    if not isinstance(name, str):
        raise WrongResult(f"{_HOOKS[kind]}: {getattr(item, '__name__', item)} has no name")
    if kind == "ops" and name in RESERVED:
        raise WrongResult(f"{_HOOKS[kind]}: {name} is an op of graphs themselves; choose another name")
    return _spelled(kind, name)


def _spelled(kind: Kind, name: str) -> str:
    if not (_OP if kind == "ops" else _NAME).fullmatch(name):
        raise WrongResult(f"{_HOOKS[kind]}: {shown(name)} cannot be a name: use letters and digits")
    return name
