"""The reader of graphs in `.dlc` text; `text.py` describes the form and holds the printer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast, get_args

from dlc.base.diagnostics import did_you_mean
from dlc.base.lexer import Token, Tokens
from dlc.graph.attributes import AttributeReader, Lookup
from dlc.graph.check_fields import misfit
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Again, Call, Copy, Input, Role
from dlc.graph.tensor import Tensor
from dlc.kernel.define import ShapeError
from dlc.kernel.kernel import Kernel
from dlc.kernel.text import read_kernel, read_type

DEEPEST: Final = 32
"""Graphs inside each other: more than any model has."""
ROLES: tuple[Role, ...] = get_args(Role)


class GraphReader:
    """Recursive descent over the tokens of one graph."""

    def __init__(self, tokens: Tokens, ops: Mapping[str, type[Op]], tensors: Lookup) -> None:
        self._tokens, self._ops = tokens, ops
        self._values: dict[str, Op] = {}
        self._kernels: dict[str, Kernel] = {}
        self._origins: dict[str, tuple[str, ...]] = {}
        self._depth = 0
        self._attributes = AttributeReader(tokens, self._kernels, tensors)

    def graph(self) -> Graph:
        """The whole text."""
        tokens = self._tokens
        while tokens.accept("kernel"):
            self._kernel()
        found = self._graph()
        tokens.kind("end", "the end of the text")
        return found

    def _body(self) -> Graph:
        """A graph that an op holds: its values have names of their own, the kernels are those above."""
        if self._depth == DEEPEST:
            raise self._tokens.fail(f"graphs nested deeper than {DEEPEST}")
        around = self._values, self._origins
        self._values, self._origins, self._depth = {}, {}, self._depth + 1
        found = self._graph()
        self._values, self._origins = around
        self._depth -= 1
        return found

    def _graph(self) -> Graph:
        tokens = self._tokens
        tokens.expect("graph")
        inputs = tokens.listed("(", ")", self._input)
        tokens.expect("{")
        while not tokens.accept("return"):
            self._statement()
        outputs: list[tuple[Op, str]] = []
        while tokens.current.kind == "value" or outputs:
            outputs.append((self._operand(), self._attributes.string()))
            if not tokens.accept(","):
                break
        aliases: list[tuple[int, int]] = []
        while tokens.accept("alias"):
            aliases.append((tokens.extent("an output"), tokens.extent("an input")))
        workspaces: dict[str, int] = {}
        while tokens.accept("workspace"):
            kernel = self._attributes.kernel()
            workspaces[kernel.digest] = tokens.extent("a size in bytes")
        schedules: dict[str, str] = {}
        while tokens.accept("schedule"):
            kernel = self._attributes.kernel()
            schedules[kernel.digest] = self._attributes.string()
        labels: dict[str, tuple[str, ...]] = {}
        while tokens.accept("labels"):
            output = self._attributes.string()
            labels[output] = tuple(self._strings())
        tokens.expect("}")
        values, names = tuple(o for o, _ in outputs), tuple(n for _, n in outputs)
        return Graph(tuple(inputs), values, names, tuple(aliases), self._origins, workspaces, labels, schedules)

    def _kernel(self) -> None:
        # The name stands between `kernel` and its parameters; the reader of kernels knows no names.
        name = self._tokens.kind("kernel", "a kernel's name")
        if name.text in self._kernels:
            raise self._tokens.fail(f"kernel {name.text} is defined twice", name.offset)
        self._kernels[name.text] = read_kernel(self._tokens, after_keyword=True)

    def _input(self) -> Input:
        tokens = self._tokens
        name = self._new_value("an input")
        title = self._attributes.string()
        tokens.expect(":")
        of = read_type(tokens)
        role = ROLES[0]
        if tokens.current.kind == "word" and not tokens.peek("in"):
            word = tokens.take()
            if word.text not in ROLES:
                raise tokens.fail(f"unknown role '{word.text}'", word.offset, did_you_mean(word.text, ROLES, "roles"))
            role = ROLES[ROLES.index(word.text)]
        self._values[name] = made = self._restricted(self._starting(Input(title, of, role)))
        return made

    def _restricted(self, made: Input) -> Input:
        """The input with what its integers may be, if that stands behind it."""
        tokens = self._tokens
        if not tokens.accept("in"):
            return made
        at = tokens.current.offset
        text = self._attributes.string()
        try:
            return Input(made.name, made.of, made.role, made.initial, text)
        except ValueError as e:
            raise tokens.fail(str(e), at) from e

    def _starting(self, made: Input) -> Input:
        """The input with what it starts with, if that stands behind it."""
        tokens = self._tokens
        if not tokens.accept("="):
            return made
        at = tokens.current.offset
        value = self._attributes.value()
        if not isinstance(value, (Tensor, bool, int, float)):
            raise tokens.fail("an input starts with a constant or with a number", at)
        try:
            return Input(made.name, made.of, made.role, value)
        except (ShapeError, ValueError, OverflowError) as e:
            raise tokens.fail(str(e), at) from e

    def _statement(self) -> None:
        tokens = self._tokens
        name = self._new_value("a value or 'return'")
        tokens.expect("=")
        op = self._values[name] = self._call() if tokens.current.kind == "kernel" else self._op()
        if tokens.accept("|"):
            self._origins[op.digest] = tuple(self._strings())

    def _strings(self) -> Iterator[str]:
        while self._tokens.current.kind == "string":
            yield self._attributes.string()

    def _call(self) -> Op:
        word = self._tokens.current
        kernel = self._attributes.kernel()
        held: dict[str, Any] = {"body": kernel, "args": tuple(self._tokens.listed("(", ")", self._operand))}
        if self._tokens.accept("again"):
            return self._made(Again, (), {**held, "number": self._tokens.extent("a number of executions")}, word)
        if self._tokens.accept("copied"):
            return self._made(Copy, (), {**held, "number": self._tokens.extent("the number of a copy")}, word)
        return self._made(Call, (), held, word)

    def _op(self) -> Op:
        tokens = self._tokens
        word = tokens.kind("word", "an op or a kernel's name")
        if word.text not in self._ops:
            help = did_you_mean(word.text, self._ops, "ops")
            raise tokens.fail(f"unknown op '{word.text}'", word.offset, help)
        cls = self._ops[word.text]
        operands = tokens.listed("(", ")", self._operand_field)
        attrs: dict[str, Any] = {}
        while tokens.current.kind == "word" and tokens.ahead == "=":
            key = tokens.take()
            if key.text not in cls.attr_names:
                help = did_you_mean(key.text, cls.attr_names, f"attributes of {word.text}")
                raise tokens.fail(f"{word.text} has no attribute '{key.text}'", key.offset, help)
            if key.text in attrs:
                raise tokens.fail(f"attribute '{key.text}' is given twice", key.offset)
            tokens.expect("=")
            holds = key.text in cls.body_names and tokens.peek("graph")
            attrs[key.text] = self._body() if holds else self._attributes.value()
        return self._made(cls, operands, attrs, word)

    def _made(self, cls: type[Op], operands: Sequence[Any], attrs: Mapping[str, Any], word: Token) -> Op:
        if problem := misfit(cls, operands, attrs):
            raise self._tokens.fail(f"{word.text} {problem}", word.offset)
        try:
            return cls(**dict(zip(cls.operand_names, operands, strict=False)), **attrs)
        # Shapes and types that do not fit; an op of a plugin may also expect what no annotation tells.
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError) as e:
            notes = _operand_types((*operands, *attrs.get("args", ())))
            raise self._tokens.fail(f"{word.text}: {e}", word.offset, notes=notes) from e

    def _new_value(self, what: str) -> str:
        token = self._tokens.kind("value", what)
        if token.text in self._values:
            raise self._tokens.fail(f"{token.text} is defined twice", token.offset, "every value has a name of its own")
        return token.text

    def _operand_field(self) -> Any:
        """A value, `none`, or `[values]`."""
        if self._tokens.accept("none"):
            return None
        if self._tokens.peek("["):
            return tuple(self._tokens.listed("[", "]", self._operand))
        return self._operand()

    def _operand(self) -> Op:
        token = self._tokens.kind("value", "a value")
        if token.text not in self._values:
            # A large graph defines thousands: only a near one is worth telling.
            help = did_you_mean(token.text, self._values, "values above") if len(self._values) <= 16 else ""
            raise self._tokens.fail(f"{token.text} is not defined above", token.offset, help)
        return self._values[token.text]


def _operand_types(operands: Sequence[Any]) -> tuple[str, ...]:
    flat = [x for o in operands for x in (cast("tuple[object, ...]", o) if isinstance(o, tuple) else (o,))]
    types = [str(x.types[0]) for x in flat if isinstance(x, Op) and x.types]
    return (f"operands are {', '.join(types[:8])}{', …' if len(types) > 8 else ''}",) if types else ()
