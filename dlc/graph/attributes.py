"""Attribute values read from `.dlc` text: the inverse of `attr_text`, and of constants written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dlc.base.diagnostics import did_you_mean
from dlc.base.extent_text import parse
from dlc.base.lexer import MAX_DEPTH, Tokens
from dlc.base.types import DTYPES, Type
from dlc.graph.tensor import Tensor
from dlc.kernel.kernel import Kernel
from dlc.kernel.text import read_type

Lookup = Callable[[Type, str], Tensor | None]
"""Finds a constant that is not written out, by type and digest."""
_LITERALS: Mapping[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "inf": float("inf"),
    "nan": float("nan"),
}


class AttributeReader:
    """Reads one value at a time from a token stream."""

    def __init__(self, tokens: Tokens, kernels: Mapping[str, Kernel], tensors: Lookup) -> None:
        self._tokens, self._kernels, self._tensors = tokens, kernels, tensors

    def value(self, depth: int = 0) -> Any:
        """One attribute value."""
        tokens = self._tokens
        if depth > MAX_DEPTH:
            raise tokens.fail(f"attribute nested deeper than {MAX_DEPTH}")
        if tokens.peek("("):
            return tuple(tokens.listed("(", ")", lambda: self.value(depth + 1)))
        if tokens.accept("<"):
            start = tokens.current.offset
            try:
                return parse(tokens.until(">"))
            except ValueError as problem:
                raise tokens.fail(str(problem), start) from None
        match tokens.current.kind:
            case "string":
                return self.string()
            case "number" | "op":
                return self._number()
            case "kernel":
                return self.kernel()
            case _:
                return self._word()

    def kernel(self) -> Kernel:
        """A kernel by its name."""
        token = self._tokens.kind("kernel", "a kernel's name")
        if token.text not in self._kernels:
            help = did_you_mean(token.text, self._kernels, "kernels above")
            raise self._tokens.fail(f"kernel {token.text} is not defined above", token.offset, help)
        return self._kernels[token.text]

    def string(self) -> str:
        """A quoted name, unquoted."""
        token = self._tokens.kind("string", "a quoted name")
        try:
            return unquote(token.text)
        except (ValueError, OverflowError):
            help = "a character is written \\u{41}, in hexadecimal, at most \\u{10ffff}"
            raise self._tokens.fail("a character code that does not exist", token.offset, help) from None

    def _number(self) -> int | float:
        sign = -1 if self._tokens.accept("-") else 1
        if self._tokens.accept("inf"):
            return sign * float("inf")
        text = self._tokens.kind("number", "a value").text
        return sign * (int(text) if text.isdigit() else float(text))

    def _word(self) -> Any:
        tokens = self._tokens
        word, start = tokens.current.text, tokens.current.offset
        if word in _LITERALS:
            tokens.take()
            return _LITERALS[word]
        if word not in DTYPES:
            raise tokens.unexpected("an attribute value", 'numbers, (lists), "text", true, false, none and types are')
        if tokens.text[start + len(word) : start + len(word) + 1] != "[":
            tokens.take()
            return DTYPES[word]
        of = read_type(tokens)
        if tokens.peek("{"):
            return self._inline(of, start)
        return self._stored(of, start) if tokens.accept(":") else of

    def _inline(self, of: Type, start: int) -> Tensor:
        values: list[Any] = self._tokens.listed("{", "}", self.value)
        if len(values) != of.size:
            raise self._tokens.fail(f"{of} has {of.size} elements, found {len(values)}", start)
        try:
            return Tensor.of(np.array(values, of.dtype.numpy).reshape(of.shape), of.dtype)
        except (TypeError, ValueError, OverflowError) as e:
            raise self._tokens.fail(f"not elements of {of}: {e}", start) from None

    def _stored(self, of: Type, start: int) -> Tensor:
        digest = ""
        # A digest may scan as several tokens (digits, then a word): take them until 32 characters are there.
        while len(digest) < 32 and self._tokens.current.kind in ("number", "word"):
            digest += self._tokens.take().text
        found = self._tensors(of, digest)
        if found is None:
            help = "the text of a graph names large constants by digest; their values stay in the model or the cache"
            raise self._tokens.fail(f"constant {of}:{digest} is not at hand", start, help)
        return found


def unquote(text: str) -> str:
    """The inverse of `quote`.

    Raises:
        ValueError, OverflowError: an escape names no character.
    """
    out: list[str] = []
    rest = text[1:-1]
    while rest:
        if rest.startswith("\\u{"):
            code, _, rest = rest[3:].partition("}")
            out.append(chr(int(code, 16)))
        elif rest[0] == "\\":
            out.append({"n": "\n", "t": "\t", "r": "\r"}.get(rest[1], rest[1]))
            rest = rest[2:]
        else:
            plain = rest.split("\\", 1)[0]
            out.append(plain)
            rest = rest[len(plain) :]
    return "".join(out)
