"""A build that was done before, found by what was asked for.

The same request on the same bytes with the same code leads to the same steps. So the keys of a build's steps are kept
under the request's own key, and a repeated build reads their records without importing a pass or opening the model.
This is only a shorter way to the records: whatever does not fit, the build goes the long way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dlc.base.code_digest import code_digest
from dlc.base.diagnostics import DlcError
from dlc.base.libraries import names_in, versions
from dlc.base.table import NAMES, Table, table_of
from dlc.cache import Cache, Key, Record
from dlc.cache.envelope import Damaged
from dlc.cache.step_record import StepRecord, files_of
from dlc.driver.left_out import told_report

if TYPE_CHECKING:
    from dlc.plugins.plugin import Plugin

_HEAD = "artifact"


@dataclass(frozen=True)
class Circumstances:
    """What decides about a build beside the request: things that a backend looks at, files that a model refers to."""

    target: str
    """Spec text of the backend."""
    pipeline: str
    """Spec text of all steps."""
    toolchain: str
    """What the backend said of its tools."""
    companions: tuple[tuple[str, str], ...] = ()
    """(path relative to the model, SHA-256) of files that the model refers to."""
    libraries: tuple[str, ...] = ()
    """Names of the libraries whose versions the keys of the steps hold."""
    versions: str = ""
    """Their versions when it ran."""


@dataclass(frozen=True)
class Replay:
    """A build as its records tell it."""

    circumstances: Circumstances
    steps: tuple[StepRecord[Any], ...]
    files: Mapping[str, str]
    """Name of an artifact's file → digest of its content in the cache."""
    entry: str
    facts: Mapping[str, int | str]


def request_key(model: Path, model_digest: str, asked: Mapping[str, object], plugins: Iterable[Plugin]) -> Key:
    """The key of a request.

    Args:
        model: Its file name is what generated names start from.
        model_digest: SHA-256 of the file.
        asked: Everything in flags and configuration that may change the steps, as JSON.
        plugins: All that are installed; the code of every one counts, because any could act. One that does not work
            counts as broken: it may work the next time.
    """
    acting = [p for p in plugins if p.state != "blocked"]
    lines = [("step", "request"), ("subject", model.name), ("input", model_digest)]
    lines += [("asked", f"{name} {json.dumps(value, sort_keys=True)}") for name, value in sorted(asked.items())]
    lines += [
        ("code", f"{package} {code_digest(package)}") for package in sorted({"dlc", *(p.package for p in acting)})
    ]
    lines += [("plugin", f"{p.name} {p.module} {p.distribution} {p.version} {p.state}") for p in acting]
    return Key(tuple(lines))


def libraries_of(steps: Iterable[StepRecord[Any]]) -> tuple[str, ...]:
    """Names of the libraries whose versions are in the keys of steps. Others decide nothing about their results."""
    lines = (value for step in steps for label, value in step.key.lines if label == "library")
    return tuple(dict.fromkeys(name for line in lines for name in names_in(line)))


def remember(cache: Cache, request: Key, circumstances: Circumstances, steps: Sequence[StepRecord[Any]]) -> None:
    """Keep the keys of a build's steps under the request's."""
    libraries = libraries_of(steps)
    description = {
        "target": circumstances.target,
        "pipeline": circumstances.pipeline,
        "toolchain": circumstances.toolchain,
        "companions": circumstances.companions,
        "libraries": libraries,
        "versions": versions(libraries),
        "steps": [step.key.digest for step in steps],
        "functions": [step.function for step in steps],
    }
    cache.save(request, {}, {"build": json.dumps(description)})


def steps_of(request: Record) -> frozenset[str]:
    """Digests of the keys of the steps that a request led to; none for the record of another version."""
    try:
        return frozenset(json.loads(dict(request.meta)["build"])["steps"])
    except (KeyError, ValueError, TypeError):
        return frozenset()


def recall(cache: Cache, request: Key, root: Path, toolchain: Callable[[str], str]) -> Replay | None:
    """The build that a request led to, if nothing has changed since and the cache still has all of it.

    Args:
        root: Directory of the model.
        toolchain: What a backend, by spec text, says of its tools now.
    """
    record = cache.peek(request.digest)
    try:
        description = json.loads(dict(record.meta)["build"]) if record else None
        if description is None:
            return None
        found = Circumstances(
            description["target"],
            description["pipeline"],
            description["toolchain"],
            tuple(map(tuple, description["companions"])),
            tuple(description["libraries"]),
            description["versions"],
        )
        if not _holds(cache, found, root, toolchain):
            return None
        records = cache.recall(description["steps"])
        return None if records is None else _replay(cache, found, records, description["functions"])
    # A request of another version, a file or a compiler that is gone: the long way tells what there is to tell.
    except (KeyError, ValueError, TypeError, OSError, Damaged, DlcError):
        return None


def _holds(cache: Cache, found: Circumstances, root: Path, toolchain: Callable[[str], str]) -> bool:
    same = all(cache.source_digest(root / name) == digest for name, digest in found.companions)
    same = same and versions(found.libraries) == found.versions
    return same and toolchain(found.target) == found.toolchain


def _replay(cache: Cache, found: Circumstances, records: Sequence[Record], functions: Sequence[str]) -> Replay | None:
    outputs = dict(records[-1].outputs)
    files = files_of(records[-1])
    head = cache.read(outputs[_HEAD])
    if head is None or not files:
        return None
    description = cast("dict[str, Any]", json.loads(head))
    steps = tuple(_steps(cache, records, functions))
    return Replay(found, steps, files, description["entry"], description["facts"])


def _steps(cache: Cache, records: Sequence[Record], functions: Sequence[str]) -> Iterator[StepRecord[Any]]:
    """The steps, with the names of this model in what they say: their records may be shared with other models."""
    tables: dict[str, str] = {}
    for record, function in zip(records, functions, strict=True):
        step = _step(record, function)
        if step.handle.placeholders is not None and step.handle.placeholders.own:
            tables[function] = dict(record.outputs)[NAMES]
        elif own := tables.get(function) or tables.get(""):
            step = replace(step, report=told_report(step.report, partial(_table, cache, own)))
        yield step


def _table(cache: Cache, names: str) -> Table:
    content = cache.read(names)
    if content is None:
        raise Damaged("names are gone from the cache")
    return table_of(content)


def _step(record: Record, function: str) -> StepRecord[Any]:
    def load() -> Any:
        raise AssertionError("a replayed build has no states")

    return replace(StepRecord[Any].of(record, load), milliseconds=0.0, function=function)
