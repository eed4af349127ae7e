"""What is wrong with loops as a program, whatever they compute: names, scopes, types, lanes.

Every program is verified before it is printed as C. A finding is an error of dlc, in a schedule or in what rewrites
loops: without the verifier a compiler would refuse the text, or take it for something else.

* A name stands for one thing: tensors, buffers, and the variables and axes around a statement have different names,
  which are names in C.
* What is read was declared before, in a block around it, with the same type and lanes; what is written is a result, a
  buffer or a declared variable.
* Types follow the table of scalar functions: operands are of one type, conditions are bool, subscripts are integers,
  and a value has the type of the variable or tensor that it goes to. Literals, and operations on literals alone, are
  of the type that is wanted of them, and of its domain.
* Operands of a vector operation have as many lanes as the others, or one; what is picked and folded exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dlc.base.types import DType, bool_, i64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.loops.names import RESERVED
from dlc.kernel.loops.print import print_head, sizes_of
from dlc.kernel.loops.program import (
    Block,
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
    exprs_of,
    parts,
)
from dlc.kernel.loops.verify_values import Values, Wrong, kind
from dlc.kernel.scalar import SCALARS

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Fault:
    """Something that is wrong with a program.

    Attributes:
        problem: What.
        path: Heads of the loops and conditions around the statement, outermost first, as `print_loops` has them.
        statement: The statement; "" where no statement is at fault.
    """

    problem: str
    path: tuple[str, ...] = ()
    statement: str = ""

    def __str__(self) -> str:
        return f"{self.problem}, in {' '.join([*self.path, self.statement])}" if self.statement else self.problem


def verify_loops(program: LoopProgram) -> Fault | None:
    """The first thing that is wrong with a program; None if it is sound."""
    return _Verifier(program).run()


class _Verifier:
    """One walk over a program."""

    def __init__(self, program: LoopProgram) -> None:
        self._program = program
        self._tensors = program.dtypes
        self._written = {p.name for p in program.results} | {b.name for b in program.buffers}
        self._values = Values(self._tensors)
        self._leaves: dict[int, tuple[Axis | Local, ...]] = {}
        self._scope: dict[str, Axis | Local] = {}
        self._path: list[Stmt] = []

    def run(self) -> Fault | None:
        """The first fault."""
        program = self._program
        names = [t.name for t in (*program.params, *program.results, *program.buffers)]
        for k, name in enumerate(names):
            if name in names[:k]:
                return Fault(f"two tensors are named {name}")
            if wrong := _misnamed(name):
                return Fault(wrong)
        try:
            self._body(program.body)
        except Wrong as wrong:
            sizes = sizes_of(program)
            heads = [print_head(s, sizes) for s in self._path]
            return Fault(str(wrong), tuple(heads[:-1]), heads[-1])
        return None

    def _body(self, body: tuple[Stmt, ...]) -> None:
        """Statements of a block, whose variables end with it."""
        outside = self._scope
        self._scope = dict(outside)
        for s in body:
            self._path.append(s)
            self._statement(s)
            self._path.pop()
        self._scope = outside

    def _statement(self, s: Stmt) -> None:
        for e in exprs_of(s):
            self._known(e)
        match s:
            case For(axis, start, stop, body, step):
                for bound in (start, stop):
                    self._values.integer(bound, "a bound of a loop")
                if step < 1:
                    raise Wrong(f"the step of the loop over {axis.name} is {step}")
                if missing := set(s.own) - {b.name for b in self._program.buffers}:
                    raise Wrong(f"iterations have {', '.join(sorted(missing))} to themselves, which is no buffer")
                self._inside(axis, body)
            case If(condition, then, otherwise):
                self._values.fits(condition, bool_, 1, "a condition")
                self._body(then)
                self._body(otherwise)
            case Let(local, value):
                self._values.fits(value, local.dtype, local.lanes, f"{local.name}")
                self._declare(local)
            case Set(local, value):
                self._use(local)
                self._values.fits(value, local.dtype, local.lanes, f"{local.name}")
            case Store(out, at, value, lanes):
                if out not in self._written:
                    raise Wrong(f"{out} is written, and is no result or buffer")
                self._values.integer(at, "a subscript")
                self._values.fits(value, self._tensors[out], lanes, f"an element of {out}")
            case Prefetch(tensor, at):
                self._tensor(tensor)
                self._values.integer(at, "a subscript")
            case Block(body):
                self._body(body)

    def _inside(self, axis: Axis, body: tuple[Stmt, ...]) -> None:
        outside = self._scope
        self._scope = dict(outside)
        self._declare(axis)
        self._body(body)
        self._scope = outside

    # ---- names ----
    def _declare(self, thing: Axis | Local) -> None:
        if wrong := _misnamed(thing.name):
            raise Wrong(wrong)
        if thing.name in self._scope:
            raise Wrong(f"{thing.name} is declared again")
        if thing.name in self._tensors:
            raise Wrong(f"{thing.name} is declared, and is the name of a tensor")
        self._scope[thing.name] = thing

    def _use(self, thing: Axis | Local) -> None:
        found = self._scope.get(thing.name)
        if found is None:
            raise Wrong(f"{thing.name} is used, and is not declared before in a block around")
        if isinstance(thing, Axis):  # sizes of a call are variables, and have the extents of axes
            if isinstance(found, Local) and (found.dtype is not i64 or found.lanes != 1):
                raise Wrong(f"{thing.name} is used as an axis, and is a variable of {kind(found.dtype, found.lanes)}")
        elif isinstance(found, Axis) or found.dtype is not thing.dtype or found.lanes != thing.lanes:
            was = "an axis" if isinstance(found, Axis) else kind(found.dtype, found.lanes)
            raise Wrong(f"{thing.name} is declared as {was}, and used as {kind(thing.dtype, thing.lanes)}")

    def _tensor(self, name: str) -> DType:
        if name not in self._tensors:
            raise Wrong(f"{name} is no tensor of the program")
        return self._tensors[name]

    def _known(self, e: Expr) -> None:
        """Check a part of an expression once, and its names wherever it stands."""
        for leaf in self._checked(e):
            if self._scope.get(leaf.name) is not leaf:
                self._use(leaf)

    def _checked(self, e: Expr) -> tuple[Axis | Local, ...]:
        found = self._leaves.get(id(e))
        if found is None:
            if isinstance(e, Axis | Local):
                found = (e,)
            else:
                inner = [self._checked(p) for p in self._operands(e)]
                found = inner[0] if len(inner) == 1 else tuple(dict.fromkeys(x for xs in inner for x in xs))
                self._values.check(e)
            self._leaves[id(e)] = found
        return found

    def _operands(self, e: Expr) -> tuple[Expr, ...]:
        if isinstance(e, Load):
            self._tensor(e.param)
        elif isinstance(e, Apply) and (e.fn not in SCALARS or len(e.args) != SCALARS[e.fn].arity):
            raise Wrong(f"{e.fn} of {len(e.args)} arguments is no function")
        elif not isinstance(e, Apply | Const | Lanes | Words | Fold | Dots | Shuffle | Pick):
            raise Wrong(f"{type(e).__name__} is no expression of loops")
        return parts(e)


def _misnamed(name: str) -> str:
    """What is wrong with a name; "" if it is one in C."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is no name"
    return f"{name} is a word of C" if name in RESERVED else ""
