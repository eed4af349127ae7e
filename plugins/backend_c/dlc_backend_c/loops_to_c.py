"""Loops as C text: one function per program.

Subscript arithmetic is done in ptrdiff_t; everything else goes through `spelling`. A value that an expression needs
several times is computed once, in a variable of its own, so text never grows faster than the expression.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.base.types import DType, bool_, f32, i32, i64
from dlc.kernel.expr import Apply, Const, Expr, Load
from dlc.kernel.loops.names import fresh, names_of
from dlc.kernel.loops.program import (
    WORD,
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
    lanes_of,
    subexpressions,
)
from dlc.kernel.nest import LITERAL_DTYPES, converted_dtype
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.extents import sizes_first
from dlc.kernel.schedules.overrun import in_program
from dlc.kernel.simplify import is_index, simplify
from dlc_backend_c import in_order, masks, rolled, spelling
from dlc_backend_c.byte_forms import to_byte, whole
from dlc_backend_c.condition_indices import HELPER, Conditions, assigned
from dlc_backend_c.indices import index
from dlc_backend_c.kept_loads import kept
from dlc_backend_c.lanes_to_c import BYTES, converted, dots, pick, shuffle, splat, variable, vector
from dlc_backend_c.outline import Frame, apart, share, stack_array, used_outside_of_parts
from dlc_backend_c.past_caches import END, stores_past
from dlc_backend_c.shared_parts import shared_parts
from dlc_backend_c.working import aligned_elements, open_places, strides, workspace_places

LOCALITY = {"": "", "later": ", 2", "once": ", 0"}
"""Of 3, the nearest cache: the last argument of a prefetch by its hint."""


@dataclass
class Writer:
    """Lines of one function, with the types of everything in reach, and of narrow elements as they are stored."""

    tensors: Mapping[str, DType]
    stored: Mapping[str, DType] = field(default_factory=dict[str, DType])
    packed: Collection[str] = ()
    frame: Frame | None = None
    lines: list[str] = field(default_factory=list[str])
    depth: int = 1
    names: Iterator[str] = field(default_factory=lambda: fresh("v", ()))
    values: dict[str, list[Expr]] = field(default_factory=dict[str, list[Expr]])
    """Variable → what it may have been given."""
    _types: dict[Expr, DType | None] = field(default_factory=dict[Expr, "DType | None"])
    _lanes: dict[Expr, int] = field(default_factory=dict[Expr, int])
    _steps: dict[str, int] = field(default_factory=dict[str, int])

    def apart(self) -> Writer:
        """Another function that knows the same tensors; names of variables go on."""
        return Writer(
            self.tensors,
            self.stored,
            self.packed,
            names=self.names,
            values=self.values,
            _types=self._types,
            _lanes=self._lanes,
        )

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def dtype(self, e: Expr) -> DType | None:
        """Type of an expression, None for literals."""
        return dtype_of(e, self.tensors, self._types)

    def lanes(self, e: Expr) -> int:
        """Lanes of a value, 1 for scalars."""
        if e not in self._lanes:
            self._lanes[e] = lanes_of(e, self.lanes)
        return self._lanes[e]

    def stmts(self, body: Sequence[Stmt]) -> None:
        """Statements at the current depth."""
        held = kept(body, self._steps)
        for s in body:
            if isinstance(s, Let) and s.local in held:
                local, text = s.local, self.computed(s.value, s.local.dtype, s.local.lanes)
                self.line(f"{variable(local)} {local.name} = dlc_kept_{variable(local)}({text});")
            else:
                self.stmt(s)

    def stmt(self, s: Stmt) -> None:
        """One statement."""
        match s:
            case For(parallel=True) if self.frame is not None:
                share(self, s, self.frame)
            case For(apart=True) if self.frame is not None:
                apart(self, s, self.frame)
            case For(axis, start, stop, body, step):
                name = axis.name
                advance = f"++{name}" if step == 1 else f"{name} += {step}"
                self._steps[name] = step
                head = f"for (ptrdiff_t {name} = {index(start)}; {name} < {index(stop)}; {advance})"
                self.block(rolled.mark(s) + head, body, first=[f"{masks.MACRO};"] * masks.keeps_branches(s))
            case If(condition, then, otherwise):
                self.block(f"if ({self.value(condition, bool_)})", then)
                if otherwise:
                    self.block("else", otherwise)
            case Let(local, value):
                self.line(f"{variable(local)} {local.name} = {self.computed(value, local.dtype, local.lanes)};")
            case Set(local, value):
                self.line(f"{local.name} = {self.computed(value, local.dtype, local.lanes)};")
            case Store():
                self._store(s)
            case Prefetch(tensor, at, write, hint):
                place = self.subscript(at)
                if tensor in self.packed:
                    place = f"({place}) / {self.storage(tensor).per_byte}"
                self.line(f"__builtin_prefetch(&{tensor}[{place}], {int(write)}{LOCALITY[hint]});")
            case Block(body):
                self.block("", body)

    def block(self, head: str, body: Sequence[Stmt], first: Sequence[str] = ()) -> None:
        """A braced block behind a head, with lines in front of its statements."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        for text in first:
            self.line(text)
        self.stmts(body)
        self.depth -= 1
        self.line("}")

    def _store(self, s: Store) -> None:
        out, at, value, lanes = s.out, s.at, s.value, s.lanes
        dtype, storage = self.tensors[out], self.storage(out)
        element = f"{out}[{self.subscript(at)}]"
        bits = storage if lanes == 1 and storage.bits >= 8 else None
        if isinstance(value, Load) and self.storage(value.param) is bits:
            self.line(f"{element} = {value.param}[{self.subscript(value.index[0])}];")  # bits, whatever they mean
            return
        scalar = lanes > 1 and self.lanes(value) == 1  # which every lane gets
        like = i32 if scalar and storage in BYTES else dtype.compute if scalar else dtype
        rounded = self._rounding(value, storage)
        if rounded is not None and scalar:
            rounded = splat(storage.compute, lanes, rounded)
        text = rounded or self.computed(value, like, lanes)
        if lanes == 1:
            self.line(f"{element} = {spelling.store(storage, text)};")
        elif storage in BYTES:
            self.line(f"dlc_store_{storage}_i32x{lanes}(&{element}, {text});")
        elif s.past:
            self.line(f"dlc_store_past_{dtype}x{lanes}(&{element}, {text});")
        elif storage is dtype:
            self.line(f"*({dtype}x{lanes}_any *)&{element} = {text};")
        else:
            self.line(f"dlc_store_{storage}_{dtype}x{lanes}(&{element}, {text});")

    def storage(self, tensor: str) -> DType:
        """The type in which the elements of a tensor lie in memory."""
        return self.stored.get(tensor, self.tensors[tensor])

    def _rounding(self, e: Expr, dtype: DType) -> str | None:
        """What a conversion to a narrow type converts, in its compute type: storing the bits of a value rounds it."""
        if not dtype.narrow or not isinstance(e, Apply) or e.fn != dtype.name or isinstance(e.args[0], Const):
            return None
        (x,) = e.args
        source = self.dtype(x) or dtype.compute
        text = self.computed(x, source)
        if source is dtype.compute:
            return text
        at_once = source.is_float and not dtype.library  # also from f64
        return spelling.spell((dtype if at_once else dtype.compute).name, source, (text,))

    def computed(self, e: Expr, like: DType, lanes: int = 1) -> str:
        """The value of an expression, with what it needs more than once computed before."""
        names: dict[Expr, Expr] = {}
        for part in shared_parts(e):
            dtype = self.dtype(part)
            if dtype is None:  # a choice between literals, which take their type from where it is used
                continue
            wide = self.lanes(part)
            # Vectors of narrow floats are rounded values of the type that is computed with.
            local = Local(next(self.names), dtype.compute if wide > 1 and dtype.narrow else dtype, wide)
            self.line(f"{variable(local)} {local.name} = {self.value(replaced(part, names), dtype)};")
            names[part] = local
            self.values[local.name] = [part]
        text = self.value(replaced(e, names), like)
        return text if lanes == 1 or self.lanes(e) > 1 else splat(like, lanes, text)

    def value(self, e: Expr, like: DType | None) -> str:
        """C text of a value, safe as an operand; a literal takes the type `like`."""
        if is_index(e) and not isinstance(e, Const):
            return f"((int64_t)({index(e)}))"
        match e:
            case Const(v):
                return spelling.literal(v, like or LITERAL_DTYPES[type(v)])
            case Local(name, _, _):
                return name
            case Load(name, (at,)):
                return self._load(name, self.subscript(at))
            case Lanes() | Words():
                return self._elements(e)
            case Dots():
                return dots(e, n := self.lanes(e), splat(e.dtype, n, spelling.literal(0, e.dtype)))
            case Shuffle():
                return shuffle(e)
            case Pick(parts, places, ahead):
                return pick(parts, f"&{places.first.param}[{self.subscript(places.first.index[0])}]", ahead)
            case Fold(fn, v):
                return f"dlc_fold_{fn}_{v.dtype}x{v.lanes}({v.name})"
            case Apply(fn, args):
                return self._apply(fn, args, like)
            case _:
                raise AssertionError(e)

    def _elements(self, e: Lanes | Words) -> str:
        """The values of neighbouring elements, as a vector or as words of bytes."""
        name, n, at = e.first.param, e.lanes, self.subscript(e.first.index[0])
        if isinstance(e, Words) and e.step > 1:
            return f"(i32x{n})dlc_bytes_{self.stored[name]}_u32x{n}({name}, {_in_word(e.first, WORD * e.step)})"
        if isinstance(e, Words):
            return f"(*(const {'dlc_word' if n == 1 else f'i32x{n}_bytes'} *)&{name}[{at}])"
        dtype = self.tensors[name]
        if e.step > 1:
            return self._every(e) if name in self.packed else f"dlc_load_second_{dtype}x{n}(&{name}[{at}])"
        if name in self.packed:
            return f"dlc_unpack_{self.stored[name]}_{dtype}x{n}({name}, {at})"
        if name in self.stored:
            return f"dlc_load_{self.stored[name]}_{dtype}x{n}(&{name}[{at}])"
        if dtype in BYTES:
            return f"dlc_load_{dtype}_i32x{n}(&{name}[{at}])"
        return f"(*(const {dtype}x{n}_any *)&{name}[{at}])"

    def _every(self, e: Lanes, raised: bool = False) -> str:
        """The values of an element of each of several words; `raised` by the bits below it."""
        name, kind = e.first.param, "raised" if raised else "every"
        place = _in_word(e.first, e.step)
        return f"dlc_{kind}_{self.stored[name]}_{self.tensors[name]}x{e.lanes}({name}, {place})"

    def _times_every(self, x: str, e: Lanes, like: DType) -> str:
        """A vector times elements of words: two to the power of the bits below them is in the other factor."""
        place, stored = _place_in_word(e.first, e.step), self.stored[e.first.param]
        if stored.kind != "uint" or place in (0, e.step - 1):  # the upper bits of a word are no number with a sign
            return f"({x} * {self._every(e)})"
        return f"(({x} * {spelling.literal(2.0 ** -(place * stored.bits), like)}) * {self._every(e, raised=True)})"

    def _load(self, name: str, at: str) -> str:
        """The value of an element."""
        storage = self.storage(name)
        bits = f"dlc_{storage}_at({name}, {at})" if name in self.packed else f"{name}[{at}]"
        value = spelling.load(storage, bits)
        # Elements of narrow integers may be meant as floats.
        return value if self.tensors[name] in (storage, storage.compute) else f"((float){value})"

    def subscript(self, e: Expr) -> str:
        """A flat subscript; data may take part in it."""
        if is_index(e):
            return index(e)
        if Conditions(self.values, self.dtype).is_mask(e):
            return f"{HELPER}({self.value(e, i64)})"
        return f"(ptrdiff_t){self.value(e, i64)}"

    def _apply(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> str:
        scalar = SCALARS[fn]
        if scalar.to is not None:
            (x,) = args
            n = self.lanes(x)
            if (found := to_byte(Apply(fn, args), self.dtype(x))) is not None:
                rounded, *bounds = found
                texts = (self.value(rounded, f32), *(spelling.literal(b, i32) for b in bounds))
                if n > 1:
                    return f"dlc_to_byte_i32x{n}({', '.join(texts)})"
                return f"(({spelling.VALUE[scalar.to]})dlc_to_byte({', '.join(texts)}))"
            if n > 1:
                return self._floats(Apply(fn, args), n) or converted(self.dtype(x), scalar.to, n, self.value(x, None))
            like = converted_dtype(x.value, scalar.to) if isinstance(x, Const) else None
            if scalar.to.is_integer and scalar.to.bits in (8, 16) and self.dtype(x) is f32 and _bounded(x):
                return f"(({spelling.VALUE[scalar.to]})dlc_bounded({self.value(x, None)}))"
            return spelling.spell(fn, like or self.dtype(x) or self._literal_type(args), (self.value(x, like),))
        branches = args[1:] if scalar.rule == "select" else args
        inner = next((d for a in branches if (d := self.dtype(a)) is not None), None)
        if inner is None:
            inner = like if scalar.rule != "bool" and like else self._literal_type(branches)
        n = max(self.lanes(a) for a in args)
        if fn == "add" and isinstance(args[1], Dots):
            return dots(args[1], n, self.value(args[0], args[1].dtype))
        texts = tuple(self.value(a, bool_ if scalar.rule == "select" and k == 0 else inner) for k, a in enumerate(args))
        if n > 1:
            wide = tuple(t if self.lanes(a) > 1 else splat(inner, n, t) for t, a in zip(texts, args, strict=True))
            if fn == "mul" and isinstance(args[1], Lanes) and args[1].step > 1 and args[1].first.param in self.packed:
                return self._times_every(wide[0], args[1], inner)
            return vector(fn, inner, n, wide, args)
        if fn in ("min", "max") and inner.is_float and isinstance(args[1], Const) and args[1].value == args[1].value:
            return f"dlc_{fn}c_{'f64' if inner.itemsize == 8 else 'f32'}({texts[0]}, {texts[1]})"
        return spelling.spell(fn, inner, texts)

    def _floats(self, e: Apply, n: int) -> str | None:
        """Floats of bytes that are made of floats: they are whole already."""
        if (found := whole(e, self.dtype)) is None:
            return None
        x, low, high, more = found
        text = f"dlc_whole_f32x{n}({self.value(x, f32)}, {spelling.literal(low, f32)}, {spelling.literal(high, f32)})"
        return text if not more else f"({text} + {splat(f32, n, spelling.literal(more, f32))})"

    def _literal_type(self, args: Sequence[Expr]) -> DType:
        """What literals are where nothing around them has a type: as the reference, floats if one of them is."""
        kinds = {type(x.value) for a in args for x in subexpressions((a,)) if isinstance(x, Const)}
        return LITERAL_DTYPES[next((k for k in (float, int, bool) if k in kinds), float)]


def _in_word(first: Load, size: int) -> str:
    """Where a word of so many elements begins, and the place of one in it."""
    place = _place_in_word(first, size)
    return f"{index(simplify(first.index[0] - place))}, {place}"


def _place_in_word(first: Load, size: int) -> int:
    """Which element of its word one is."""
    place = simplify(first.index[0] % size)
    assert isinstance(place, Const), "elements of words lie at one place in each"
    return int(place.value)


def _bounded(e: Expr) -> bool:
    """Whether a float is NaN or within bounds that an i32 has."""
    match e:
        case Apply("min", (Apply("max", (_, Const(low))), Const(high))):
            return low >= -(1 << 30) and high <= 1 << 30
        case _:
            return False


def replaced(e: Expr, names: Mapping[Expr, Expr]) -> Expr:
    """The expression with computed parts replaced by their variables (at least one level below the top)."""
    if not names:
        return e
    if e in names:
        return names[e]
    match e:
        case Apply(fn, args):
            return Apply(fn, tuple(replaced(a, names) for a in args))
        case Load(param, at):
            return Load(param, tuple(replaced(a, names) for a in at))
        case _:
            return e


def function_text(program: LoopProgram, name: str, *, disjoint: bool = True) -> str:
    """The complete definition; `open_places` says what workspace it wants.

    `disjoint`: the compiler is promised that no two buffers overlap.
    """
    pointer = "*restrict " if disjoint else "*"
    tensors = program.dtypes
    used = program.used
    ports = (*program.params, *program.results)
    stored = {p.name: p.stored for p in ports if p.stored is not None}
    apart = {n: index(in_program(e, program)) for n, e in strides(program).items()}
    apart |= {p.name: str(aligned_elements(p.type)) for p in ports}
    frame = Frame(name, pointer, program, apart)
    writer = Writer(tensors, stored, [p.name for p in ports if p.packed], frame, names=fresh("v", names_of(program)))
    places, _ = open_places(program)
    writer.values |= assigned(program.body)
    sizes, body = sizes_first(program)
    outside = used_outside_of_parts(body)
    writer.stmts(sizes)
    for b in program.buffers:
        if b.name not in used or not b.size:
            continue
        if b.stack:
            if b.name in outside:
                writer.line(stack_array(b, program.aligned))
        else:
            kind, place = spelling.STORAGE[b.dtype], index(in_program(places[b.name], program))
            writer.line(f"{kind} {pointer}{b.name} = ({kind} *)(void *)(workspace + {place});")
    for p in ports:
        if p.name not in used:
            writer.line(f"(void){p.name};")
    writer.stmts(body)
    if stores_past(body):
        writer.line(f"{END}();")
    arguments = [f"const {spelling.STORAGE[p.storage]} {pointer}{p.name}" for p in program.params]
    arguments += [f"{spelling.STORAGE[p.storage]} {pointer}{p.name}" for p in program.results]
    # Of the largest sizes: whether there is work at the smallest may be known only when the program runs.
    if workspace_places(program)[1]:
        arguments.append(f"unsigned char {pointer}workspace")
    head = f"{in_order.mark(program)}void {name}({', '.join(arguments) or 'void'})"
    return "\n".join([*frame.functions, head, "{", *writer.lines, "}", ""])
