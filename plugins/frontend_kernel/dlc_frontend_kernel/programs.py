"""`.kernel` text → programs: kernels with typed parameters, or nothing but statements.

file   := kernel+ | statement+
kernel := 'kernel' Id '(' [tensor (',' tensor)*] ')' '->' '(' tensor (',' tensor)* ')' '{' statement+ '}'
tensor := Id ':' type;  type := Id [ '[' [Int (',' Int)*] ']' ]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dlc.base.diagnostics import did_you_mean
from dlc.base.lexer import Token
from dlc.base.types import DTYPES, DType, f32, f64, i32
from dlc_frontend_kernel import recurrence
from dlc_frontend_kernel.expressions import Reader
from dlc_frontend_kernel.syntax import Declared, Index, KernelSource, Ref, Statement, reads, walk_nodes
from dlc_frontend_kernel.tokens import KernelTokens

TYPE_NAMES: Final = {**DTYPES, "float": f32, "double": f64, "int": i32}
MAX_STATEMENTS = 1000


def read_programs(text: str, source: str, dtype: DType) -> tuple[KernelSource, ...]:
    """The kernels of a `.kernel` file.

    Args:
        text: The file's content.
        source: How messages call it.
        dtype: Element type where the text tells none.

    Raises:
        DlcError: with line and column.
    """
    tokens = KernelTokens(text, source)
    if not (tokens.peek("kernel") and tokens.ahead not in ("<", "[", "=")):
        return (_bare(tokens, dtype),)
    out: list[KernelSource] = []
    while tokens.current.kind != "end":
        name = tokens.current.offset
        program = _kernel(tokens, dtype)
        if any(p.name == program.name for p in out):
            raise tokens.fault("duplicate", f"two kernels are named {program.name}", name)
        out.append(program)
    return tuple(out)


def read_statements(reader: Reader, closing: str) -> tuple[Statement, ...]:
    """Statements up to a closing sign, or to the end of the text."""
    tokens = reader.tokens
    out = [reader.statement()]
    while not (tokens.accept(closing) if closing else tokens.current.kind == "end"):
        if len(out) >= MAX_STATEMENTS:
            message = f"more than {MAX_STATEMENTS} statements"
            raise tokens.fault("too-large", message, tokens.current.offset)
        out.append(reader.statement(f" or '{closing}'" if closing else ""))
    return tuple(out)


def read_first(statements: Sequence[Statement]) -> dict[str, Ref]:
    """The tensors that are read before a statement writes them, in order, and where."""
    written: set[str] = set()
    out: dict[str, Ref] = {}
    for s in statements:
        for ref in reads(s):
            if ref.tensor not in written:
                out.setdefault(ref.tensor, ref)
        written.add(s.target.tensor)
    return out


def _bare(tokens: KernelTokens, dtype: DType) -> KernelSource:
    """Statements alone: inputs are what is read first, outputs what no later statement reads, and in/out tensors."""
    reader = Reader(tokens, {})
    statements = read_statements(reader, "")
    ins = tuple(read_first(statements))
    outs: dict[str, None] = {}
    for k, s in enumerate(statements):
        name = s.target.tensor
        later = statements[k + 1 :]
        used = any(ref.tensor == name for other in later for ref in reads(other))
        if name in ins or not (used or any(other.target.tensor == name for other in later)):
            outs[name] = None
    return KernelSource("", ins, tuple(outs), reader.tensors, statements, dtype, tokens)


def _kernel(tokens: KernelTokens, dtype: DType) -> KernelSource:
    tokens.expect("kernel")
    name = tokens.kind("word", "the kernel's name").text
    tensors: dict[str, Declared] = {}
    reader = Reader(tokens, tensors)
    ins = _tensors(reader)
    if not tokens.accept("->"):
        raise tokens.unexpected("'->' and the results")
    start = tokens.current.offset
    outs = _tensors(reader)
    if not outs:
        raise tokens.fault("no-outputs", f"the kernel {name} has no results", start)
    tokens.expect("{")
    statements = read_statements(reader, "}")
    written = {s.target.tensor for s in statements}
    program = KernelSource(name, ins, outs, tensors, statements, dtype, tokens)
    for result in outs:
        if result not in written:
            raise tokens.fault("unwritten", f"nothing is written to the result {result}", tensors[result].at)
    check_flow(program)
    return program


def check_flow(program: KernelSource) -> None:
    """Refuse programs that read what has no value, or write inputs without telling."""
    for name, ref in read_first(program.statements).items():
        if name not in program.ins:
            message = f"{name} is read before anything is written to it"
            own = any(s.target.tensor == name and ref in walk_nodes(s.value) for s in program.statements)
            elsewhere = own and any(not isinstance(s, Index) for s in ref.subscripts)
            help = recurrence.HELP if elsewhere else f"make {name} an input" + (" too" if name in program.outs else "")
            raise program.tokens.fault("undefined", message, ref.at, help)
    for s in program.statements:
        name = s.target.tensor
        if name in program.ins and name not in program.outs:
            message = f"the input {name} is written, but is no output"
            raise program.tokens.fault("input-written", message, s.at, f"make {name} an output too")


def _tensors(reader: Reader) -> tuple[str, ...]:
    """Names and types in parentheses. A result may repeat a parameter: an in/out tensor."""
    tokens, tensors = reader.tokens, reader.tensors
    before = set(tensors)
    out: list[str] = []

    def read() -> None:
        name = tokens.kind("word", "a tensor's name")
        tokens.expect(":")
        dtype, shape = _type(reader, name)
        declared = Declared(name.text, shape, name.offset, dtype)
        if name.text in out:
            raise tokens.fault("duplicate", f"two tensors are named {name.text}", name.offset)
        known = tensors.get(name.text)
        if name.text in before and known is not None and (known.dtype, known.shape) != (dtype, shape):
            line = tokens.line_of(known.at)
            message = f"{name.text} has another type as a parameter, in line {line}"
            raise tokens.fault("shape", message, name.offset, "an in/out tensor has one type")
        tensors.setdefault(name.text, declared)
        out.append(name.text)

    tokens.listed("(", ")", read)
    return tuple(out)


def _type(reader: Reader, name: Token) -> tuple[DType, tuple[int, ...]]:
    tokens = reader.tokens
    word = tokens.kind("word", "an element type")
    if word.text not in TYPE_NAMES:
        help = did_you_mean(word.text, TYPE_NAMES, "element types")
        raise tokens.fault("unknown-type", f"there is no element type {word.text}", word.offset, help)
    if not tokens.peek("["):
        return TYPE_NAMES[word.text], ()
    shape = tuple(tokens.listed("[", "]", lambda: reader.size(f"a size of {name.text}")))
    reader.check_rank(name, len(shape))
    return TYPE_NAMES[word.text], shape


def named(programs: Sequence[KernelSource], name: str) -> KernelSource | None:
    """The program of a name, or the only one."""
    if not name and len(programs) == 1:
        return programs[0]
    return next((p for p in programs if p.name == name), None)
