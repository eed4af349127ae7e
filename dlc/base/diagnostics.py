"""What dlc tells its user: a Diagnostic is a value, rendered in one place.

Every field may hold text from a hostile model (names with newlines, quotes, bidirectional marks), so nothing reaches a
terminal except through `escape`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

_FIELD_LIMIT = 1000
"""Characters of one field that are shown; a hostile name can be megabytes long."""

NODES_SHOWN = 5
"""Nodes that text names; JSON has all of them."""

_LINE_WINDOW = 160
"""Characters of a source line that are shown around its caret."""

_COLOURS = {"error": "31", "warning": "33", "note": "36"}
_SHORT_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


class ExitCode(IntEnum):
    """Exit status of the command line; documented, so numbers never change."""

    OK = 0
    """Success."""
    MODEL = 1
    """The model cannot be compiled, or the program cannot be written."""
    USAGE = 2
    """The command line, the configuration or an input file is wrong."""
    MISMATCH = 3
    """A comparison or a check found a difference."""
    LIMIT = 4
    """A limit is exceeded: the size of a tensor or of the arena, the budget of a build."""
    TOOL = 5
    """Another program is missing or failed: a compiler."""
    PLUGIN = 6
    """Error in a plugin."""
    CACHE_MISS = 7
    """A result was to come from the cache, and is not there."""
    BUG = 70
    """Internal error of dlc."""
    INTERRUPTED = 130
    """Interrupted from the keyboard."""


@dataclass(frozen=True)
class Location:
    """A place in the user's input. Lines and columns count from 1, bytes from 0; 0, -1 and "" mean unknown."""

    source: str = ""
    """File name, flag or other name of the text."""
    node: str = ""
    """Name of the node in the model, as its author wrote it."""
    line: int = 0
    """Line in the source, from 1."""
    column: int = 0
    """Column in characters, from 1."""
    byte: int = -1
    """Offset in a binary source."""

    def __str__(self) -> str:
        """`model.onnx:3:7: node "fc1/MatMul"`, with what is known."""
        place = escape(self.source)
        details: list[str] = []
        if self.line > 0:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
            place += f":{self.column}" if self.column > 0 else ""
        elif self.column > 0:
            details.append(f"column {self.column}")
        if self.byte >= 0:
            details.append(f"byte {self.byte}")
        if self.node:
            details.append(f"node {quote(self.node)}")
        return ": ".join([*([place] if place else []), *details])


@dataclass(frozen=True)
class Diagnostic:
    """One message to the user: what, where, the numbers, and what to do."""

    code: str
    """Kebab word that tools can match: "shape", "unsupported-op", "truncated-file"."""
    message: str
    """One sentence with the names and numbers involved."""
    severity: str = "error"
    """error | warning | note."""
    location: Location | None = None
    """Where in the user's input."""
    notes: tuple[str, ...] = ()
    """Further facts, a line each."""
    help: str = ""
    """What the user can do."""
    source_line: str = ""
    """Text shown under the message, with a caret below character `location.column`."""
    nodes: tuple[str, ...] = ()
    """All nodes of the model that it is about, where there may be several; text shows the first few."""


class DlcError(Exception):
    """The only exception meant for the user: one or more diagnostics and the exit code they lead to."""

    def __init__(self, *diagnostics: Diagnostic, exit_code: ExitCode = ExitCode.MODEL) -> None:
        """Carry `diagnostics` (at least one)."""
        super().__init__(*diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics
        """What is wrong, in the order of the messages."""
        self.exit_code: ExitCode = exit_code
        """What the command ends with."""

    def __str__(self) -> str:
        """Every diagnostic, rendered without colour."""
        return "\n".join(render(d) for d in self.diagnostics)


def error(
    code: str,
    message: str,
    *,
    location: Location | None = None,
    notes: Iterable[str] = (),
    help: str = "",
    source_line: str = "",
    exit_code: ExitCode = ExitCode.MODEL,
) -> DlcError:
    """Return (not raise) a DlcError with one error.

    Args:
        code: Kebab word that tools can match, which the package explains (`dlc explain`).
        message: One sentence with the names and numbers involved; any text may come from a hostile model.
        location: Where in the user's input.
        notes: Further facts, a line each.
        help: What the user can do.
        source_line: Text shown under the message, with a caret below character `location.column`.
        exit_code: What the command ends with.

    Returns:
        The exception, to be raised.
    """
    diagnostic = Diagnostic(code, message, location=location, notes=tuple(notes), help=help, source_line=source_line)
    return DlcError(diagnostic, exit_code=exit_code)


def escape(text: str) -> str:
    """`text` on one line, printable, in logical order: control, format, bidi and unassigned characters as escapes."""
    shown = "".join(_escaped(c) for c in text[:_FIELD_LIMIT])
    left = len(text) - _FIELD_LIMIT
    return f"{shown}… ({left} more characters)" if left > 0 else shown


def quote(name: str) -> str:
    """`name` in double quotes, escaped, so that its end can be seen."""
    return '"' + escape(name.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word closest to `word`, or "" when none is close."""
    import difflib  # only errors need it, and it costs start-up time

    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return close[0] if close else ""


def did_you_mean(word: str, known: Iterable[str], kind: str = "known") -> str:
    """Help text for an unknown name: the nearest one, or else all of them."""
    names = sorted(set(known))
    if close := nearest(word, names):
        return f"did you mean {close}?"
    return f"{kind}: {', '.join(names)}" if names else f"{kind}: none"


def render(d: Diagnostic, color: bool = False) -> str:
    """`d` as the lines a terminal shows, without a final newline."""
    head = f"{d.severity}[{escape(d.code)}]"
    if color:
        head = f"\x1b[1;{_COLOURS.get(d.severity, '31')}m{head}\x1b[0m"
    lines = [f"{head}: {escape(d.message)}"]
    column = d.location.column if d.location else 0
    if d.source_line:
        lines += _source_lines(d.source_line, column)
    if d.location and (place := str(d.location)):
        lines.append(f"  from  {place}")
    if d.nodes:
        left = len(d.nodes) - NODES_SHOWN
        more = f" and {left} more" if left > 0 else ""
        lines.append(f"  note  nodes: {', '.join(map(escape, d.nodes[:NODES_SHOWN]))}{more}")
    lines += [f"  note  {escape(note)}" for note in d.notes]
    if d.help:
        lines.append(f"  help  {escape(d.help)}")
    return "\n".join(lines)


def to_json(d: Diagnostic) -> dict[str, object]:
    """`d` as a JSON object; unknown parts of the location are left out. Text is unescaped: JSON has its own escapes."""
    result: dict[str, object] = {"code": d.code, "severity": d.severity, "message": d.message}
    if d.location:
        at = d.location
        place: dict[str, object] = {"source": at.source, "node": at.node, "line": at.line, "column": at.column}
        place = {key: value for key, value in place.items() if value}
        if at.byte >= 0:
            place["byte"] = at.byte
        result["location"] = place
    if d.nodes:
        result["nodes"] = list(d.nodes)
    if d.notes:
        result["notes"] = list(d.notes)
    if d.help:
        result["help"] = d.help
    if d.source_line:
        result["source_line"] = d.source_line
    return result


def of_json(values: Mapping[str, Any]) -> Diagnostic:
    """The inverse of `to_json`; raises what wrong types raise."""
    place = values.get("location")
    location = Location(**{k: type(getattr(Location(), k))(v) for k, v in place.items()}) if place else None
    return Diagnostic(
        str(values["code"]),
        str(values["message"]),
        str(values["severity"]),
        location,
        tuple(map(str, values.get("notes", ()))),
        str(values.get("help", "")),
        str(values.get("source_line", "")),
        tuple(map(str, values.get("nodes", ()))),
    )


def _escaped(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _source_lines(line: str, column: int) -> list[str]:
    """The line, cut around the caret when it is long, and the caret's own line."""
    start = max(0, min(column - 1 - _LINE_WINDOW // 2, len(line) - _LINE_WINDOW)) if column > 0 else 0
    shown = line[start : start + _LINE_WINDOW]
    before = "…" if start else ""
    after = "…" if start + _LINE_WINDOW < len(line) else ""
    lines = ["  " + before + escape(shown) + after]
    if column > 0:
        prefix = before + escape(shown[: column - 1 - start])
        lines.append("  " + " " * sum(_width(c) for c in prefix) + "^")
    return lines


def _width(character: str) -> int:
    """Terminal cells of one character, so that the caret stands under its text."""
    if character.isascii():
        return 1
    import unicodedata  # a library of its own, which start-up would pay for

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
