"""States of a build without names and weights (`dlc.graph.placeholders`): their keys, records and messages.

    parse ──> state + table ──pass──> state + the same table ── … ──emit──> files
                                │
                                └ reads weights: the new ones that it makes are added to the table

A step sees the state. What it read of the table is noted while it runs, and is then in its key (`lines_of`): until it
has run once nobody knows, so the record under the key without says what else to ask with (`NEEDS`). A step that looks
at names works on the state with them, and has them, and weights, in its key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar, cast

from dlc.base.diagnostics import DlcError
from dlc.base.libraries import versions
from dlc.base.report import Report
from dlc.base.table import Table, has_tokens
from dlc.base.uses import NUMPY, UNIFORM, WEIGHT
from dlc.cache.envelope import Damaged
from dlc.cache.record import NEEDS, Record
from dlc.cache.step_record import Handle, PartDigests, Placeholders

T = TypeVar("T")
Lines = tuple[tuple[str, str], ...]


@dataclass
class LeftOut:
    """What a state is without."""

    load: Callable[[], Table]
    placeholders: Placeholders | None = None
    """What its record says of it; None: it is as the table was made."""

    @cached_property
    def table(self) -> Table:
        """The names and the weights."""
        return self.load()

    def put_back(self, state: Any) -> Any:
        """The state as it is with names and weights. Raises DlcError where these cannot be read."""
        from dlc.driver.names_and_weights import put_back  # a build that finds all it needs imports no graphs

        return put_back(state, self.table)

    def has(self, words: frozenset[str]) -> bool:
        """Whether the model has an input, output or parameter of one of these names."""
        return not words.isdisjoint(self.table.input_names | self.table.output_names) if words else False

    def clashes(self, made: Placeholders) -> bool:
        """Whether names that a step made are names of the model: it might have chosen others, had it seen them.

        What it calls an input without regard to the model, as `loss`, may be an output too, and the reverse.
        """
        inputs = made.inputs - (self.placeholders.inputs if self.placeholders else frozenset())
        outputs = made.outputs - (self.placeholders.outputs if self.placeholders else frozenset())
        if not inputs and not outputs:
            return False
        table = self.table
        both = table.input_names | table.output_names
        return _clash(made.inputs, inputs, table, table.input_names, both) or _clash(
            made.outputs, outputs, table, table.output_names, both
        )


def _clash(made: frozenset[str], new: frozenset[str], table: Table, own: frozenset[str], both: frozenset[str]) -> bool:
    if len(set(map(table.text, made))) < len(made):
        return True
    return any(table.text(name) in (both if has_tokens(name) else own) for name in new)


# ---- what steps read ----
def needs_of(record: Record) -> frozenset[str] | None:
    """What else a key has to have, where a record says that; None where it is that of a result."""
    text = dict(record.meta).get(NEEDS)
    return None if text is None else frozenset(cast("list[str]", json.loads(text)))


def needs_meta(needs: Iterable[str]) -> dict[str, str]:
    """The meta of a record that says what else a key has to have."""
    return {NEEDS: json.dumps(sorted(needs))}


def lines_of(needs: Iterable[str], table: Table) -> Lines:
    """Key lines for what a step read. Raises Damaged where a record asks for what this table has not."""
    kinds: dict[str, list[int]] = {}
    for need in sorted(needs):
        kind, _, number = need.partition(" ")
        if kind not in (NUMPY, WEIGHT, UNIFORM) or (kind != NUMPY and not number.isdecimal()):
            raise Damaged(f"a record needs {need!r}")
        kinds.setdefault(kind, []).extend([int(number)] if number else [])
        if number and int(number) >= len(table.tensors):
            raise Damaged(f"a record needs weight {number} of {len(table.tensors)}")
    lines: list[tuple[str, str]] = []
    if NUMPY in kinds:
        lines.append(("library", versions((NUMPY,))))
    if numbers := sorted(kinds.get(WEIGHT, ())):
        parts = (part for n in numbers for part in (str(n), table.tensors[n].digest))
        lines.append(("weights", f"{len(numbers)} read {digest_of(parts)}"))
    if numbers := sorted(set(kinds.get(UNIFORM, ())) - set(kinds.get(WEIGHT, ()))):
        parts = (part for n in numbers for part in (str(n), _uniform(table.tensors[n])))
        lines.append(("uniform", f"{len(numbers)} asked {digest_of(parts)}"))
    return tuple(lines)


def _uniform(tensor: Any) -> str:
    found = tensor.repeated()
    return "no" if found is None else found.tobytes().hex()


def digest_of(parts: Iterable[str]) -> str:
    """A digest of texts, 32 hex digits."""
    h = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        h.update(f"{len(data)} ".encode())
        h.update(data)
    return h.hexdigest()


def with_added(parts: PartDigests, added: str) -> PartDigests:
    """Digests of a table with tensors that have the digest `added` more; "" for none."""
    if not added:
        return parts
    return tuple((label, digest_of((d, added)) if label == "weights" else d) for label, d in parts)


def restored(handle: Handle[T], given: Handle[Any], table: Callable[[Table | None], Table]) -> Handle[T]:
    """The handle of a state that a record tells of, with its table.

    Args:
        handle: Without.
        given: What the step was given.
        table: The record's own table; of a given one, that with what the record adds.
    """
    placeholders = handle.placeholders
    if placeholders is None:
        return handle
    if placeholders.own:
        return replace(handle, left_out=LeftOut(lambda: table(None)))
    if not isinstance(given.left_out, LeftOut):
        raise Damaged("a record of a state without names, of one that had them")
    parts, left_out = of_given(placeholders, given, given.left_out, table)
    return replace(handle, part_digests=parts, left_out=left_out)


def of_given(
    placeholders: Placeholders, given: Handle[Any], left_out: LeftOut, more: Callable[[Table], Table]
) -> tuple[PartDigests, LeftOut]:
    """Digests and table of a state whose names and weights are those of the state before, `more` added."""
    load = (lambda: more(left_out.table)) if placeholders.added else (lambda: left_out.table)
    return with_added(given.part_digests, placeholders.added), LeftOut(load, placeholders)


# ---- what steps say ----
def told(problem: DlcError, table: Callable[[], Table]) -> DlcError:
    """An error of a step with the names that it means."""
    if not any(map(_has_tokens, problem.diagnostics)):
        return problem
    found = DlcError(*(_told(d, table()) for d in problem.diagnostics), exit_code=problem.exit_code)
    return found.with_traceback(problem.__traceback__)


def told_report(report: Report, table: Callable[[], Table]) -> Report:
    """The same of a report."""
    said = (report.misses, report.notes, report.warnings, report.jobs, report.counts)
    if not _has_tokens(said):
        return report
    misses, notes, warnings, jobs, counts = _told(said, table())
    return replace(report, misses=misses, notes=notes, warnings=warnings, jobs=jobs, counts=counts)


def _has_tokens(value: object) -> bool:
    match value:
        case str():
            return has_tokens(value)
        case list() | tuple():
            return any(map(_has_tokens, cast("Iterable[object]", value)))
        case dict():
            return any(map(_has_tokens, cast("Mapping[object, object]", value)))
        case _:
            return is_dataclass(value) and any(_has_tokens(getattr(value, f.name)) for f in fields(value))


def _told(value: T, table: Table) -> T:
    found: Any = value
    match value:
        case str():
            found = table.text(value)
        case list():
            found = [_told(v, table) for v in cast("list[object]", value)]
        case tuple():
            found = tuple(_told(v, table) for v in cast("tuple[object, ...]", value))
        case dict():
            found = {_told(k, table): v for k, v in cast("dict[object, object]", value).items()}
        case _ if is_dataclass(value) and not isinstance(value, type):
            found = replace(cast("Any", value), **{f.name: _told(getattr(value, f.name), table) for f in fields(value)})
        case _:
            pass
    return cast("T", found)
