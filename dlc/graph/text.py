"""Graphs as `.dlc` text, printed and parsed.

    kernel @k0(p0: f32[2,3]) -> (r0: f32[2,3]) { … }
    graph(%0 "x": f32[2,3]) {
      %1 = constant() tensor=f32[3]{1.0,2.0,3.0}
      %2 = add(%0, %1)
      return %2 "y"
    }

Types are derived, so they are not written. Small constants stand in the text, large ones by digest; reading those back
needs a `tensors` function that finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, cast

import numpy as np

from dlc.graph.graph import Graph
from dlc.graph.op import Op, attr_text, quote
from dlc.graph.structure import Input
from dlc.graph.tensor import Tensor
from dlc.kernel.nest import Kernel
from dlc.kernel.text import print_kernel, print_literal, read_kernel, read_type
from dlc.lexer import MAX_DEPTH, Token, Tokens
from dlc.types import DTYPES, Type

# Constants of at most this many elements are written out (see `is_inline`): shape vectors, scalars, small biases.
INLINE_ELEMENTS = 16
Lookup = Callable[[Type, str], Tensor | None]


def print_graph(graph: Graph, origins: bool = False) -> str:
    """A graph as text.

    Args:
        graph: The graph.
        origins: Also write, behind each op, the source nodes it came from.
    """
    kernels: dict[str, str] = {}
    lines: list[str] = []
    for op in graph.ops:
        for value in op.attrs.values():
            if isinstance(value, Kernel) and value.digest not in kernels:
                kernels[value.digest] = f"@k{len(kernels)}"
                head, _, rest = print_kernel(value).partition("kernel")
                lines.append(f"{head}kernel {kernels[value.digest]}{rest}")
    names = {op.digest: f"%{k}" for k, op in enumerate((*graph.inputs, *_rest(graph)))}
    inputs = ", ".join(f"{names[i.digest]} {quote(i.name)}: {i.of}{_role(i)}" for i in graph.inputs)
    lines.append(f"graph({inputs}) {{")
    for op in _rest(graph):
        told = f" | {' '.join(quote(n) for n in graph.origin(op))}" if origins and graph.origin(op) else ""
        lines.append(f"  {names[op.digest]} = {_print_op(op, names, kernels)}{told}")
    returned = ", ".join(f"{names[o.digest]} {quote(n)}" for o, n in zip(graph.outputs, graph.names, strict=True))
    lines.append(f"  return {returned}")
    lines += [f"  alias {i} {j}" for i, j in graph.aliases]
    return "\n".join([*lines, "}"]) + "\n"


def _rest(graph: Graph) -> list[Op]:
    declared = {i.digest for i in graph.inputs}
    return [op for op in graph.ops if op.digest not in declared]


def _role(i: Input) -> str:
    return "" if i.role == "data" else f" {i.role}"


def _print_op(op: Op, names: Mapping[str, str], kernels: Mapping[str, str]) -> str:
    parts: list[str] = []
    for _, value in op.operand_fields():
        if value is None:
            parts.append("none")
        elif isinstance(value, tuple):
            parts.append("[" + ",".join(names[o.digest] for o in value) + "]")
        else:
            parts.append(names[value.digest])
    defaults = {f.name: f.default for f in fields(cast("Any", op))}
    attrs = "".join(f" {k}={_print_attr(v, kernels)}" for k, v in op.attrs.items() if not _equal(v, defaults.get(k)))
    return f"{op.text_name}({', '.join(parts)}){attrs}"


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and attr_text(a) == attr_text(b) if not isinstance(a, (Kernel, Tensor)) else False


def _print_attr(value: Any, kernels: Mapping[str, str]) -> str:
    if isinstance(value, Kernel):
        return kernels[value.digest]
    if isinstance(value, Tensor) and is_inline(value):
        return f"{value.type}{{{','.join(print_literal(v) for v in value.array().reshape(-1).tolist())}}}"
    return attr_text(value)


def is_inline(tensor: Tensor) -> bool:
    """Whether a constant stands in the text: a small one without NaNs, whose bits decimal numbers do not tell."""
    if tensor.type.size > INLINE_ELEMENTS:
        return False
    return not (tensor.type.dtype.is_float and np.isnan(tensor.array()).any())


def parse_graph(text: str, ops: Mapping[str, type[Op]], tensors: Lookup | None = None, source: str = "<text>") -> Graph:
    """The inverse of `print_graph`.

    Args:
        text: The `.dlc` text.
        ops: Op classes by text name.
        tensors: Finds a large constant by type and digest.
        source: What errors call the text.

    Raises:
        DlcError: syntax, unknown ops, operands or tensors, shape errors; with line and column.
    """
    return _GraphReader(Tokens(text, source), ops, tensors or _no_tensor).graph()


def _no_tensor(type: Type, digest: str) -> Tensor | None:
    del type, digest
    return None


class _GraphReader:
    """Recursive descent over the tokens of one graph."""

    def __init__(self, tokens: Tokens, ops: Mapping[str, type[Op]], tensors: Lookup) -> None:
        self._tokens, self._ops, self._tensors = tokens, ops, tensors
        self._values: dict[str, Op] = {}
        self._kernels: dict[str, Kernel] = {}
        self._origins: dict[str, tuple[str, ...]] = {}

    def graph(self) -> Graph:
        tokens = self._tokens
        while tokens.peek("kernel"):
            self._kernel()
        tokens.expect("graph")
        inputs = self._inputs()
        tokens.expect("{")
        while not tokens.accept("return"):
            self._statement()
        outputs: dict[int, tuple[Op, str]] = {}
        while tokens.current.kind == "value" or outputs:
            outputs[len(outputs)] = (self._operand(), self._string())
            if not tokens.accept(","):
                break
        aliases: list[tuple[int, int]] = []
        while tokens.accept("alias"):
            aliases.append((tokens.extent("an output"), tokens.extent("an input")))
        tokens.expect("}")
        tokens.kind("end", "the end of the text")
        values, names = tuple(o for o, _ in outputs.values()), tuple(n for _, n in outputs.values())
        return Graph(tuple(inputs), values, names, tuple(aliases), self._origins)

    def _kernel(self) -> None:
        tokens = self._tokens
        # The name stands between `kernel` and its parameters; the reader of kernels knows no names.
        tokens.expect("kernel")
        name = tokens.kind("kernel", "a kernel name").text
        if name in self._kernels:
            raise tokens.fail(f"kernel {name} is defined twice")
        self._kernels[name] = read_kernel(tokens, after_keyword=True)

    def _inputs(self) -> list[Input]:
        tokens = self._tokens
        tokens.expect("(")
        out: list[Input] = []
        while not tokens.accept(")"):
            name = self._new_value("an input")
            title = self._string()
            tokens.expect(":")
            of = read_type(tokens)
            role = tokens.take().text if tokens.current.kind == "word" else "data"
            if role not in ("data", "weight", "state", "label"):
                raise tokens.fail(f"unknown role '{role}'")
            out.append(Input(title, of, role))
            self._values[name] = out[-1]
            if not tokens.peek(")"):
                tokens.expect(",")
        return out

    def _statement(self) -> None:
        tokens = self._tokens
        name = self._new_value("a value or 'return'")
        tokens.expect("=")
        word = tokens.kind("word", "an op")
        if word.text not in self._ops:
            raise tokens.fail(f"unknown op '{word.text}'", word.offset)
        cls = self._ops[word.text]
        operands = self._operands()
        attrs: dict[str, Any] = {}
        while tokens.current.kind == "word" and tokens.ahead == "=":
            key = tokens.take()
            if key.text not in cls.attr_names:
                raise tokens.fail(f"{word.text} has no attribute '{key.text}'", key.offset)
            tokens.expect("=")
            attrs[key.text] = self._attr()
        op = self._values[name] = self._made(cls, operands, attrs, word)
        if tokens.accept("|"):
            told: list[str] = []
            while tokens.current.kind == "string":
                told.append(self._string())
            self._origins[op.digest] = tuple(told)

    def _made(self, cls: type[Op], operands: Sequence[Any], attrs: Mapping[str, Any], word: Token) -> Op:
        if len(operands) > len(cls.operand_names):
            raise self._tokens.fail(f"{word.text} takes {len(cls.operand_names)} operands", word.offset)
        try:
            return cls(**dict(zip(cls.operand_names, operands, strict=False)), **attrs)
        # An op may expect any property of its operands and attributes; text may hold anything in their place.
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError) as e:
            raise self._tokens.fail(f"{word.text}: {e}", word.offset) from e

    def _new_value(self, what: str) -> str:
        token = self._tokens.kind("value", what)
        if token.text in self._values:
            raise self._tokens.fail(f"{token.text} is defined twice", token.offset)
        return token.text

    def _operands(self) -> list[Any]:
        tokens = self._tokens
        tokens.expect("(")
        out: list[Any] = []
        while not tokens.accept(")"):
            if tokens.accept("none"):
                out.append(None)
            elif tokens.accept("["):
                several: list[Op] = []
                while not tokens.accept("]"):
                    several.append(self._operand())
                    if not tokens.peek("]"):
                        tokens.expect(",")
                out.append(tuple(several))
            else:
                out.append(self._operand())
            if not tokens.peek(")"):
                tokens.expect(",")
        return out

    def _operand(self) -> Op:
        token = self._tokens.kind("value", "a value")
        if token.text not in self._values:
            raise self._tokens.fail(f"{token.text} is not defined above", token.offset)
        return self._values[token.text]

    def _string(self) -> str:
        token = self._tokens.kind("string", "a quoted name")
        try:
            return unquote(token.text)
        except (ValueError, OverflowError):
            raise self._tokens.fail("a character code that does not exist", token.offset) from None

    def _attr(self, depth: int = 0) -> Any:
        tokens = self._tokens
        if depth > MAX_DEPTH:
            raise tokens.fail(f"attribute nested deeper than {MAX_DEPTH}")
        if tokens.accept("("):
            items: list[Any] = []
            while not tokens.accept(")"):
                items.append(self._attr(depth + 1))
                if not tokens.peek(")"):
                    tokens.expect(",")
            return tuple(items)
        match tokens.current.kind:
            case "string":
                return self._string()
            case "number" | "op":
                return self._number()
            case "kernel":
                token = tokens.take()
                if token.text not in self._kernels:
                    raise tokens.fail(f"kernel {token.text} is not defined above", token.offset)
                return self._kernels[token.text]
            case _:
                return self._word()

    def _number(self) -> int | float:
        sign = -1 if self._tokens.accept("-") else 1
        if self._tokens.accept("inf"):
            return sign * float("inf")
        text = self._tokens.kind("number", "a value").text
        return sign * (int(text) if text.isdigit() else float(text))

    def _word(self) -> Any:
        tokens = self._tokens
        word = tokens.current.text
        literals = {"none": None, "true": True, "false": False, "inf": float("inf"), "nan": float("nan")}
        if word in literals:
            tokens.take()
            return literals[word]
        if word not in DTYPES:
            raise tokens.unexpected("an attribute value")
        start = tokens.current.offset
        if tokens.text[start + len(word) : start + len(word) + 1] != "[":
            tokens.take()
            return DTYPES[word]
        of = read_type(tokens)
        if tokens.accept("{"):
            return self._inline(of)
        if tokens.accept(":"):
            return self._stored(of, start)
        return of

    def _inline(self, of: Type) -> Tensor:
        values: list[Any] = []
        while not self._tokens.accept("}"):
            values.append(self._attr())
            if not self._tokens.peek("}"):
                self._tokens.expect(",")
        if len(values) != of.size:
            raise self._tokens.fail(f"{of} has {of.size} elements, found {len(values)}")
        try:
            return Tensor.of(np.array(values, of.dtype.numpy).reshape(of.shape), of.dtype)
        except (TypeError, ValueError, OverflowError) as e:
            raise self._tokens.fail(f"not elements of {of}: {e}") from None

    def _stored(self, of: Type, start: int) -> Tensor:
        digest = ""
        # A digest may scan as several tokens (digits, then a word): take them until 32 characters are there.
        while len(digest) < 32 and self._tokens.current.kind in ("number", "word"):
            digest += self._tokens.take().text
        found = self._tensors(of, digest)
        if found is None:
            raise self._tokens.fail(f"constant {of}:{digest} is not at hand", start)
        return found


def unquote(text: str) -> str:
    """The inverse of `quote`."""
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
