"""Results and files in the cache, found by the start of a digest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.base.uses import NUMPY
from dlc.cli.describe import describe_graph
from dlc.cli.terminal import Outcome, columns, size
from dlc.cli.workspace import Workspace, opened_cache
from dlc.files.writing import write_whole

if TYPE_CHECKING:
    from dlc.cache import Cache, Record

_CANDIDATES = 8
"""Matches of a digest that an error lists."""
_DIGITS = 16
"""Digits of a file's digest that are shown: enough to ask for it."""
_HEAD = 60
"""Lines of a cached text that are shown without --text."""


@dataclass(frozen=True)
class Match:
    """Something whose digest starts as asked."""

    digest: str
    title: str
    record: Record | None
    """The step's result; None for a file."""


def show_cached(space: Workspace, prefix: str, text: bool, origins: bool, output: Path | None) -> Outcome:
    """The one thing whose digest starts with `prefix`. Raises DlcError (USAGE) for none or several."""
    with opened_cache(space.terminal, space.config, may_be_absent=True, shared=False) as cache:
        found = _only(prefix, list(_matches(cache, prefix)))
        if found.record is None:
            return _object(cache, found, text, output)
        if output:
            raise error(
                "no-effect",
                f"--output has no effect here: {found.digest} is the result of {found.title}",
                help="give the digest of one of its files",
                exit_code=ExitCode.USAGE,
            )
        return _result(space, cache, found, found.record, text, origins)


def _matches(cache: Cache, prefix: str) -> Iterator[Match]:
    """Records by the digest of their key or of the state they hold, and objects."""
    from dlc.cache.upkeep import records

    seen: set[str] = set()
    for entry, record in records(cache.store):
        state = dict(record.meta).get("digest", "")
        title = escape(record.key.value("step"))
        if entry.digest.startswith(prefix):
            yield Match(entry.digest, title, record)
        elif state.startswith(prefix) and state not in seen:
            seen.add(state)  # several steps may have left the same state; any of them tells what it is
            yield Match(state, title, record)
    for entry in cache.store.entries():
        if entry.table == "object" and entry.digest.startswith(prefix):
            yield Match(entry.digest, f"file of {size(entry.size)}", None)


def _only(prefix: str, found: list[Match]) -> Match:
    if len(found) == 1:
        return found[0]
    if not found:
        raise error(
            "unknown-digest",
            f"nothing in the cache has a digest that starts with {prefix}",
            help="dlc build --json prints the digests of a build's steps; --cache-dir sets the cache",
            exit_code=ExitCode.USAGE,
        )
    more = [f"and {len(found) - _CANDIDATES} more"] if len(found) > _CANDIDATES else []
    raise error(
        "ambiguous-digest",
        f"{len(found)} digests start with {prefix}",
        notes=[*(f"{m.digest}  {m.title}" for m in found[:_CANDIDATES]), *more],
        help="give more digits",
        exit_code=ExitCode.USAGE,
    )


def _result(space: Workspace, cache: Cache, found: Match, record: Record, text: bool, origins: bool) -> Outcome:
    """A step's result: what it depended on, what it gave, and the state itself as far as it can be read."""
    from dlc.driver.left_out import needs_of
    from dlc.driver.state_text import print_state

    meta = dict(record.meta)
    state = _state(space, cache, record)
    data: dict[str, Any] = {
        "kind": "result",
        "digest": record.key.digest,
        "step": record.key.value("step"),
        "state": f"{meta.get('kind', 'bytes')} {meta.get('digest', '')}".strip(),
        "milliseconds": record.milliseconds,
        "key": [list(line) for line in record.key.lines],
        "files": [{"name": name, "digest": digest} for name, digest in record.outputs],
    }
    if text:
        if state is None:
            raise error(
                "no-text",
                f"{found.title} has no graph, plan or program that can be shown",
                help=f"dlc show {found.digest[:_DIGITS]} lists its files",
                exit_code=ExitCode.USAGE,
            )
        data["text"] = print_state(state, origins=origins)
        return Outcome(data["text"], data)
    rows = [("result of", found.title), ("state", data["state"]), ("took", f"{record.milliseconds:.1f} ms")]
    if (needs := needs_of(record)) is not None:
        rows[1] = ("leads to", f"results whose keys have more: {_of_what(needs)}")
    rows += [(escape(label), escape("; ".join(value.splitlines()))) for label, value in record.key.lines[1:]]
    graph: Any = getattr(state, "graph", state)
    more, table, described = describe_graph(graph) if hasattr(graph, "ops") else ([], "", {})
    files = columns([(f"  {escape(name)}", digest[:_DIGITS]) for name, digest in record.outputs])
    return Outcome("\n".join(filter(None, [columns([*rows, *more]), table, "files", files])), {**data, **described})


def _of_what(needs: Iterable[str]) -> str:
    """What keys have of numpy and of weights, in words."""
    kinds = Counter(need.partition(" ")[0] for need in needs)
    return escape(", ".join(f"{kind} of {count} weights" if kind != NUMPY else kind for kind, count in kinds.items()))


def _state(space: Workspace, cache: Cache, record: Record) -> object:
    """The graph, plan or program that a record holds; None if it is something else or some of it is gone."""
    from dlc.base.table import NAMES, Table
    from dlc.cache.step_record import Damaged
    from dlc.driver.codec import Context, decode, decode_table
    from dlc.driver.names_and_weights import numbered, put_back
    from dlc.driver.state_text import op_classes

    kind = dict(record.meta).get("kind")
    if kind is None:
        return None
    objects = dict(record.outputs)

    def read(name: str) -> memoryview | None:
        return cache.view(objects[name]) if name in objects else None

    context = Context(lambda: op_classes(space.registry))
    try:
        table = decode_table(read, context) if NAMES in objects else None
        state = decode(kind, read, tuple(objects), context, table=lambda: table or Table())
        return numbered(state) if table is None else put_back(state, table)
    except Damaged:
        return None


def _object(cache: Cache, found: Match, text: bool, output: Path | None) -> Outcome:
    """A file: its first lines if it is text."""
    content = cache.read(found.digest)
    if content is None:
        raise error(
            "damaged-entry", f"{found.digest} is damaged and was set aside", help="the next build makes it again"
        )
    data: dict[str, Any] = {"kind": "file", "digest": found.digest, "bytes": len(content)}
    head = columns([("file", found.digest), ("size", size(len(content)))])
    if output:
        write_whole(output, content)
        return Outcome(f"{head}\nwritten to {output}", {**data, "output": str(output)})
    try:
        words = content.decode("utf-8")
    except UnicodeDecodeError:
        words = ""
    if not words or "\0" in words:
        return Outcome(f"{head}\nbinary; -o FILE writes it", data)
    lines = words.splitlines()
    if text:
        # Line by line: what stands in a file may hold characters that a terminal acts on.
        return Outcome("\n".join(_shown(line) for line in lines), {**data, "text": words})
    more = f"\n… {len(lines) - _HEAD} more lines (--text)" if len(lines) > _HEAD else ""
    return Outcome("\n".join([head, "", *(_shown(line) for line in lines[:_HEAD])]) + more, {**data, "text": words})


def _shown(line: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else escape(c) for c in line)
