"""What numbers stand for in a graph without names and weights (`dlc.graph.placeholders`), and texts with such numbers.

The brackets around a number are two of Unicode's private characters: no text of dlc has any, so that names that a pass
put together (`⟨1⟩.gradient`), and what it says of its input, get their names back by substitution.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from dlc.base.diagnostics import quote

OPEN, CLOSE = "\ue000", "\ue001"
TOKEN: Final = re.compile(f"{OPEN}(\\d+){CLOSE}")
_ANY: Final = re.compile(f"{TOKEN.pattern}" + r"|\\u(\{?)e000\}?(\d+)\\u\{?e001\}?")
"""A number as it is, or as quoted text has it: of graphs, with braces, else of messages, JSON and Python."""
_ESCAPED_MARK: Final = "e000"


@dataclass(frozen=True)
class Table:
    """What numbers stand for."""

    names: tuple[str, ...] = ()
    inputs: frozenset[int] = frozenset()
    """Which names are names of inputs and parameters."""
    outputs: frozenset[int] = frozenset()
    """Which are names of outputs. All others are of nodes."""
    tensors: tuple[Any, ...] = ()
    """Weights: of type `dlc.graph.Tensor`."""

    def text(self, text: str) -> str:
        """A text with the names that it means; in quoted text they are escaped as the text around them."""
        return _ANY.sub(self._meant, text) if has_tokens(text) else text

    def _meant(self, found: re.Match[str]) -> str:
        number = int(found[1] or found[3])
        if number >= len(self.names):
            return found[0]
        name = self.names[number]
        return name if found[1] else (quoted(name) if found[2] else quote(name))[1:-1]

    @cached_property
    def input_names(self) -> frozenset[str]:
        """Names of inputs and parameters."""
        return frozenset(self.names[k] for k in self.inputs)

    @cached_property
    def output_names(self) -> frozenset[str]:
        """Names of outputs."""
        return frozenset(self.names[k] for k in self.outputs)


NAMES: Final = "names"
"""What the cache calls the names of a table."""


def names_bytes(table: Table) -> bytes:
    """Names without tensors."""
    ports = {"inputs": sorted(table.inputs), "outputs": sorted(table.outputs)}
    return json.dumps({"names": table.names, **ports}, separators=(",", ":")).encode()


def table_of(names: bytes) -> Table:
    """Inverse of `names_bytes`. Raises ValueError, KeyError or TypeError."""
    found = json.loads(names)
    inputs, outputs = (frozenset(map(int, found[key])) for key in ("inputs", "outputs"))
    return Table(tuple(map(str, found["names"])), inputs, outputs)


def token(number: int) -> str:
    """What stands for a name."""
    return f"{OPEN}{number}{CLOSE}"


def has_tokens(text: str) -> bool:
    """Whether `Table.text` may change a text."""
    return OPEN in text or _ESCAPED_MARK in text


def quoted(text: str) -> str:
    """A string literal of graphs in ASCII: everything that is not printable ASCII is escaped."""
    escape = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escape.get(c, c if " " <= c <= "~" else f"\\u{{{ord(c):x}}}") for c in text) + '"'
