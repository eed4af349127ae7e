"""A YAML file as plain values, with the line and column of each: a small, strict part of YAML 1.2.

Nothing is constructed but texts, numbers, truth values, lists and mappings. Tags, anchors, aliases, several documents
and repeated keys are errors, and size and depth are limited, so that a file costs no more than reading it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import yaml

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, error, quote
from dlc.files.inputs import input_bytes

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 24
MAX_DIGITS: Final = 100

Path_: TypeAlias = tuple[str | int, ...]
"""Keys and list positions from the top of a file to a value."""

_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Final = {
    "": None, "~": None, "null": None, "true": True, "false": False,
    ".inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan"),
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a value begins: line and column from 1; of texts, how their characters lie in the file."""

    line: int
    column: int
    block: bool = False
    """Whether it is a literal block, whose lines are those of the file."""


@dataclass(frozen=True)
class Document:
    """The content of one file."""

    name: str
    """How messages call it."""
    text: str
    values: Any
    places: dict[Path_, Place] = field(repr=False)
    keys: dict[Path_, Place] = field(repr=False)
    """Where the key of a value stands, by the path of the value."""

    def location(self, path: Path_, *, key: bool = False) -> Location:
        """Where a value begins, or its key; of what is not there, where the nearest thing around it begins."""
        tables = (self.keys, self.places) if key else (self.places, self.keys)
        for end in range(len(path), -1, -1):
            for table in tables:
                if place := table.get(path[:end]):
                    return Location(self.name, line=place.line, column=place.column)
        return Location(self.name)

    def problem(self, message: str, path: Path_, help: str = "", *, key: bool = False) -> Diagnostic:
        """An error about a value, or its key."""
        return self.diagnostic(message, self.location(path, key=key), help)

    def inside(self, problem: Diagnostic, path: Path_) -> Diagnostic:
        """An error in a text of the file, which has the line and column in that text, with those in the file."""
        place, at = self.places.get(path), problem.location
        if place is None or at is None:
            return self.problem(problem.message, path, problem.help)
        if place.block:
            line = place.line + at.line
            column = self._indent(place.line) + at.column
        else:
            line = place.line
            quoted = self._line(line)[place.column - 1 : place.column] in ("'", '"')
            column = place.column + quoted + at.column - 1 if at.line == 1 else place.column
        return self.diagnostic(problem.message, Location(self.name, line=line, column=column), problem.help)

    def _indent(self, line: int) -> int:
        """Characters in front of a literal block, whose head stands in `line`."""
        rest = self.text.split("\n")[line:]
        first = next((text for text in rest if text.strip()), "")
        return len(first) - len(first.lstrip(" "))

    def diagnostic(self, message: str, at: Location, help: str) -> Diagnostic:
        """An error at a place, with its line."""
        return Diagnostic("op-pack", message, location=at, help=help, source_line=self._line(at.line))

    def _line(self, line: int) -> str:
        lines = self.text.split("\n")
        return lines[line - 1].rstrip("\r") if 0 < line <= len(lines) else ""


def read_document(file: Path) -> Document:
    """The values of a file. Raises DlcError: it cannot be read, is too large, or is not of this part of YAML."""
    try:
        content = input_bytes(file, MAX_BYTES)
    except OSError as problem:
        message = f"{file} cannot be read: {problem.strerror}"
        raise error("op-pack", message, location=Location(str(file)), exit_code=ExitCode.PLUGIN) from None
    return parse_document(content, str(file))


def parse_document(content: bytes, name: str) -> Document:
    """`read_document` of a file's content."""
    if len(content) > MAX_BYTES:
        help = "divide it into several files"
        message = f"the file has more than {MAX_BYTES:,} bytes"
        raise error("op-pack", message, location=Location(name), help=help, exit_code=ExitCode.PLUGIN)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        at = Location(name, byte=problem.start)
        raise error("op-pack", "the file is not UTF-8 text", location=at, exit_code=ExitCode.PLUGIN) from None
    return _Reader(name, text).document()


class _Reader:
    """Builds values from the events of the parser."""

    def __init__(self, name: str, text: str) -> None:
        self.found = Document(name, text, None, {}, {})
        self._events: Iterator[Any] = iter(())

    def document(self) -> Document:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        library: Any = yaml
        self._events = library.parse(self.found.text, loader)
        try:
            values = self._whole()
        except yaml.YAMLError as problem:
            mark = getattr(problem, "problem_mark", None)
            what = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "it cannot be parsed"
            at = (mark.line + 1, mark.column + 1) if mark else (0, 0)
            raise self._error(f"not valid YAML: {what}", *at) from None
        return Document(self.found.name, self.found.text, values, self.found.places, self.found.keys)

    def _whole(self) -> object:
        kinds = ("StreamStartEvent", "DocumentStartEvent")
        event = next(e for e in self._events if type(e).__name__ not in kinds)
        if type(event).__name__ == "StreamEndEvent":
            raise self._error("the file is empty", 1, 1, "an op pack begins with the line `pack: NAME`")
        values = self._value(event, (), 0)
        next(self._events)  # the end of the document
        event = next(self._events)
        if type(event).__name__ != "StreamEndEvent":
            raise self._at(event, "a second document begins here", "write each pack into a file of its own")
        return values

    def _value(self, event: Any, path: Path_, depth: int) -> object:
        kind = type(event).__name__
        if kind == "AliasEvent" or event.anchor:
            raise self._at(event, "anchors and aliases are not allowed", "write the value out")
        if event.tag and event.tag != "!":
            raise self._at(event, f"the tag {quote(event.tag)} is not allowed", "leave it out")
        if depth > MAX_DEPTH:
            raise self._at(event, f"values are nested deeper than {MAX_DEPTH} levels")
        mark = event.start_mark
        block = kind == "ScalarEvent" and event.style == "|"
        self.found.places[path] = Place(mark.line + 1, mark.column + 1, block)
        if kind == "ScalarEvent":
            return self._scalar(event)
        if kind == "SequenceStartEvent":
            items: list[object] = []
            while type(event := next(self._events)).__name__ != "SequenceEndEvent":
                items.append(self._value(event, (*path, len(items)), depth + 1))
            return items
        found: dict[str, object] = {}
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            key = self._key(event, found)
            self.found.keys[*path, key] = Place(event.start_mark.line + 1, event.start_mark.column + 1)
            found[key] = self._value(next(self._events), (*path, key), depth + 1)
        return found

    def _key(self, event: Any, known: dict[str, object]) -> str:
        if type(event).__name__ != "ScalarEvent" or event.anchor or event.tag:
            raise self._at(event, "a key must be a plain text")
        key = cast("str", event.value)
        if key in known:
            raise self._at(event, f"the key {quote(key)} occurs twice")
        return key

    def _scalar(self, event: Any) -> object:
        """Only what is not quoted may be something else than a text."""
        text = cast("str", event.value)
        if event.style:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _FLOAT.fullmatch(text) or _INTEGER.fullmatch(text):
            if len(text) > MAX_DIGITS:
                raise self._at(event, f"a number of {len(text)} characters")
            return int(text) if _INTEGER.fullmatch(text) else float(text)
        return text

    def _at(self, event: Any, message: str, help: str = "") -> DlcError:
        return self._error(message, event.start_mark.line + 1, event.start_mark.column + 1, help)

    def _error(self, message: str, line: int, column: int, help: str = "") -> DlcError:
        at = Location(self.found.name, line=line, column=column)
        return DlcError(self.found.diagnostic(message, at, help), exit_code=ExitCode.PLUGIN)
