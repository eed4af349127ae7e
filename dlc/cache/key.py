"""The key of a step: labelled lines of text whose SHA-256 names the result.

The text is kept beside the result, so "why was this a miss?" is a comparison of two texts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import zip_longest

_LABEL = re.compile(r"[a-z][a-z0-9_.-]*")
_ESCAPE = re.compile(r"\\(?:\\|n|r|t|u\{([0-9a-f]{1,6})\})")
_NAMED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SHOWN = 120  # characters of a value that a diff line shows


@dataclass(frozen=True)
class Key:
    """What a result depends on, in order: `("step", "fuse{max-nests=8}"), ("input", "graph 3f2a…")`.

    Labels are `[a-z][a-z0-9_.-]*` and may repeat; values are any text. Raises ValueError for a bad label.
    """

    lines: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        for label, _ in self.lines:
            if not _LABEL.fullmatch(label):
                raise ValueError(f"key label {label!r} is not of the form [a-z][a-z0-9_.-]*")

    @classmethod
    def of(cls, **values: str) -> Key:
        """A key with one line per keyword, in call order: `Key.of(step="fuse{}", input="graph 3f2a")`."""
        return cls(tuple(values.items()))

    @classmethod
    def parse(cls, text: str) -> Key:
        """The key whose `text` this is. Raises ValueError if no key prints so."""
        lines: list[tuple[str, str]] = []
        if text and not text.endswith("\n"):
            raise ValueError("key text does not end with a newline")
        for line in text.split("\n")[:-1]:
            label, gap, value = line.partition("  ")
            if not gap:
                raise ValueError(f"key line {line!r} has no two spaces after its label")
            lines.append((label, _unescape(value)))
        key = cls(tuple(lines))
        if key.text != text:
            raise ValueError("key text is not in its canonical form")
        return key

    @cached_property
    def text(self) -> str:
        """`label  value` lines. Values are escaped so that no value can imitate a line break or another line:
        a label holds no space, the first two spaces end it, and only a real line end is a newline."""
        return "".join(f"{label}  {_escape(value)}\n" for label, value in self.lines)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `text`, 64 lower-case hex digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def value(self, label: str) -> str:
        """The first value under `label`, or the empty string."""
        return next((value for name, value in self.lines if name == label), "")

    @property
    def step_name(self) -> str:
        """The name part of the `step` line: `fuse` of `fuse{max-nests=8}`."""
        return self.value("step").partition("{")[0].strip()


def equal_lines(old: Key, new: Key) -> int:
    """How many lines the two keys share, in order."""
    return sum(block.size for block in SequenceMatcher(None, old.lines, new.lines, False).get_matching_blocks())


def diff_keys(old: Key, new: Key) -> tuple[str, ...]:
    """The lines in which two keys differ, ready to print.

    `code: dlc 0.1.0 91be → dlc 0.1.1 77aa` for a changed value; `+ label: value` and `- label: value` for lines that
    only the new or only the old key has. Equal keys give the empty tuple.
    """
    matcher = SequenceMatcher(None, old.lines, new.lines, False)
    shown: list[str] = []
    for operation, a, b, c, d in matcher.get_opcodes():
        if operation != "equal":
            shown.extend(_diff_block(old.lines[a:b], new.lines[c:d]))
    return tuple(shown)


def _diff_block(old: tuple[tuple[str, str], ...], new: tuple[tuple[str, str], ...]) -> Iterator[str]:
    labels = dict.fromkeys([label for label, _ in old] + [label for label, _ in new])
    for label in labels:
        befores = [value for name, value in old if name == label]
        afters = [value for name, value in new if name == label]
        for before, after in zip_longest(befores, afters):
            if before == after:  # same label and value, but in another place
                yield f"{label}: moved: {_window(_escape(after), 0)}"
            elif before is None:
                yield f"+ {label}: {_window(_escape(after), 0)}"
            elif after is None:
                yield f"- {label}: {_window(_escape(before), 0)}"
            else:
                a, b = _escape(before), _escape(after)
                start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
                yield f"{label}: {_window(a, start)} → {_window(b, start)}"


def _window(text: str, around: int) -> str:
    """At most `_SHOWN` characters of `text` that include position `around`; cuts are marked."""
    if len(text) <= _SHOWN:
        return text
    begin = max(0, min(around - _SHOWN // 4, len(text) - _SHOWN))
    end = begin + _SHOWN
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")


def _escape(value: str) -> str:
    # Unprintable characters include controls, bidi marks and lone surrogates: none may reach a terminal or UTF-8.
    if value.isprintable() and "\\" not in value:
        return value
    return "".join(_NAMED.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in value)


def _unescape(value: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        return {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}[match[0][1]]

    return _ESCAPE.sub(one, value)
