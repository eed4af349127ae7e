"""`dlc build` of what was built before: the step records and the files, without importing passes, ops or frontends."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import DlcError, escape
from dlc.cli.functions import training_lines
from dlc.cli.options import FROM_CACHE
from dlc.cli.steps import memory_line, step_json, step_table
from dlc.cli.terminal import Outcome, Terminal, size
from dlc.plugins.discovery import BACKENDS, load_registry
from dlc.plugins.op_packs import content_digest

if TYPE_CHECKING:
    from dlc.cache import Cache, Key
    from dlc.cache.step_record import StepRecord
    from dlc.cli.options import BuildOptions
    from dlc.cli.workspace import Workspace
    from dlc.config.config import Config
    from dlc.driver.build import Build
    from dlc.driver.prepare import Prepared
    from dlc.plugins.registry import Registry


def request(cache: Cache, config: Config, registry: Registry, chosen: BuildOptions) -> Key:
    """The key of what the flags and the configuration ask for. OSError if the model cannot be read."""
    from dlc.driver.replay import request_key

    model = Path(chosen.model)
    settings = {key: text for key, text, _ in config.show() if not key.startswith(("cache.", "build.budget"))}
    asked: dict[str, object] = {**chosen.asked, "config": settings}
    if config.op_packs:
        asked["op packs"] = content_digest(config.op_packs)
    return request_key(model, cache.source_digest(model), asked, registry.plugins)


def rebuild(terminal: Terminal, config: Config, cache: Cache, chosen: BuildOptions, directory: Path) -> Outcome | None:
    """Install what an earlier build of the same request made; None if there was none, or the cache lacks some of it."""
    from dlc.driver.replay import recall
    from dlc.runtime.install import Lost, install_stored
    from dlc.runtime.manifest import NAME
    from dlc.spec import Spec

    if chosen.tune == FROM_CACHE:
        return None  # what it has by now is looked up
    start = time.perf_counter()
    registry = load_registry(config.disabled, kinds=BACKENDS)

    def toolchain(target: str) -> str:
        return registry.backend(Spec.parse(target)).toolchain()

    try:
        if named := config.named("target", "backend").get(chosen.target):
            registry.backend(named.value)  # refused where it runs something and the file is not trusted
        key = request(cache, config, registry, chosen)
    except (OSError, DlcError):
        return None
    found = recall(cache, key, Path(chosen.model).parent, toolchain)
    if found is None or NAME not in found.files:
        return None
    try:
        written = install_stored(cache, found.files, directory)
    except Lost:
        return None
    terminal.tell(*registry.problems)
    watch = registry.watcher(terminal.tell, chosen.model)
    for step in found.steps:
        watch(step)
    if not terminal.quiet:
        terminal.log(step_table(found.steps))
    given = found.circumstances
    lines = registry.backend(Spec.parse(given.target)).summary(found.facts)
    summary = BuildSummary(given.target, given.pipeline, found.steps, found.entry, found.facts, lines)
    return outcome(cache, directory, written, summary, start)


def remember_build(
    space: Workspace, prepared: Prepared, chosen: BuildOptions, cache: Cache, build: Build, directory: Path
) -> None:
    """Keep what `rebuild` needs. Nothing is kept while a plugin is broken, so that every build tells of it."""
    from dlc.cache.step_record import files_of
    from dlc.driver.replay import Circumstances, remember
    from dlc.runtime.install import remember_installed

    source = prepared.source
    broken = any(d.severity != "note" for d in space.registry.problems)
    if cache.mode not in ("rw", "refresh") or broken or source.path is None or prepared.tuned:
        return
    root, backend = source.path.parent, prepared.pipeline.backend
    paths = [c.path for c in prepared.frontend.companions(source) if c.path is not None]
    if not all(path.is_relative_to(root) for path in paths):
        return  # an option named a file elsewhere, which the request does not tell from another of that name
    companions = tuple((str(path.relative_to(root)), cache.source_digest(path)) for path in paths)
    circumstances = Circumstances(str(backend), prepared.pipeline.text, backend.toolchain(), companions)
    remember(cache, request(cache, space.config, space.registry, chosen), circumstances, build.steps)
    record = cache.peek(build.steps[-1].key.digest)
    if record is not None:
        remember_installed(cache, files_of(record), directory)


@dataclass(frozen=True)
class BuildSummary:
    """What a build says of itself, wherever it came from."""

    target: str
    pipeline: str
    steps: Sequence[StepRecord[Any]]
    entry: str
    memory: Mapping[str, int | str]
    lines: Sequence[str]
    """What the backend adds."""


def outcome(cache: Cache, directory: Path, written: Mapping[Path, int], summary: BuildSummary, start: float) -> Outcome:
    """What `dlc build` prints in the end; `written`: bytes of every file, by path."""
    total = sum(written.values())
    counts = cache.counts
    data = {
        "target": summary.target,
        "pipeline": summary.pipeline,
        "steps": [step_json(step) for step in summary.steps],
        "output": str(directory),
        "entry": summary.entry,
        "files": [{"name": str(p.relative_to(directory)), "bytes": n} for p, n in written.items()],
        "memory": dict(summary.memory),
        "cache": {"hits": counts.hits, "misses": counts.misses},
        "milliseconds": round((time.perf_counter() - start) * 1000, 1),
    }
    memory = training_lines(summary.memory, summary.steps) or [memory_line(summary.memory)]
    lines = [f"{directory}: {len(written)} files, {size(total)}", *memory, *map(escape, summary.lines)]
    return Outcome("\n".join(line for line in lines if line), data)
