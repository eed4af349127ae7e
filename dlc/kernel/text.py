"""Kernels as text, printed and parsed: `print_kernel` and `parse_kernel` are inverse on canonical kernels.

kernel(f32[2,3], f32[3]) -> (f32[2]) {
  k<3: r0[i] += p0[i,k]*p1[k] if i+k < 4
}

Names mean nothing: parameters are p0…, results r0…, locals t0…, the axes of a nest i, j, k… by position. Text from
elsewhere may name them as it likes, `(a: f32[2,3])`; what is read has the canonical names.

An axis that is a subscript of the left side by itself runs over that dimension (`i` above); the others stand in front
with their extents. Axes that stand nowhere in front are the outer ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.base.diagnostics import did_you_mean
from dlc.base.lexer import Token, Tokens
from dlc.base.types import DTYPES, DType, Type, parse_dims
from dlc.kernel.expr import Axis, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param, Reduce
from dlc.kernel.read_expr import LITERALS, ExprReader


def print_kernel(kernel: Kernel, name: str = "") -> str:
    """A kernel, one nest a line; a `name` like `@k0` stands behind the word `kernel`."""
    return kernel.text(name)


def parse_kernel(text: str, source: str = "<text>") -> Kernel:
    """The inverse of `print_kernel`.

    Raises:
        DlcError: syntax errors with line, column and what was expected.
    """
    tokens = Tokens(text, source)
    kernel = read_kernel(tokens)
    tokens.kind("end", "the end of the text")
    return kernel


def read_kernel(tokens: Tokens, after_keyword: bool = False) -> Kernel:
    """Read one kernel from a token stream (the word `kernel` may be consumed already)."""
    if not after_keyword:
        tokens.expect("kernel")
    tensors: dict[str, Param] = {}
    params = _read_params(tokens, "p", tensors)
    tokens.expect("->")
    results = _read_params(tokens, "r", tensors)
    locals_ = _read_params(tokens, "t", tensors) if tokens.accept("local") else ()
    tokens.expect("{")
    nests: list[Nest] = []
    while not tokens.accept("}"):
        nests.append(_read_nest(tokens, tensors))
    return Kernel(params, results, locals_, tuple(nests))


def dtype_of_word(tokens: Tokens, word: Token, name: str) -> DType:
    """The element type of a name that a word begins with."""
    if name not in DTYPES:
        help = did_you_mean(name, DTYPES, "element types")
        raise tokens.fail(f"unknown element type '{name}'", word.offset, help)
    return DTYPES[name]


def read_type(tokens: Tokens) -> Type:
    """Read `f32[2,3]`."""
    word = tokens.kind("word", "an element type")
    dtype = dtype_of_word(tokens, word, word.text)
    if not tokens.dims_ahead():
        return Type(dtype, tuple(tokens.listed("[", "]", lambda: tokens.extent("a dimension"))))
    start = tokens.expect("[")
    text = tokens.until("]")
    try:
        return Type(dtype, *parse_dims(text))
    except ValueError as problem:
        raise tokens.fail(str(problem), start.offset) from None


def _read_params(tokens: Tokens, letter: str, tensors: dict[str, Param]) -> tuple[Param, ...]:
    """Types in parentheses, perhaps with names: added to `tensors` under the name the text uses."""
    out: list[Param] = []

    def read() -> None:
        start = tokens.current
        spelled = name = f"{letter}{len(out)}"
        if tokens.ahead == ":":
            spelled = tokens.kind("word", "a parameter name").text
            tokens.expect(":")
        out.append(Param(name, read_type(tokens)))
        if spelled in tensors:
            raise tokens.fail("two tensors of the kernel have one name", start.offset)
        tensors[spelled] = out[-1]

    tokens.listed("(", ")", read)
    return tuple(out)


def _read_nest(tokens: Tokens, tensors: Mapping[str, Param]) -> Nest:
    extents: dict[str, int] = {}
    while tokens.current.kind == "word" and tokens.ahead == "<":
        word = tokens.take()
        if word.text in extents or word.text in tensors:
            raise tokens.fail(f"the name {word.text} is taken", word.offset)
        tokens.expect("<")
        extents[word.text] = tokens.extent("an extent")
    if extents or tokens.peek(":"):
        tokens.expect(":")
    extents = _implied_extents(tokens, tensors, extents) | extents
    axes = {name: Axis(f"i{k}", extent) for k, (name, extent) in enumerate(extents.items())}
    reader = ExprReader(tokens, axes, tensors)
    target = reader.atom(0)
    if not isinstance(target, Load):
        raise tokens.fail("the left side of a nest is a tensor element")
    reduce = _read_assign(tokens)
    body = reader.expr()
    where = reader.expr() if tokens.accept("if") else None
    return Nest(target.param, target.index, tuple(axes.values()), body, reduce, where)


def _implied_extents(tokens: Tokens, tensors: Mapping[str, Param], known: Mapping[str, int]) -> dict[str, int]:
    """Extents of the axes that nothing but the left side, which comes next, tells."""
    target = tensors.get(tokens.current.text)
    found: dict[str, int] = {}
    for extent, subscript in zip(target.shape if target else (), tokens.items_ahead(), strict=False):
        match subscript:
            case (Token("word", name, _),) if name not in (*known, *tensors, *LITERALS):
                found.setdefault(name, extent)
            case _:
                pass
    return found


def _read_assign(tokens: Tokens) -> Reduce | None:
    word = tokens.take().text
    match word:
        case "=":
            return None
        case "+=":
            return "add"
        case "*=":
            return "mul"
        case "max" | "min":
            tokens.expect("=")
            return word
        case _:
            raise tokens.fail(f"expected an assignment (=, +=, *=, max=, min=), found '{word}'")
