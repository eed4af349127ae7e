"""Loops: the scheduled form of a kernel, ordered and explicit, ready to be spelled in a language.

    Program := parameters, results, buffers, Stmt*
    Stmt    := For | If | Let | Set | Store | Prefetch | Block
    Expr    := the expressions of nests, with one flat subscript per load
             | Local | Lanes | Fold | Words | Dots | Shuffle | Pick

A nest says what is computed; this form says how. Every tensor is one-dimensional here: a load's only subscript counts
elements. Loads and stores of a parameter or result that is `stored` in a narrow type convert: everything in between has
the type that is computed with. Vectors are values of named locals: `Lanes` reads one, arithmetic works lane by lane (a
scalar operand is repeated), `Fold` combines the lanes into a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from dlc.base.types import DType, Type, bf16, f32, i32, i64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.nest import Param
from dlc.kernel.scalar import result_dtype

PREFETCH_HINTS: Final = ("later", "once")
"""What `Prefetch.hint` may say."""
WORD: Final = 4
"""Bytes of a word: terms of a sum of products that an instruction multiplies and adds at once."""


@dataclass(frozen=True)
class Local(Expr):
    """A named variable of the program; `lanes` > 1 makes it a vector."""

    name: str
    dtype: DType
    lanes: int = 1
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.dtype, self.lanes)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Lanes(Expr):
    """The vector of `lanes` elements of which `first` is the first; all of them must exist.

    Attributes:
        step: From an element to the next: 1, 2 for every second one, or how many packed elements a word holds.
    """

    first: Load
    lanes: int
    step: int = 1

    @property
    def span(self) -> int:
        """Elements from the first to the last."""
        return (self.lanes - 1) * self.step + 1


@dataclass(frozen=True)
class Fold(Expr):
    """All lanes of a vector combined by `fn` (add, mul, min, max) into a scalar, in tree order."""

    fn: str
    vector: Local


@dataclass(frozen=True)
class Words(Expr):
    """`lanes` words of four bytes each, from `first` on; all of them must exist.

    A word has four elements of bytes, and is an i32, or two that are stored as bf16, and these it is: a variable of two
    bf16 for each lane. Their bits are what `Dots` multiplies; which element is the lowest is the machine's choice.

    Attributes:
        step: From an element of a word to the next: 1, or how many packed elements a byte holds, of which each becomes
            a byte without a sign.
    """

    first: Load
    lanes: int = 1
    step: int = 1

    def span(self, itemsize: int) -> int:
        """Elements from the first to the last, of so many bytes each."""
        return (WORD * self.lanes // itemsize - 1) * self.step + 1


@dataclass(frozen=True)
class Dots(Expr):
    """In each lane the sum of the products of a word's elements.

    Of bytes it is an i32, with those of `a` without a sign and those of `b` with one; of bf16 an f32. Sums to which the
    latter are added may take subnormal numbers for zero.
    """

    a: Local
    b: Local

    @property
    def dtype(self) -> DType:
        return f32 if self.b.dtype is bf16 else i32


@dataclass(frozen=True)
class Shuffle(Expr):
    """A vector of lanes of two others of the same length; they may be the same one.

    Attributes:
        order: For each lane which one it is: those of `a` are counted first, then those of `b`.
    """

    a: Local
    b: Local
    order: tuple[int, ...]


@dataclass(frozen=True)
class Pick(Expr):
    """A vector of elements that data pick of others, which lie one behind the other.

    Attributes:
        parts: The vectors that hold these, each of as many lanes as the result.
        places: For each lane which element it is, as an i32; all of them must exist.
        ahead: How many elements further it is.
    """

    parts: tuple[Local, ...]
    places: Lanes
    ahead: int = 0


@dataclass(frozen=True)
class Buffer:
    """Working memory of a program. Its content is undefined at the start.

    Attributes:
        type: Its elements; with open dimensions it has room for the largest sizes, as all tensors do.
        stack: Small enough for the stack; otherwise it lies in the workspace that the caller provides.
        below: What is written there is at least 0 and below this number; None: nothing is known.
        copies: How many there are of it in the workspace, one for each thread: what parallel loops call their own.
        digits: Whether its bytes are digits of floats: they differ from what the digits make up by rounding.
    """

    name: str
    type: Type
    stack: bool = False
    below: int | None = None
    copies: int = 1
    digits: bool = False

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def size(self) -> int:
        """Elements for the largest sizes."""
        return self.type.capacity


@dataclass(frozen=True)
class For:
    """for axis = start; axis < stop; axis += step.

    Attributes:
        parallel: Iterations may run at the same time: none touches what another one writes, but for its own buffers.
        own: Of a parallel loop, the buffers of which each iteration has one to itself, undefined at its start.
        unroll: Iterations that compilers are to write out one after another, 1 where that takes code and saves no time;
            0: as they like.
        apart: A function of its own, which kernels that differ in numbers may share.
    """

    axis: Axis
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]
    step: int = 1
    parallel: bool = False
    own: tuple[str, ...] = ()
    unroll: int = 0
    apart: bool = False


@dataclass(frozen=True)
class If:
    """if condition: then, else otherwise."""

    condition: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True)
class Let:
    """Declare a variable with its first value."""

    local: Local
    value: Expr


@dataclass(frozen=True)
class Set:
    """Assign to a declared variable."""

    local: Local
    value: Expr


@dataclass(frozen=True)
class Store:
    """out[at] = value; with `lanes` > 1 the value fills that many elements from `at` on.

    Attributes:
        past: Past the caches, where the machine can: nothing reads these elements soon.
    """

    out: str
    at: Expr
    value: Expr
    lanes: int = 1
    past: bool = False


@dataclass(frozen=True)
class Prefetch:
    """A hint that the cache line around tensor[at] is wanted soon, to be written or only read.

    Attributes:
        hint: "later": much else is wanted before, so that the second-level cache is the place for it, not the first;
            "once": it is not wanted again; "": neither.
    """

    tensor: str
    at: Expr
    write: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Block:
    """Statements whose variables end with it."""

    body: tuple[Stmt, ...]


Stmt: TypeAlias = For | If | Let | Set | Store | Prefetch | Block


@dataclass(frozen=True)
class LoopProgram:
    """A kernel as loops.

    Attributes:
        aligned: Buffers on the stack are read and written as vectors.
    """

    params: tuple[Param, ...]
    results: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    aligned: bool = False

    @cached_property
    def used(self) -> frozenset[str]:
        """Names of the tensors and buffers that are read or written."""
        return frozenset(reads(self.body) | writes(self.body))

    @cached_property
    def dtypes(self) -> Mapping[str, DType]:
        """Type of the elements of each tensor and buffer."""
        return {t.name: t.dtype for t in (*self.params, *self.results, *self.buffers)}


def loop(axis: Axis, *body: Stmt) -> For:
    """The whole range of an axis."""
    return For(axis, Const(0), axis.stop, body)


def wrap(axes: tuple[Axis, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body inside the loops of all axes, outermost first."""
    for axis in reversed(axes):
        body = (loop(axis, *body),)
    return body


def parts(e: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions, those of vectors included."""
    if isinstance(e, Apply):
        return e.args
    if isinstance(e, Load):
        return e.index
    if isinstance(e, Lanes | Words):
        return (e.first,)
    if isinstance(e, Fold):
        return (e.vector,)
    if isinstance(e, Pick):
        return (*e.parts, e.places)
    return (e.a, e.b) if isinstance(e, Dots | Shuffle) else ()


def dtype_of(e: Expr, tensors: Mapping[str, DType], known: dict[Expr, DType | None]) -> DType | None:
    """Type of an expression over tensors of these types; None for literals. `known` remembers what was found."""
    if e not in known:
        match e:
            case Const():
                found = None
            case Axis():
                found = i64
            case Load(name, _) | Lanes(Load(name, _), _, _):
                found = tensors[name]
            case Local(_, dtype, _) | Fold(_, Local(_, dtype, _)) | Shuffle(Local(_, dtype, _)):
                found = dtype
            case Pick((Local(_, dtype, _), *_)):
                found = dtype
            case Words(Load(name, _), _, step):
                found = bf16 if tensors[name] is f32 and step == 1 else i32
            case Dots():
                found = e.dtype
            case Apply(fn, args):
                found = result_dtype(fn, tuple([dtype_of(a, tensors, known) for a in args]))
            case _:
                raise AssertionError(e)
        known[e] = found
    return known[e]


def lanes_of(e: Expr, of_argument: Callable[[Expr], int]) -> int:
    """Lanes of a value, 1 of scalars; `of_argument` gives those of an argument of a function."""
    match e:
        case Local(_, _, n) | Lanes(_, n, _) | Words(_, n):
            return n
        case Shuffle(_, _, order):
            return len(order)
        case Pick(_, places):
            return places.lanes
        case Dots(_, b):
            return b.lanes * b.dtype.itemsize // e.dtype.itemsize
        case Apply(_, args):
            return max(map(of_argument, args))
        case _:
            return 1


def exprs_of(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement evaluates itself (not those of the statements inside it)."""
    match stmt:
        case For(_, start, stop, _, _):
            return start, stop
        case If(condition, _, _):
            return (condition,)
        case Let(_, value) | Set(_, value):
            return (value,)
        case Store(_, at, value, _):
            return at, value
        case Prefetch(_, at, _):
            return (at,)
        case Block():
            return ()


def walk_stmts(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, outer ones first."""
    for stmt in body:
        yield stmt
        match stmt:
            case For(_, _, _, inner, _) | Block(inner):
                yield from walk_stmts(inner)
            case If(_, then, otherwise):
                yield from walk_stmts(then)
                yield from walk_stmts(otherwise)
            case _:
                pass


def axes_of(body: tuple[Stmt, ...]) -> set[Axis]:
    """The axes that occur in expressions, also in those of vectors."""
    return {e for e in subexpressions(e for s in walk_stmts(body) for e in exprs_of(s)) if isinstance(e, Axis)}


def subexpressions(exprs: Iterable[Expr]) -> Iterator[Expr]:
    """All parts of expressions in reading order, each object once."""
    stack = list(exprs)[::-1]
    seen: set[int] = set()  # by identity: copies are few, and equality would compare whole expressions
    while stack:
        e = stack.pop()
        if id(e) not in seen:
            seen.add(id(e))
            yield e
            stack += parts(e)[::-1]


def reads(body: tuple[Stmt, ...]) -> set[str]:
    """Names of the tensors and buffers that are read."""
    found = subexpressions(e for s in walk_stmts(body) for e in exprs_of(s))
    return {e.param for e in found if isinstance(e, Load)}


def writes(body: tuple[Stmt, ...]) -> set[str]:
    """Names of the tensors and buffers that are written."""
    return {s.out for s in walk_stmts(body) if isinstance(s, Store)}
