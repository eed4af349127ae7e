"""Tokens of `.dlc` text, with spans: shared by the parsers of kernels, loops and graphs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from dlc.base.diagnostics import Diagnostic, DlcError, Location

T = TypeVar("T")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<number>(?:[0-9]+\.(?!\.)[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)
      |(?P<value>%[A-Za-z0-9_.]+)
      |(?P<kernel>@[A-Za-z0-9_]+)
      |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<op>->|\.\.\.|\.\.|//|<=|>=|==|!=|\+=|\*=|[-+*/%<>=(){}\[\],:|])""",
    re.VERBOSE,
)

# Longer numbers are no number of a model, and Python refuses to convert much longer ones.
MAX_DIGITS = 100
# A hostile file must not exhaust the interpreter's stack: deeper nesting than any real expression is refused.
MAX_DEPTH = 200


class Token(NamedTuple):
    """kind is one of: string number value kernel word op end."""

    kind: str
    text: str
    offset: int


class Tokens:
    """A cursor over the tokens of a text; every complaint has line, column and the source line."""

    def __init__(self, text: str, source: str = "<text>") -> None:
        self.text, self.source = text, source
        self._tokens = self._scan()
        self._at = 0

    def _scan(self) -> list[Token]:
        out: list[Token] = []
        at = 0
        while at < len(self.text):
            m = _TOKEN.match(self.text, at)
            if m is None:
                help = "names of models stand in double quotes; a comment starts with #"
                raise self.fail(f"unexpected character {self.text[at]!r}", at, help)
            kind = m.lastgroup or ""
            if kind == "number" and len(m[0]) > MAX_DIGITS:
                raise self.fail(f"a number of {len(m[0])} characters", at)
            if kind != "space":
                out.append(Token(kind, m[0], at))
            at = m.end()
        out.append(Token("end", "", len(self.text)))
        return out

    @property
    def current(self) -> Token:
        return self._tokens[self._at]

    @property
    def ahead(self) -> str:
        """Text of the token behind the current one."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)].text

    def peek(self, text: str) -> bool:
        """Whether the next token is this punctuation or word."""
        return self.current.text == text and self.current.kind in ("op", "word")

    def take(self) -> Token:
        """The next token, consumed (the end is never consumed)."""
        token = self.current
        if token.kind != "end":
            self._at += 1
        return token

    def accept(self, text: str) -> bool:
        """Consume the next token if it is this punctuation or word."""
        if self.peek(text):
            self._at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        """Consume this punctuation or word, or complain."""
        if not self.peek(text):
            raise self.unexpected(f"'{text}'")
        return self.take()

    def kind(self, kind: str, what: str) -> Token:
        """Consume a token of a kind, or complain that `what` was expected."""
        if self.current.kind != kind:
            raise self.unexpected(what)
        return self.take()

    def integer(self, what: str = "an integer") -> int:
        """Consume an optionally negative integer."""
        sign = -1 if self.accept("-") else 1
        token = self.kind("number", what)
        if not token.text.isdigit():
            raise self.fail(f"expected {what}, found '{token.text}'", token.offset)
        return sign * int(token.text)

    @property
    def column(self) -> int:
        """How many characters stand before the current token in its line; -1 at the end of the text."""
        at = self.current.offset
        return -1 if self.current.kind == "end" else at - self.text.rfind("\n", 0, at) - 1

    def extent(self, what: str) -> int:
        """Consume a size: an integer that is not negative."""
        start = self.current.offset
        value = self.integer(what)
        if value < 0:
            raise self.fail(f"expected {what}, found {value}", start, "it is a whole number from 0 up")
        return value

    def dims_ahead(self) -> bool:
        """Whether the brackets that come next hold something else than numbers and commas."""
        for token in itertools.islice(self._tokens, self._at + 1, None):
            if token.text == "]" or token.kind == "end":
                return False
            if token.kind != "number" and token.text not in (",", "-"):
                return True
        return False

    def until(self, closing: str) -> str:
        """The text up to a punctuation, which is consumed too; spaces are left out."""
        start = self.current.offset
        while not self.peek(closing):
            if self.take().kind == "end":
                raise self.unexpected(f"'{closing}'")
        end = self.expect(closing).offset
        return "".join(self.text[start:end].split())

    def items_ahead(self) -> list[tuple[Token, ...]]:
        """What stands between commas in the brackets behind the current token; nothing is consumed."""
        items: list[tuple[Token, ...]] = []
        item: list[Token] = []
        depth = 0
        for token in itertools.islice(self._tokens, self._at + 1, None):
            depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
            if depth == 0 or token.kind == "end":
                return [*items, tuple(item)]
            if token.text == "," and depth == 1:
                items.append(tuple(item))
                item = []
            elif depth > 1 or token.text != "[":
                item.append(token)
        return items

    def listed(self, opening: str, closing: str, item: Callable[[], T]) -> list[T]:
        """Consume items, read by `item`, with commas between them, inside brackets."""
        self.expect(opening)
        out: list[T] = []
        while not self.accept(closing):
            out.append(item())
            if not self.peek(closing):
                self.expect(",")
        return out

    def unexpected(self, what: str, help: str = "") -> DlcError:
        """The error that something else was expected here."""
        found = "the end of the text" if self.current.kind == "end" else f"'{self.current.text}'"
        return self.fail(f"expected {what}, found {found}", self.current.offset, help)

    def fail(self, message: str, offset: int | None = None, help: str = "", notes: tuple[str, ...] = ()) -> DlcError:
        """An error at an offset (default: the current token), perhaps with further facts and what to do."""
        at = self.current.offset if offset is None else offset
        before = self.text[:at]
        line = before.count("\n") + 1
        start = before.rfind("\n") + 1
        end = self.text.find("\n", at)
        text = self.text[start : end if end >= 0 else len(self.text)]
        location = Location(self.source, line=line, column=at - start + 1)
        # As much of the line as the caret needs: a hostile line may be as long as the file.
        text = text[: at - start + 200]
        return DlcError(Diagnostic("syntax", message, "error", location, notes, help, text))
