"""Parallel loops as C: the loop in a function of its own, for a range of its iterations, and the call that shares them.

    for i in 0..8 parallel own (t): …    →    struct f_loop0_context { const float *p0; float *r0; float *t; };
                                              static void f_loop0(void *context, size_t first, size_t last, …)
                                              void f(…) { … dlc_parallel(f_loop0, &context, 8); }

Ranges are parts of the loop that follow one another, one for each thread. Whoever shares them is the program's own
pool, OpenMP or the caller: see `threads.py`. A function gets what the loop uses from outside in a structure, and has a
copy of what each iteration has to itself: on its stack, or the one of its range in the workspace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from dlc.base.types import DType
from dlc.kernel.expr import Axis, Expr, Load
from dlc.kernel.loops.independent import grain
from dlc.kernel.loops.program import (
    Block,
    Buffer,
    For,
    If,
    Let,
    Local,
    LoopProgram,
    Prefetch,
    Stmt,
    Store,
    exprs_of,
    subexpressions,
    walk_stmts,
)
from dlc_backend_c import in_order, masks, spelling
from dlc_backend_c.indices import index
from dlc_backend_c.lanes_to_c import variable
from dlc_backend_c.past_caches import END, stores_past

_DEFINED: Final = re.compile(r"^(?:struct|static (?:\w+ )*void) (\w+_(?:loop|part)\d+(?:_context)?)\b", re.MULTILINE)


class Writer(Protocol):
    """What writes statements: see `loops_to_c`."""

    lines: list[str]

    def apart(self) -> Writer:
        """One for another function."""
        ...

    def line(self, text: str) -> None:
        """One line of text."""

    def stmts(self, body: Sequence[Stmt]) -> None:
        """Statements at the current depth."""

    def block(self, head: str, body: Sequence[Stmt], first: Sequence[str] = ()) -> None:
        """Statements in braces behind a head."""

    def storage(self, tensor: str) -> DType:
        """The type in which the elements of a tensor lie in memory."""
        ...


@dataclass
class Frame:
    """The function that loops stand in, and those that were taken out of it.

    Attributes:
        name: Of the function.
        pointer: How pointers are declared.
        program: What it computes.
        strides: Buffers of the workspace that each range has to itself → C text of how many elements lie between two.
        functions: The text of functions before it.
    """

    name: str
    pointer: str
    program: LoopProgram
    strides: Mapping[str, str]
    functions: list[str] = field(default_factory=list[str])


def functions_of(text: str) -> tuple[str, ...]:
    """Names that a function's text defines beside the function itself."""
    return tuple(_DEFINED.findall(text))


def share(writer: Writer, loop: For, frame: Frame) -> None:
    """The call that runs a parallel loop; its function is added to the frame's."""
    name = f"{frame.name}_loop{len(frame.functions)}"
    tensors, stack = _tensors(loop, frame)
    variables = dict(_variables(loop))
    fields = {t: f"{_element(writer, frame, t)} *{t}" for t in tensors}
    fields |= {v: f"{kind} {v}" for v, kind in variables.items()}
    together = grain(loop)
    count = f"dlc_iterations({index(loop.start)}, {index(loop.stop)}, {loop.step * together})"
    frame.functions.append(_function(writer, loop, frame, name, (fields, stack, together)))
    writer.line("{")
    given = ", ".join(fields) or "0"
    writer.line(f"    struct {name}_context loop_context = {{{given}}};")
    writer.line(f"    dlc_parallel({name}, &loop_context, {count});")
    writer.line("}")


def apart(writer: Writer, loop: For, frame: Frame) -> None:
    """The call of a loop that is a function of its own, which is added to the frame's."""
    name = f"{frame.name}_part{len(frame.functions)}"
    outside = used_outside_of_parts(frame.program.body)
    used = _tensors(loop, frame)[0]
    stack = [b for b in frame.program.buffers if b.stack and b.name in used and b.name not in outside]
    tensors = [n for n in used if n not in {b.name for b in stack}]
    variables = dict(_variables(loop))
    body = writer.apart()
    for b in stack:
        body.line(stack_array(b, frame.program.aligned))
    body.stmts((replace(loop, apart=False),))
    declared = [f"{_element(writer, frame, t)} {frame.pointer}{t}" for t in tensors]
    declared += [f"{kind} {v}" for v, kind in variables.items()]
    head = f"static {in_order.mark(frame.program)}void {name}({', '.join(declared)})"
    frame.functions.append("\n".join([head, "{", *body.lines, "}", ""]))
    writer.line(f"{name}({', '.join([*tensors, *variables])});")


def used_outside_of_parts(body: tuple[Stmt, ...]) -> set[str]:
    """Names of tensors that are used outside of loops that are functions of their own, or in several of these."""
    found, parts = set[str](), list[set[str]]()

    def walk(statements: tuple[Stmt, ...]) -> None:
        for s in statements:
            match s:
                case For(parallel=False, apart=True):
                    parts.append(set(used_outside((s,))))
                case For(parallel=False, body=inner) | Block(inner):
                    found.update(_loaded(s))
                    walk(inner)
                case If(_, then, otherwise):
                    found.update(_loaded(s))
                    walk((*then, *otherwise))
                case _:
                    found.update(used_outside((s,)))

    walk(body)
    return found | {n for k, names in enumerate(parts) for n in names for other in parts[:k] if n in other}


def _function(
    writer: Writer, loop: For, frame: Frame, name: str, parts: tuple[Mapping[str, str], tuple[Buffer, ...], int]
) -> str:
    fields, stack, together = parts
    body = writer.apart()
    for n, declared in fields.items():
        if "*" not in declared:
            body.line(f"const {declared} = ((struct {name}_context *)loop_context)->{n};")
            continue
        own = f" + loop_share * (size_t)({frame.strides[n]})" if n in loop.own else ""
        kind = declared.rpartition(" *")[0]
        body.line(f"{kind} {frame.pointer}{n} = ((struct {name}_context *)loop_context)->{n}{own};")
    for b in stack:
        body.line(stack_array(b, frame.program.aligned))
    step = loop.step * together
    ends = index(loop.stop)
    body.line(f"const ptrdiff_t loop_start = {index(loop.start)} + (ptrdiff_t)loop_first * {step};")
    body.line(f"const ptrdiff_t loop_end = {index(loop.start)} + (ptrdiff_t)loop_last * {step};")
    body.line(f"const ptrdiff_t loop_stop = dlc_min_index(loop_end, {ends});")
    axis = loop.axis.name
    advance = f"++{axis}" if loop.step == 1 else f"{axis} += {loop.step}"
    unused = [n for n in ("loop_context", "loop_share") if not any(n in line for line in body.lines)]
    head = f"for (ptrdiff_t {axis} = loop_start; {axis} < loop_stop; {advance})"
    body.block(head, loop.body, first=[f"{masks.MACRO};"] * masks.keeps_branches(loop))
    if stores_past(loop.body):
        body.line(f"{END}();")
    declared = "".join(f"    {text};\n" for text in fields.values()) or "    int nothing;\n"
    mark = in_order.mark(frame.program)
    return "\n".join(
        [
            f"struct {name}_context {{\n{declared}}};",
            f"static {mark}void {name}(void *loop_context, size_t loop_first, size_t loop_last, size_t loop_share)",
            "{",
            *(f"    (void){n};" for n in unused),
            *body.lines,
            "}",
            "",
        ]
    )


def used_outside(body: tuple[Stmt, ...], own: frozenset[str] = frozenset()) -> Iterator[str]:
    """Names of tensors in statements, but for what loops around them have to themselves."""
    for s in body:
        names = [e.param for e in subexpressions(exprs_of(s)) if isinstance(e, Load)]
        if isinstance(s, Store | Prefetch):
            names.append(s.out if isinstance(s, Store) else s.tensor)
        yield from (n for n in names if n not in own)
        match s:
            case For(_, _, _, inner):
                yield from used_outside(inner, own | frozenset(s.own))
            case If(_, then, otherwise):
                yield from used_outside((*then, *otherwise), own)
            case Block(inner):
                yield from used_outside(inner, own)
            case _:
                pass


def _loaded(s: Stmt) -> set[str]:
    """Names of what a statement itself reads."""
    return {e.param for e in subexpressions(exprs_of(s)) if isinstance(e, Load)}


def stack_array(b: Buffer, aligned: bool) -> str:
    """The declaration of a buffer on the stack."""
    return f"{spelling.STORAGE[b.dtype]} {b.name}[{b.size}]{' __attribute__((aligned(64)))' * aligned};"


def _element(writer: Writer, frame: Frame, tensor: str) -> str:
    constant = "const " * any(p.name == tensor for p in frame.program.params)
    return f"{constant}{spelling.STORAGE[writer.storage(tensor)]}"


def _tensors(loop: For, frame: Frame) -> tuple[list[str], tuple[Buffer, ...]]:
    """The tensors that a loop gets from outside, and the buffers on the stack that it has itself."""
    stack = {b.name: b for b in frame.program.buffers if b.stack and b.name in loop.own}
    used: dict[str, None] = {}
    for s in walk_stmts((loop,)):
        match s:
            case Store(name, _, _, _) | Prefetch(name, _, _):
                used[name] = None
            case _:
                pass
        used.update((e.param, None) for e in subexpressions(exprs_of(s)) if isinstance(e, Load))
    return [n for n in used if n not in stack], tuple(b for n, b in stack.items() if n in used)


def _variables(loop: For) -> Iterator[tuple[str, str]]:
    """Variables from outside that a loop uses, with their C types."""
    bound = frozenset({loop.axis.name})
    for e in (*subexpressions(exprs_of(loop)), *_free(loop.body, bound)):
        match e:
            case Axis(name, _):
                yield name, "ptrdiff_t"
            case Local():
                yield e.name, variable(e)
            case _:
                pass


def _free(body: tuple[Stmt, ...], bound: frozenset[str]) -> Iterator[Expr]:
    """Uses of variables that the statements do not declare themselves."""
    for s in body:
        for e in subexpressions(exprs_of(s)):
            if isinstance(e, Axis | Local) and e.name not in bound:
                yield e
        match s:
            case For(axis, _, _, inner):
                yield from _free(inner, bound | {axis.name})
            case If(_, then, otherwise):
                yield from _free(then, bound)
                yield from _free(otherwise, bound)
            case Block(inner):
                yield from _free(inner, bound)
            case Let(local, _):
                bound = bound | {local.name}
            case _:
                pass
