"""Reads loops from text as `dlc.kernel.loops.print` writes it, so that a test of a schedule is a text.

What is inside a loop, a condition or a block stands deeper than it, as in Python; statements of one body stand equally
deep. A name means what the nearest loop or declaration around it says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlc.base.lexer import MAX_DEPTH, Tokens
from dlc.kernel.expr import Axis, Const, Expr, Load
from dlc.kernel.loops.program import (
    PREFETCH_HINTS,
    Block,
    Buffer,
    Dots,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Local,
    LoopProgram,
    Pick,
    Prefetch,
    Set,
    Shuffle,
    Stmt,
    Store,
    Words,
)
from dlc.kernel.nest import Param
from dlc.kernel.read_expr import ExprReader
from dlc.kernel.scalar import SCALARS
from dlc.kernel.text import dtype_of_word, read_type

_VARIABLE = re.compile(r"(\w+?)(?:x([0-9]+))?")


def parse_loops(text: str, source: str = "<text>") -> LoopProgram:
    """The inverse of `print_loops`.

    Raises:
        DlcError: syntax errors with line, column and what was expected.
    """
    tokens = Tokens(text, source)
    tokens.expect("loops")
    tensors: dict[str, Param] = {}
    params = _read_tensors(tokens, tensors)
    tokens.expect("->")
    results = _read_tensors(tokens, tensors)
    aligned = tokens.accept("aligned")
    tokens.expect("{")
    program = _Reader(tokens, tensors).program(params, results, aligned)
    tokens.kind("end", "the end of the text")
    return program


def _read_tensors(tokens: Tokens, tensors: dict[str, Param]) -> tuple[Param, ...]:
    def read() -> Param:
        name = _new_name(tokens, tensors)
        tokens.expect(":")
        type = read_type(tokens)
        stored = None
        if tokens.accept("stored"):
            tokens.expect("as")
            word = tokens.kind("word", "an element type")
            stored = dtype_of_word(tokens, word, word.text)
        tensors[name] = Param(name, type, stored, tokens.accept("packed"))
        return tensors[name]

    return tuple(tokens.listed("(", ")", read))


def _new_name(tokens: Tokens, tensors: Mapping[str, Param]) -> str:
    word = tokens.kind("word", "a name")
    if word.text in tensors:
        raise tokens.fail(f"the name {word.text} is taken", word.offset)
    return word.text


class _Exprs(ExprReader):
    """Expressions of loops: one subscript for every tensor, vectors, and their sums."""

    def element(self, name: str, depth: int) -> Expr:
        tokens = self._tokens
        tokens.expect("[")
        load = Load(name, (self.expr(1, depth),))
        lanes, step, words = 1, 1, False
        if tokens.accept(".."):
            tokens.expect("+")
            lanes = tokens.extent("a number of elements")
            words = tokens.accept("words")
            step = tokens.extent("a number of elements") if tokens.accept("by") else 1
        tokens.expect("]")
        if words:
            return Words(load, lanes, step)
        return Lanes(load, lanes, step) if lanes > 1 else load

    def atom(self, depth: int) -> Expr:
        fn = self._tokens.current.text
        if (fn not in SCALARS and fn not in ("dots", "shuffle", "pick")) or self._tokens.ahead != "of":
            return super().atom(depth)
        self._tokens.take()
        self._tokens.expect("of")
        first = self._variable()
        if fn == "shuffle":
            return self._shuffle(first)
        if fn == "pick":
            return self._pick(first, depth)
        if fn != "dots":
            return Fold(fn, first)
        self._tokens.expect("and")
        return Dots(first, self._variable())

    def _shuffle(self, first: Local) -> Shuffle:
        second = self._variable() if self._tokens.accept("and") else first
        self._tokens.expect("by")
        order = tuple(self._tokens.listed("(", ")", lambda: self._tokens.extent("a lane")))
        if len(order) != first.lanes or second.lanes != first.lanes or max(order, default=0) >= 2 * first.lanes:
            raise self._tokens.fail(f"a lane of two vectors of {first.lanes} for each lane is expected")
        return Shuffle(first, second, order)

    def _pick(self, first: Local, depth: int) -> Pick:
        parts = [first]
        while self._tokens.accept("and"):
            parts.append(self._variable())
        self._tokens.expect("by")
        places = self.element(self._tokens.kind("word", "a tensor").text, depth)
        ahead = self._tokens.extent("a number of elements") if self._tokens.accept("ahead") else 0
        if not isinstance(places, Lanes) or any(x.lanes != places.lanes for x in parts):
            raise self._tokens.fail(f"an element for each lane of vectors of {first.lanes} is expected")
        return Pick(tuple(parts), places, ahead)

    def _variable(self) -> Local:
        word = self._tokens.kind("word", "a variable")
        found = self.names.get(word.text)
        if not isinstance(found, Local):
            raise self._tokens.fail(f"{word.text} is no variable", word.offset)
        return found


class _Reader:
    """Statements, with what names mean where they stand."""

    def __init__(self, tokens: Tokens, tensors: dict[str, Param]) -> None:
        self._tokens, self._tensors = tokens, tensors
        self._names: dict[str, Expr] = {}
        self._buffers: set[str] = set()
        self._exprs = _Exprs(tokens, self._names, tensors)

    def program(self, params: tuple[Param, ...], results: tuple[Param, ...], aligned: bool) -> LoopProgram:
        buffers: list[Buffer] = []
        column = self._tokens.column
        while (found := self._buffer_or_statement(column)) is not None and isinstance(found, Buffer):
            buffers.append(found)
            self._buffers.add(found.name)
            self._tensors[found.name] = Param(found.name, found.type)
        first = () if found is None else (found,)
        body = (*first, *self._statements(column, 0))
        self._tokens.expect("}")
        return LoopProgram(params, results, tuple(buffers), body, aligned)

    def _buffer_or_statement(self, column: int) -> Buffer | Stmt | None:
        """Buffers begin as declarations of variables do, up to the brackets behind the type."""
        tokens = self._tokens
        if tokens.peek("}"):
            return None
        declares = tokens.ahead == ":" and not tokens.peek("block")
        if not declares:
            return self._statement(column, 0)
        name = _new_name(tokens, self._tensors)
        tokens.expect(":")
        return self._buffer(name) if tokens.ahead == "[" else self._declared(name, None)

    def _buffer(self, name: str) -> Buffer:
        tokens = self._tokens
        type = read_type(tokens)
        stack = tokens.accept("on")
        for word in ("the", "stack") if stack else ("in", "the", "workspace"):
            tokens.expect(word)
        below = tokens.extent("a bound") if tokens.accept("below") else None
        copies = tokens.extent("a number of copies") if tokens.accept("times") else 1
        return Buffer(name, type, stack, below, copies, tokens.accept("digits"))

    def _body(self, outer: int, depth: int) -> tuple[Stmt, ...]:
        """The statements that stand deeper than column `outer`; their variables end with them."""
        self._tokens.expect(":")
        if depth > MAX_DEPTH:
            raise self._tokens.fail(f"loops nested deeper than {MAX_DEPTH}")
        column = self._tokens.column
        if column <= outer:
            raise self._tokens.fail("a statement is expected here, deeper than what it belongs to")
        before = dict(self._names)
        found = self._statements(column, depth)
        self._names.clear()
        self._names.update(before)
        return found

    def _statements(self, column: int, depth: int) -> tuple[Stmt, ...]:
        found: list[Stmt] = []
        while self._tokens.column == column and not self._tokens.peek("}"):
            found.append(self._statement(column, depth))
        if self._tokens.column > column:
            raise self._tokens.fail("this stands deeper than the statements before it")
        return tuple(found)

    def _statement(self, column: int, depth: int) -> Stmt:
        tokens = self._tokens
        word = tokens.kind("word", "a statement")
        match word.text:
            case "for":
                return self._loop(column, depth)
            case "if":
                condition = self._exprs.expr()
                then = self._body(column, depth + 1)
                has_else = tokens.column == column and tokens.accept("else")
                return If(condition, then, self._body(column, depth + 1) if has_else else ())
            case "block":
                return Block(self._body(column, depth + 1))
            case "prefetch":
                tensor, at, _ = self._place(tokens.kind("word", "a tensor").text)
                tokens.expect("to")
                write = tokens.accept("write")
                if not write:
                    tokens.expect("read")
                hint = next((h for h in PREFETCH_HINTS if tokens.accept(h)), "")
                return Prefetch(tensor, at, write, hint)
            case name if tokens.peek(":") or tokens.peek("<"):
                extent = tokens.extent("an extent") if tokens.accept("<") else None
                tokens.expect(":")
                return self._declared(name, extent)
            case name if name in self._tensors:
                out, at, lanes = self._place(name)
                tokens.expect("=")
                value, past = self._exprs.expr(), tokens.accept("past")
                if past:
                    tokens.expect("caches")
                return Store(out, at, value, lanes, past)
            case name:
                local = self._names.get(name)
                if not isinstance(local, Local):
                    raise tokens.fail(f"'{name}' is neither a tensor nor a variable", word.offset)
                tokens.expect("=")
                return Set(local, self._exprs.expr())

    def _place(self, name: str) -> tuple[str, Expr, int]:
        """An element, or the first of several, that is written or wanted soon."""
        if name not in self._tensors:
            raise self._tokens.fail(f"{name} is no tensor")
        match self._exprs.element(name, 0):
            case Lanes(Load(_, (at,)), lanes):
                return name, at, lanes
            case Load(_, (at,)):
                return name, at, 1
            case other:
                raise AssertionError(other)

    def _declared(self, name: str, extent: int | None) -> Let:
        """A variable's type and first value; an `extent` makes it the size of a call, which subscripts may use."""
        tokens = self._tokens
        word = tokens.kind("word", "an element type")
        found = _VARIABLE.fullmatch(word.text)
        dtype, lanes = (found[1], int(found[2] or 1)) if found else (word.text, 1)
        local = Local(name, dtype_of_word(tokens, word, dtype), lanes)
        tokens.expect("=")
        value = self._exprs.expr()
        self._names[name] = local if extent is None else Axis(name, extent)
        return Let(local, value)

    def _loop(self, column: int, depth: int) -> For:
        tokens, exprs = self._tokens, self._exprs
        name = tokens.kind("word", "a name").text
        extent = tokens.extent("an extent") if tokens.accept("<") else None
        limit = exprs.expr() if tokens.accept("to") else None
        tokens.expect("in")
        start = exprs.expr()
        tokens.expect("..")
        at = tokens.current.offset
        stop = exprs.expr()
        step = tokens.extent("a step") if tokens.accept("step") else 1
        if extent is None:
            match stop:
                case Const(int() as end):
                    extent = end
                case _:
                    raise tokens.fail("the loop needs an extent, as in `for i<64 in 0..n:`", at)
        unroll = tokens.extent("iterations") if tokens.accept("unroll") else 0
        apart = tokens.accept("apart")
        parallel = tokens.accept("parallel")
        own = tuple(tokens.listed("(", ")", self._buffer_name)) if parallel and tokens.accept("own") else ()
        axis = Axis(name, extent, limit)
        hidden = self._names.get(name)
        self._names[name] = axis
        body = self._body(column, depth + 1)
        del self._names[name]
        if hidden is not None:
            self._names[name] = hidden
        return For(axis, start, stop, body, step, parallel, own, unroll, apart)

    def _buffer_name(self) -> str:
        word = self._tokens.kind("word", "a buffer")
        if word.text not in self._buffers:
            raise self._tokens.fail(f"'{word.text}' is no buffer", word.offset)
        return word.text
