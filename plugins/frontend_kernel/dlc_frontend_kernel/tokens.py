"""Tokens of the kernel language, and errors with a place in it.

`//` is floor division behind an operand and begins a comment anywhere else; `#` always begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.lexer import MAX_DIGITS, Token, Tokens
from dlc_frontend_kernel.instead import SIGNS

_SPACE = re.compile(r"(?:[ \t\r\n\f]+|\#[^\n]*)*")
_COMMENT = re.compile(r"//[^\n]*")
_TOKEN = re.compile(
    r"""(?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)
      |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<op>->|//|<=|>=|==|!=|[-+*/%<>=(){}\[\],:;])""",
    re.VERBOSE,
)
MAX_TEXT = 1 << 20
"""Characters of a text: a million are far more than anybody writes."""
MAX_TOKENS = 1 << 16
MAX_WORD = 200


class KernelTokens(Tokens):
    """A cursor over the tokens of a kernel text."""

    def _scan(self) -> list[Token]:
        if len(self.text) > MAX_TEXT:
            raise self.fault("too-large", f"a text of {len(self.text):,} characters; the limit is {MAX_TEXT:,}", 0)
        out: list[Token] = []
        at = self._skip(0, out)
        while at < len(self.text):
            m = _TOKEN.match(self.text, at)
            if m is None:
                raise self._stray(at)
            kind = m.lastgroup or ""
            self._check(kind, m[0], at)
            out.append(Token(kind, m[0], at))
            if len(out) > MAX_TOKENS:
                raise self.fault("too-large", f"more than {MAX_TOKENS:,} words, numbers and signs", at)
            at = self._skip(m.end(), out)
        out.append(Token("end", "", len(self.text)))
        return out

    def _skip(self, at: int, before: list[Token]) -> int:
        """The offset behind white space and comments."""
        while True:
            m = _SPACE.match(self.text, at)
            start = m.end() if m else at
            comment = None if before and _is_operand(before[-1]) else _COMMENT.match(self.text, start)
            if comment is None:
                return start
            at = comment.end()

    def _stray(self, at: int) -> DlcError:
        """The error of a character that begins nothing."""
        if self.text[at] in SIGNS:
            message, instead = SIGNS[self.text[at]]
            return self.fail(message, at, f"write {instead}")
        return self.fail(f"unexpected character {self.text[at]!r}", at, "a comment starts with #")

    def _check(self, kind: str, text: str, at: int) -> None:
        if kind == "number" and len(text) > MAX_DIGITS:
            raise self.fault("too-large", f"a number of {len(text)} characters", at)
        if kind == "word" and len(text) > MAX_WORD:
            raise self.fault("too-large", f"a name of {len(text)} characters; the limit is {MAX_WORD}", at)
        if kind == "number" and len(text) > 1 and text[0] == "0" and text[1].isdigit():
            raise self.fail(f"the number {text} begins with 0", at, f"write {text.lstrip('0') or '0'}")

    @property
    def following(self) -> list[Token]:
        """The current token and a few behind it."""
        return self._tokens[self._at : self._at + 40]

    def split(self) -> None:
        """Make of the current `>=` a `>` and a `=`: in `A<1>=…` the first closes a shape."""
        token = self.current
        self._tokens[self._at : self._at + 1] = [Token("op", ">", token.offset), Token("op", "=", token.offset + 1)]

    def line_of(self, offset: int) -> int:
        """The line of an offset, from 1."""
        return self.text.count("\n", 0, offset) + 1

    def fault(self, code: str, message: str, offset: int, help: str = "", notes: Iterable[str] = ()) -> DlcError:
        """An error about what the text means, with the place as for syntax errors."""
        (found,) = self.fail(message, offset, help, tuple(notes)).diagnostics
        exit_code = ExitCode.LIMIT if code == "too-large" else ExitCode.MODEL
        return DlcError(replace(found, code=code), exit_code=exit_code)


def _is_operand(token: Token) -> bool:
    return token.kind in ("number", "word") or token.text in (")", "]", ">")
