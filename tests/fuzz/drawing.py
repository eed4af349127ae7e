"""Random valid ONNX models: operands are drawn from what was made before, types come from ONNX's own inference.

What a node gives is what `onnx.shape_inference` says, not what dlc says, so that dlc may be wrong about it. A node that
ONNX refuses is not part of the model; its kind is drawn again with other operands. Of a model with named dimensions,
ONNX is asked for each of the calls that are compared, in numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import numpy as np

from tests.fuzz.inference import FOLLOWED, inferred
from tests.fuzz.model import Array, Model, Node
from tests.fuzz.sizes import Dimension, Refused, Size, drawn_calls, joined, largest, size_of
from tests.fuzz.values import EXACT, FLOATS, INTEGERS, KINDS, UNSIGNED, Value

LARGEST: Final = 1500
"""Elements of the largest value."""
MOST_RANK: Final = 6
OPSETS: Final = (11, 13, 13, 15, 17, 17, 18, 19, 20, 21)
NARROW_OPSETS: Final = (19, 20, 21, 21, 21)
EXTENTS: Final = (1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 19, 23, 32, 37)


@dataclass
class Maker:
    """A model under construction, deterministic in its seed."""

    random: Random
    rng: np.random.Generator
    opset: int
    special: bool
    """Whether floats among the inputs have NaN and infinities."""
    empty: bool
    """Whether dimensions may be 0."""
    types: tuple[str, ...]
    """Element types that inputs have, the commonest first."""
    extents: tuple[int, ...]
    """Dimensions that inputs have; a few, so that shapes fit."""
    ranges: dict[str, Dimension] = field(default_factory=dict[str, Dimension])
    """Dimensions that have a name."""
    calls: Sequence[tuple[int, ...]] = ((),)
    """Their sizes in every call."""
    found: bool = False
    """Whether results may have sizes that a call finds."""
    narrow: bool = False
    """Whether there are values of types that numpy does not have."""
    nodes: list[Node] = field(default_factory=list[Node])
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    inputs: dict[str, Array] = field(default_factory=dict[str, Array])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    dims: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    """Of inputs that have named ones."""
    data: dict[str, tuple[Array, ...]] = field(default_factory=dict[str, "tuple[Array, ...]"])
    """Values that shapes are computed from, in every call."""
    rounded: set[str] = field(default_factory=set[str])
    """Values that rounding may move."""
    room: int = LARGEST
    """Elements that a value may have."""
    follows: bool = False
    """Whether shapes are computed although all of them are known."""

    @classmethod
    def of(cls, seed: int, *, sizes: bool = False, narrow: bool = False) -> Maker:
        """The maker of a seed: the character of its model is drawn here."""
        random = Random(seed)
        rng = np.random.default_rng(seed)
        rare = random.random()
        first = "float32" if rare < 0.75 else "float64" if rare < 0.85 else random.choice((*FLOATS, *INTEGERS))
        types = (first, random.choice(("float32", *INTEGERS, "bool")), random.choice((*FLOATS, *INTEGERS)))
        extents = tuple(random.choice(EXTENTS) for _ in range(4))
        empty = random.random() < 0.05
        made = cls(random, rng, random.choice(OPSETS), random.random() < 0.12, empty, types, extents)
        if sizes:
            made.open()
        if narrow:
            made.narrow, made.opset = True, random.choice(NARROW_OPSETS)
        return made

    def open(self) -> None:
        """Give dimensions names, or have sizes found by calls, or both."""
        kind = self.random.random()
        self.found = kind < 0.3
        if kind > 0.15:
            count = self.one(1, 1, 1, 2, 2, 3)
            self.ranges = {f"n{k}": Dimension.drawn(self.random, self.empty) for k in range(count)}
            self.calls = drawn_calls([*self.ranges.values()], self.random)
            self.extents = (*self.names.values(), *self.extents[count if self.chance(0.5) else 0 :])

    @property
    def names(self) -> dict[str, int]:
        """The sizes of named dimensions."""
        return {name: size_of([call[k] for call in self.calls]) for k, name in enumerate(self.ranges)}

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def one(self, *of: Any) -> Any:
        return self.random.choice(of)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Dimensions of an input."""
        rank = int(self.one(1, 2, 2, 3, 3, 4, 4)) if rank is None else rank
        found = [0 if self.empty and self.chance(0.1) else self.one(*self.extents, 1) for _ in range(rank)]
        if self.ranges and rank and not any(isinstance(e, Size) for e in found) and self.chance(0.8):
            found[self.random.randrange(rank)] = self.one(*self.names.values())
        while math.prod(largest(found)) > LARGEST // 3:
            found[self.random.randrange(rank)] = self.one(1, 2, 3)
        return tuple(found)

    def numbers(self, dtype: str, shape: Sequence[int], *, plain: bool = False) -> Array:
        """Values of an input or constant of the largest call; `plain` ones neither NaN, infinite nor far from 1."""
        shape = largest(shape)
        if dtype == "bool":
            return self.rng.random(shape) < 0.5
        if dtype in INTEGERS:
            low, high = (0 if dtype in UNSIGNED else -4), self.one(3, 9)
            found = self.rng.integers(low, high, shape, endpoint=True).astype(dtype)
            if not plain and found.size and self.chance(0.05):
                found.reshape(-1)[self.random.randrange(found.size)] = self.one(*_limits(dtype))
            return found
        if self.chance(0.2):  # ties
            found = self.rng.integers(-2, 3, shape).astype(dtype)
        else:
            found = (self.rng.standard_normal(shape) * (1 if plain else self.one(1, 1, 0.1, 3))).astype(dtype)
        if self.special and not plain and found.size:
            for _ in range(self.random.randint(1, 3)):
                found.reshape(-1)[self.random.randrange(found.size)] = self.one(np.nan, np.inf, -np.inf, -0.0, 0.0)
        return found

    def input(self, dtype: str | None = None, shape: Sequence[int] | None = None, array: Array | None = None) -> Value:
        """A new input; of these values, if given: those of the largest call."""
        shape = tuple(shape) if shape is not None else self.shape() if array is None else tuple(array.shape)
        if array is None:
            array = self.numbers(dtype or self.one(self.types[0], self.types[0], *self.types), shape)
        name, array = f"x{len(self.inputs)}", np.asarray(array)
        if any(isinstance(e, Size) for e in shape):
            self.dims[name] = tuple(self._name(e) if isinstance(e, Size) else "" for e in shape)
        self.inputs[name] = array
        found = self.values[name] = Value(name, str(array.dtype), shape)
        return found

    def _name(self, size: Size) -> str:
        """A dimension's name; raises Refused: it has none."""
        for name, known in self.names.items():
            if known == size:
                return name
        raise Refused("a computed size")

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """A constant of the model."""
        array = np.asarray(array, dtype)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return Value(name, str(array.dtype), array.shape)

    def weight(self, dtype: str, *shape: int) -> Value:
        """A constant of random values, at times an input or one value everywhere."""
        if math.prod(largest(shape)) > 2 * LARGEST:
            raise Refused("too large")
        if any(isinstance(e, Size) for e in shape):
            return self._open_weight(dtype, shape)
        if self.chance(0.1):
            return self.constant(np.full(shape, self.one(0, 1, 2), dtype))
        array = self.numbers(dtype, shape, plain=True)
        return self.input(array=array) if self.chance(0.15) else self.constant(array)

    def _open_weight(self, dtype: str, shape: tuple[int, ...]) -> Value:
        """An input where the dimensions have names; else one value, expanded."""
        try:
            return self.input(dtype, shape, self.numbers(dtype, shape, plain=True))
        except Refused:
            return self.node("Expand", self.constant(self.numbers(dtype, (), plain=True)), self.ints(*shape))

    def ints(self, *values: int) -> Value:
        """A vector of i64: a constant, or computed where it depends on sizes."""
        if not any(isinstance(v, Size) for v in values):
            return self.constant(np.array(values, np.int64))
        parts = [self.scalar(v, 1) for v in values]
        return self.node("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def scalar(self, value: int, rank: int = 0) -> Value:
        """A number as a tensor of i64: a constant, or computed from the dimension of a value; of one or no dimension.

        Raises:
            Refused: no value has such a dimension.
        """
        if not isinstance(value, Size):
            return self.constant(np.array([value] if rank else value, np.int64))
        places = [(v, k) for v in self.values.values() for k, e in enumerate(v.shape) if e == value]
        if places:
            x, k = self.random.choice(places)
            k = self.constant(np.array([k] if rank else k, np.int64))
            return self.node("Gather", self.node("Shape", x), k, axis=0)
        if not value.made:
            raise Refused("a size of no value")
        op, a, b = value.made
        return self.node(op, self.scalar(a, rank), self.scalar(b, rank))

    def any(
        self, letters: str = "n", low: int = 0, high: int = MOST_RANK, where: Callable[[Value], bool] | None = None
    ) -> Value:
        """A value made before, recent ones more often; an input is made if none fits."""
        found = [v for v in self.values.values() if v.of(letters) and low <= v.rank <= high]
        found = [v for v in found if where is None or where(v)]
        if found and not self.chance(0.05):
            return self.random.choice(found[-4:] if self.chance(0.65) else found)
        if where is not None:
            raise Refused("nothing fits")
        own = [t for t in self.types if any(t in KINDS[c] for c in letters)]
        least = max(low, 1)
        rank = self.random.randint(least, max(min(high, 4), least))
        return self.input(self.one(*own) if own else KINDS[letters[0]][0], self.shape(rank))

    def like(self, x: Value) -> Value:
        """Something of x's element type that broadcasts with it."""
        found = [v for v in self.values.values() if v.dtype == x.dtype and self._broadcast(v, x) <= LARGEST]
        if found and self.chance(0.6):
            return self.random.choice(found)
        kept = x.shape[self.random.randint(0, x.rank) :]
        return self.weight(x.dtype, *(e if self.chance(0.7) else 1 for e in kept))

    def _broadcast(self, a: Value, b: Value) -> float:
        """Elements of what two values give together."""
        return max(_broadcast(a.at(k), b.at(k)) for k in range(len(self.calls)))

    def axis(self, x: Value) -> int:
        """A dimension, counted from the end at times."""
        if not x.rank:
            raise Refused("a scalar")
        return self.random.randrange(-x.rank, x.rank)

    def node(self, op: str, *inputs: Value | None, **attributes: Any) -> Value:
        """The only result of a new node."""
        return self.nodes_of(op, 1, *inputs, **attributes)[0]

    def nodes_of(self, op: str, results: int, *inputs: Value | None, **attributes: Any) -> list[Value]:
        """The results of a new node; raises Refused."""
        node = self.new(op, results, inputs, attributes)
        found = self._inferred(node, [v for v in inputs if v is not None])
        return self.kept(node, found)

    def known(
        self, op: str, like: Sequence[Value], *inputs: Value | None, reads: Sequence[Value] = (), **attributes: Any
    ) -> list[Value]:
        """The results of a new node whose types are known, where ONNX's inference of single nodes does not reach.

        `reads` are what graphs inside it name.
        """
        node = replace(self.new(op, len(like), inputs, attributes), reads=tuple(v.name for v in reads))
        found = [Value(name, v.dtype, v.shape) for name, v in zip(node.outputs, like, strict=True)]
        return self.kept(node, found)

    def new(self, op: str, results: int, inputs: Sequence[Value | None], attributes: dict[str, Any]) -> Node:
        names = tuple("" if v is None else v.name for v in inputs)
        start = sum(len(n.outputs) for n in self.nodes)
        return Node(op, names, tuple(f"v{start + k}" for k in range(results)), attributes)

    def kept(self, node: Node, found: list[Value]) -> list[Value]:
        empty = any(0 in v.at(k) for v in found for k in range(len(self.calls)))
        if any(v.room > self.room or v.rank > MOST_RANK for v in found) or (empty and not self.empty):
            raise Refused("too large, or empty")
        self.nodes.append(node)
        self.values.update((v.name, v) for v in found)
        floats = any(self.values[n].of("f") for n in node.operands if n in self.values)
        if not self.rounded.isdisjoint(node.operands) or (node.op not in EXACT and (floats or found[0].of("f"))):
            self.rounded.update(node.outputs)
        if self.ranges or self.follows:
            self._follow(node, found[0])
        return found

    def _follow(self, node: Node, result: Value) -> None:
        """Keep what a node gives that shapes may be computed from: ONNX's inference of single nodes has to be told."""
        if result.dtype != "int64" or result.room > 64:
            return
        if node.op == "Shape":
            shape = self.values.get(node.inputs[0])
            if shape is not None:
                self.data[result.name] = tuple(np.array(shape.at(k), np.int64) for k in range(len(self.calls)))
            return
        known = [self._data(n) for n in node.inputs]
        if node.op in FOLLOWED and all(d is not None for d in known):
            try:
                several = [FOLLOWED[node.op](node, [d[k] for d in known if d]) for k in range(len(self.calls))]
            except (IndexError, ValueError, ZeroDivisionError):
                return
            self.data[result.name] = tuple(np.asarray(d, np.int64) for d in several)

    def _data(self, name: str) -> tuple[Array, ...] | None:
        constant = self.constants.get(name)
        return self.data.get(name) if constant is None else (constant,) * len(self.calls)

    def _inferred(self, node: Node, inputs: Sequence[Value]) -> list[Value]:
        several = [self._inferred_at(node, inputs, k) for k in range(len(self.calls))]
        first, *others = several
        if any(a.dtype != b.dtype or a.rank != b.rank for other in others for a, b in zip(first, other, strict=True)):
            raise Refused("another rank at another size")
        return [Value(v.name, v.dtype, joined([f[k].shape for f in several])) for k, v in enumerate(first)]

    def _inferred_at(self, node: Node, inputs: Sequence[Value], call: int) -> list[Value]:
        types = {v.name: (v.dtype, v.at(call)) for v in inputs}
        data = {v.name: self.constants[v.name] for v in inputs if v.name in self.constants and v.size < 64}
        data |= {v.name: self.data[v.name][call] for v in inputs if v.name in self.data}
        return inferred(node, self.opset, types, data)

    def sizes(self) -> tuple[dict[str, int], ...]:
        """Sizes of the named dimensions in every call."""
        return tuple(dict(zip(self.ranges, call, strict=True)) for call in self.calls)

    def whole(self) -> Model:
        """All that was made so far, without outputs."""
        return Model(tuple(self.nodes), self.inputs, self.constants, (), self.opset)

    def model(self, outputs: Sequence[str]) -> Model:
        """What was made, as far as the outputs need it."""
        calls = self.sizes()
        ranges = {name: str(d) for name, d in self.ranges.items()}
        made = Model(tuple(self.nodes), self.inputs, self.constants, tuple(outputs), self.opset, self.dims, ranges)
        return replace(made, calls=calls if self.ranges or self.found else ()).live()


def _limits(dtype: str) -> tuple[int, int]:
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    try:
        return math.prod(np.broadcast_shapes(a, b))
    except ValueError:
        return math.inf


def _learning(m: Maker) -> str:
    """A value that depends on a parameter."""
    floats = [v for v in m.values.values() if v.dtype == "float32" and v.rank and v.size]
    x = floats[-1] if floats else m.input("float32")
    return m.node("Mul", x, m.constant(m.numbers(x.dtype, x.shape[-1:], plain=True))).name


def draw(
    seed: int,
    kinds: Sequence[tuple[int, Callable[[Maker], object]]],
    most: int,
    *,
    learns: bool = False,
    sizes: bool = False,
    narrow: bool = False,
) -> Model:
    """The model of a seed: up to `most` nodes, several outputs, views among them.

    A model that `learns` has one output, of floats, that depends on a parameter. One of `sizes` has dimensions that are
    known when it is called; one that is `narrow` has values of bfloat16, float8 and integers of four bits.
    """
    maker = Maker.of(seed, sizes=sizes, narrow=narrow)
    random = maker.random
    for _ in range(random.randint(1, 3)):
        maker.input()
    weights, functions = [w for w, _ in kinds], [f for _, f in kinds]
    wanted = min(most, random.choice((1, 2, 3, 5, 8, 12, 16, 20, 28, 40)))
    for _ in range(4 * wanted):
        if len(maker.nodes) >= wanted:
            break
        try:
            random.choices(functions, weights)[0](maker)
        except Refused:
            continue
    computed = [v for n in maker.nodes for v in n.outputs]
    if not computed:
        computed = [maker.node("Identity", maker.values["x0"]).name]
    if learns:
        return maker.model([_learning(maker)])
    read = {x for n in maker.nodes for x in n.operands}
    ends = [name for name in computed if name not in read][-6:]
    outputs = random.sample(ends, random.randint(max(1, len(ends) - 2), len(ends)))
    if random.random() < 0.3:
        outputs.append(random.choice(computed))
    return maker.model([*dict.fromkeys(outputs)])
