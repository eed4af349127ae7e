"""What `dlc doctor` looks at: everything outside dlc that a build depends on."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal, cast

from dlc.base.diagnostics import DlcError, escape
from dlc.plugins.entry import reason_of
from dlc.plugins.guard import attempt
from dlc.plugins.plugin import pip_install
from dlc.spec import Spec

if TYPE_CHECKING:
    from dlc.base.cache_levels import Levels
    from dlc.config.config import Config
    from dlc.plugins.registry import Registry

State = Literal["ok", "warning", "error"]
_SAFE_ONNX = (1, 21)
"""Older versions follow paths in models out of their directory (CVE-2026-27489 and others)."""


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    state: State
    text: str
    help: str = ""


def examine(config: Config, credentials: Callable[[Levels], Levels]) -> tuple[Check, ...]:
    """Every check, in the order in which a build would meet the problem; `credentials` completes the cache's levels."""
    return (*_python(), *_plugins(config), *_cache(config), *_levels(config, credentials), *_packages())


def _python() -> Iterator[Check]:
    from dlc.version import __version__

    yield Check("dlc", "ok", f"{__version__}, Python {platform.python_version()}, {platform.machine()}")
    if scarce := _temporary_space():
        yield scarce


def _temporary_space() -> Check | None:
    import shutil

    where = tempfile.gettempdir()
    free = shutil.disk_usage(where).free
    if free >= 1 << 30:
        return None
    return Check(
        "temporary files",
        "warning",
        f"{where} has {free >> 20} MiB left",
        "compilers need space; set TMPDIR to another directory",
    )


def _plugins(config: Config) -> Iterator[Check]:
    from dlc.plugins.discovery import load_registry

    try:
        registry = load_registry(config.disabled)
    except DlcError as problem:
        yield Check("plugins", "error", problem.diagnostics[0].message, problem.diagnostics[0].help)
        return
    for plugin in registry.plugins[1:]:
        state: State = {"ok": "ok", "blocked": "warning"}.get(plugin.state, "error")  # type: ignore[assignment]
        text = f"{plugin.distribution} {plugin.version}" + (
            f" is {plugin.state}: {plugin.reason}" if plugin.reason else ""
        )
        help = f"pip uninstall {plugin.distribution}" if state == "error" else ""
        yield Check(f"plugin {plugin.name}", state, escape(text), help)
    yield from _offers(registry)
    if set(registry.frontends) <= {"dlc"}:
        yield Check("frontends", "warning", "only dlc's own text can be read", pip_install("onnx"))
    if not registry.plugin_backends:
        yield Check("backends", "error", "no backend is installed", pip_install("c"))
    for name in registry.backends:
        yield from _toolchain(registry, name)


def _toolchain(registry: Registry, name: str) -> Iterator[Check]:
    """What a backend says of its tools, and which known faults these have."""
    entry = registry.backends[name]

    def ask() -> tuple[str, Sequence[tuple[str, str]]]:
        backend = registry.backend(Spec(name))
        return backend.toolchain(), backend.known_faults()

    found = attempt(ask, entry.plugin, ours=entry.is_first_party)
    match found.problem:
        case None:
            identity, faults = cast("tuple[str, Sequence[tuple[str, str]]]", found.value)
            # Digests of programs belong to cache keys; nobody reads them here.
            facts = [line for line in str(identity).splitlines() if " sha256 " not in line]
            yield Check(f"toolchain of {name}", "ok", escape("; ".join(facts) or "none needed"))
            for fault, meaning in faults:
                text = f"compiles {fault} wrong; programs of dlc avoid it: {meaning}"
                yield Check(f"compiler of {name}", "ok", escape(text))
        case DlcError(diagnostics=(first, *_)):
            yield Check(f"toolchain of {name}", "error", first.message, first.help)
        case problem if not entry.is_first_party:
            reason = f"plugin {entry.plugin} failed: {reason_of(problem)}"
            yield Check(f"toolchain of {name}", "error", escape(reason))
        case problem:
            raise problem


def _offers(registry: Registry) -> Iterator[Check]:
    """What plugins promise and cannot keep: classes that are imported when they are used, and cannot be."""
    for table in registry.tables.values():
        for entry in table.values():
            try:
                entry.load()
            except DlcError as problem:
                yield Check(
                    f"plugin {entry.plugin}", "error", problem.diagnostics[0].message, problem.diagnostics[0].help
                )


def _cache(config: Config) -> Iterator[Check]:
    from dlc.cache import cache_directory, open_cache

    if config.cache_mode == "off":
        yield Check("cache", "warning", "off")
        return
    directory = cache_directory(config.cache_dir)
    cache = open_cache(config.cache_dir, config.cache_mode, size_limit=None)
    found = cache.statistics()
    cache.close()
    for warning in cache.warnings:
        yield Check("cache", "warning", warning.message, warning.help)
    if not cache.warnings:
        text = f"{escape(str(directory))}: {found.records} results, {found.size >> 20} MiB, mode {config.cache_mode}"
        yield Check("cache", "ok", text)


def _levels(config: Config, credentials: Callable[[Levels], Levels]) -> Iterator[Check]:
    from dlc.cache.remotes import probe

    try:
        levels = credentials(config.cache_levels)
    except DlcError as problem:
        yield Check("cache levels", "warning", problem.diagnostics[0].message, problem.diagnostics[0].help)
        return
    for level in levels.levels:
        failure = probe(level, levels.timeout)
        text = failure.reason if failure else f"answers; builds {'read and write' if level.writes else 'only read'} it"
        help = failure.help if failure else ""
        yield Check(f"cache level {escape(level.label)}", "warning" if failure else "ok", text, help)


def _packages() -> Iterator[Check]:
    found = _version("onnx")
    if found is not None:
        numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
        safe = numbers >= _SAFE_ONNX
        help = "" if safe else "pip install -U onnx: this version follows paths out of a model's directory"
        yield Check("onnx", "ok" if safe else "error", found, help)
    runtime = _version("onnxruntime")
    text = runtime or "not installed; `dlc verify` compares with numpy, which is slow for large models"
    yield Check("onnxruntime", "ok" if runtime else "warning", text, "" if runtime else "pip install onnxruntime")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
