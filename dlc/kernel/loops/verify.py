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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dlc.base.types import DType, bool_, i32, i64
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
    dtype_of,
    exprs_of,
    lanes_of,
    parts,
)
from dlc.kernel.scalar import SCALARS, result_dtype

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_FOLDS: Final = ("add", "mul", "min", "max")


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


class _Wrong(Exception):
    """A statement is wrong."""


def verify_loops(program: LoopProgram) -> Fault | None:
    """The first thing that is wrong with a program; None if it is sound."""
    return _Verifier(program).run()


class _Verifier:
    """One walk over a program."""

    def __init__(self, program: LoopProgram) -> None:
        self._program = program
        self._tensors = program.dtypes
        self._written = {p.name for p in program.results} | {b.name for b in program.buffers}
        self._types: dict[int, DType | None] = {}
        self._lanes: dict[int, int] = {}
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
        except _Wrong as wrong:
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
                    self._integer(bound, "a bound of a loop")
                if step < 1:
                    raise _Wrong(f"the step of the loop over {axis.name} is {step}")
                if missing := set(s.own) - {b.name for b in self._program.buffers}:
                    raise _Wrong(f"iterations have {', '.join(sorted(missing))} to themselves, which is no buffer")
                self._inside(axis, body)
            case If(condition, then, otherwise):
                self._is(condition, bool_, 1, "a condition")
                self._body(then)
                self._body(otherwise)
            case Let(local, value):
                self._is(value, local.dtype, local.lanes, f"{local.name}")
                self._declare(local)
            case Set(local, value):
                self._use(local)
                self._is(value, local.dtype, local.lanes, f"{local.name}")
            case Store(out, at, value, lanes):
                if out not in self._written:
                    raise _Wrong(f"{out} is written, and is no result or buffer")
                self._integer(at, "a subscript")
                self._is(value, self._tensors[out], lanes, f"an element of {out}")
            case Prefetch(tensor, at):
                self._tensor(tensor)
                self._integer(at, "a subscript")
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
            raise _Wrong(wrong)
        if thing.name in self._scope:
            raise _Wrong(f"{thing.name} is declared again")
        if thing.name in self._tensors:
            raise _Wrong(f"{thing.name} is declared, and is the name of a tensor")
        self._scope[thing.name] = thing

    def _use(self, thing: Axis | Local) -> None:
        found = self._scope.get(thing.name)
        if found is None:
            raise _Wrong(f"{thing.name} is used, and is not declared before in a block around")
        if isinstance(thing, Axis):  # sizes of a call are variables, and have the extents of axes
            if isinstance(found, Local) and (found.dtype is not i64 or found.lanes != 1):
                raise _Wrong(f"{thing.name} is used as an axis, and is a variable of {_kind(found.dtype, found.lanes)}")
        elif isinstance(found, Axis) or found.dtype is not thing.dtype or found.lanes != thing.lanes:
            was = "an axis" if isinstance(found, Axis) else _kind(found.dtype, found.lanes)
            raise _Wrong(f"{thing.name} is declared as {was}, and used as {_kind(thing.dtype, thing.lanes)}")

    def _tensor(self, name: str) -> DType:
        if name not in self._tensors:
            raise _Wrong(f"{name} is no tensor of the program")
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
                _CHECKS.get(type(e), _nothing)(self, e)
            self._leaves[id(e)] = found
        return found

    def _operands(self, e: Expr) -> tuple[Expr, ...]:
        if isinstance(e, Load):
            self._tensor(e.param)
        elif isinstance(e, Apply) and (e.fn not in SCALARS or len(e.args) != SCALARS[e.fn].arity):
            raise _Wrong(f"{e.fn} of {len(e.args)} arguments is no function")
        elif not isinstance(e, Apply | Const | Lanes | Words | Fold | Dots | Shuffle | Pick):
            raise _Wrong(f"{type(e).__name__} is no expression of loops")
        return parts(e)

    # ---- types and lanes ----
    def dtype(self, e: Expr) -> DType | None:
        """The type of an expression; None of a literal, and of a choice between literals."""
        if isinstance(e, Const):
            return None
        key = id(e)  # the program keeps it; equality would compare whole expressions
        if key not in self._types:
            try:
                if isinstance(e, Apply):
                    self._types[key] = result_dtype(e.fn, tuple([self.dtype(a) for a in e.args]))
                else:
                    self._types[key] = dtype_of(e, self._tensors, {})
            except TypeError as wrong:
                raise _Wrong(str(wrong)) from None
        return self._types[key]

    def lanes(self, e: Expr) -> int:
        """How many lanes a value has."""
        found = self._lanes.get(id(e))
        if found is None:
            found = self._lanes[id(e)] = lanes_of(e, self.lanes)
        return found

    def _integer(self, e: Expr, what: str) -> None:
        found = self.dtype(e)
        if self.lanes(e) != 1:
            raise _Wrong(f"{what} has {self.lanes(e)} lanes")
        if not (found.is_integer if found is not None else not isinstance(e, Const) or type(e.value) is int):
            raise _Wrong(f"{what} is of type {found or 'f32'}, which is no integer")

    def _is(self, e: Expr, dtype: DType, lanes: int, what: str) -> None:
        """A value that goes to something of a type and so many lanes."""
        found = self.dtype(e)
        if found is not None and found is not dtype and not (lanes > 1 and found in _held(dtype)):
            raise _Wrong(f"a value of {found} goes to {what}, which is of {dtype}")
        if found is None:
            self.literals(e, dtype)
        n = self.lanes(e)
        if n not in (1, lanes) and not isinstance(e, Words):
            raise _Wrong(f"a value of {n} lanes goes to {what}, which has {lanes}")

    def literals(self, e: Expr, dtype: DType) -> None:
        """A literal, or a choice between some, as a value of a type."""
        match e:
            case Const(v) if type(v) is bool and dtype is not bool_:
                raise _Wrong(f"the literal {v} is used as a value of {dtype}")
            case Const(v) if type(v) is float and not dtype.is_float:
                raise _Wrong(f"the literal {v} is used as a value of {dtype}")
            case Const(v) if dtype is bool_ and type(v) is not bool:
                raise _Wrong(f"the literal {v} is used as a truth value")
            case Apply("select", (_, then, otherwise)):
                self.literals(then, dtype)
                self.literals(otherwise, dtype)
            case Apply(fn, args) if SCALARS[fn].rule == "same":
                domain = SCALARS[fn].domain
                if (domain == "float" and not dtype.is_float) or (domain == "int" and not dtype.is_integer):
                    raise _Wrong(f"{fn} of literals is used as a value of {dtype}")
                for a in args:
                    self.literals(a, dtype)
            case _:
                pass


def _apply(self: _Verifier, e: Expr) -> None:
    assert isinstance(e, Apply)
    self.dtype(e)
    counts = {self.lanes(a) for a in e.args} - {1}
    if len(counts) > 1:
        raise _Wrong(f"{e.fn} of vectors of {' and '.join(map(str, sorted(counts)))} lanes")
    scalar = SCALARS[e.fn]
    if scalar.rule == "select":
        condition = self.dtype(e.args[0])
        if condition is not bool_ and not (isinstance(e.args[0], Const) and type(e.args[0].value) is bool):
            raise _Wrong(f"select by a condition of type {condition or 'a number'}")
    if scalar.to is not None:
        return
    values = e.args[1:] if scalar.rule == "select" else e.args
    common = next((d for a in values if (d := self.dtype(a)) is not None), None)
    if scalar.domain == "bool" and common not in (None, bool_):
        raise _Wrong(f"{e.fn} of {common}, which is defined for truth values")
    if common is None and scalar.domain == "bool":
        common = bool_
    for a in values:
        if common is not None and self.dtype(a) is None:
            self.literals(a, common)


def _load(self: _Verifier, e: Expr) -> None:
    assert isinstance(e, Load)
    if len(e.index) != 1:
        raise _Wrong(f"{e.param} is read with {len(e.index)} subscripts")
    self._integer(e.index[0], "a subscript")  # pyright: ignore[reportPrivateUsage]


def _lanes(_: _Verifier, e: Expr) -> None:
    assert isinstance(e, Lanes | Words)
    if e.lanes < 1 or e.step < 1:
        raise _Wrong(f"a vector of {e.lanes} elements by {e.step}")


def _fold(_: _Verifier, e: Expr) -> None:
    assert isinstance(e, Fold)
    if e.fn not in _FOLDS or e.vector.lanes & (e.vector.lanes - 1):
        raise _Wrong(f"{e.fn} of {e.vector.lanes} lanes")


def _dots(_: _Verifier, e: Expr) -> None:
    assert isinstance(e, Dots)
    if e.a.dtype is not e.b.dtype or (e.a.lanes not in (1, e.b.lanes) and e.b.lanes != 1):
        a, b = (_kind(x.dtype, x.lanes) for x in (e.a, e.b))
        raise _Wrong(f"dots of {a} and {b}")


def _shuffle(_: _Verifier, e: Expr) -> None:
    assert isinstance(e, Shuffle)
    if e.a.dtype is not e.b.dtype or e.a.lanes != e.b.lanes:
        raise _Wrong(f"a shuffle of {_kind(e.a.dtype, e.a.lanes)} and {_kind(e.b.dtype, e.b.lanes)}")
    if any(not 0 <= k < 2 * e.a.lanes for k in e.order):
        raise _Wrong(f"a shuffle of {2 * e.a.lanes} lanes by {max(e.order, key=abs)}")


def _pick(self: _Verifier, e: Expr) -> None:
    assert isinstance(e, Pick)
    if any(x.lanes != e.places.lanes or x.dtype is not e.parts[0].dtype for x in e.parts):
        raise _Wrong("a pick of vectors that differ")
    if self.dtype(e.places) is not i32:
        raise _Wrong(f"a pick by {self.dtype(e.places)}")


def _nothing(_: _Verifier, e: Expr) -> None:
    del e


_CHECKS: Final[Mapping[type, Callable[[_Verifier, Expr], None]]] = {
    Apply: _apply,
    Load: _load,
    Lanes: _lanes,
    Words: _lanes,
    Fold: _fold,
    Dots: _dots,
    Shuffle: _shuffle,
    Pick: _pick,
}


def _held(dtype: DType) -> Iterator[DType]:
    """Types of vectors that hold values of a type: those of narrow ones and of bytes are wider."""
    yield dtype.compute
    if dtype.bits == 8:
        yield i32


def _kind(dtype: DType, lanes: int) -> str:
    return f"{dtype}x{lanes}" if lanes > 1 else str(dtype)


def _misnamed(name: str) -> str:
    """What is wrong with a name; "" if it is one in C."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is no name"
    return f"{name} is a word of C" if name in RESERVED else ""
