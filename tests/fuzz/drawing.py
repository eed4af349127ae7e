"""Random valid ONNX models: operands are drawn from what was made before, types come from ONNX's own inference.

What a node gives is what `onnx.shape_inference` says, not what dlc says, so that dlc may be wrong about it. A node that
ONNX refuses is not part of the model; its kind is drawn again with other operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from tests.frontend_onnx.building import IR_VERSIONS
from tests.fuzz.model import Array, Model, Node

LARGEST: Final = 1500
"""Elements of the largest value."""
MOST_RANK: Final = 6
OPSETS: Final = (11, 13, 13, 15, 17, 17, 18, 19, 20, 21)
EXTENTS: Final = (1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 19, 23, 32, 37)
FLOATS: Final = ("float32", "float64", "float16")
SIGNED: Final = ("int64", "int32", "int8", "int16")
UNSIGNED: Final = ("uint8", "uint16", "uint32", "uint64")
INTEGERS: Final = (*SIGNED, *UNSIGNED)
KINDS: Final = {"f": FLOATS, "i": INTEGERS, "s": SIGNED, "b": ("bool",), "n": (*FLOATS, *INTEGERS)}
"""Letter → element types: floats, integers, signed integers, booleans, numbers."""


class Refused(Exception):
    """ONNX does not take the node, or it does not suit the test: another is drawn."""


@dataclass(frozen=True)
class Value:
    """A tensor of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def of(self, letters: str) -> bool:
        """Whether the element type is one of `KINDS`."""
        return any(self.dtype in KINDS[c] for c in letters)


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
    nodes: list[Node] = field(default_factory=list[Node])
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    inputs: dict[str, Array] = field(default_factory=dict[str, Array])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])

    @classmethod
    def of(cls, seed: int) -> Maker:
        """The maker of a seed: the character of its model is drawn here."""
        random = Random(seed)
        rng = np.random.default_rng(seed)
        rare = random.random()
        first = "float32" if rare < 0.75 else "float64" if rare < 0.85 else random.choice((*FLOATS, *INTEGERS))
        types = (first, random.choice(("float32", *INTEGERS, "bool")), random.choice((*FLOATS, *INTEGERS)))
        extents = tuple(random.choice(EXTENTS) for _ in range(4))
        empty = random.random() < 0.05
        return cls(random, rng, random.choice(OPSETS), random.random() < 0.12, empty, types, extents)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def one(self, *of: Any) -> Any:
        return self.random.choice(of)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Dimensions of an input."""
        rank = int(self.one(1, 2, 2, 3, 3, 4, 4)) if rank is None else rank
        found = [0 if self.empty and self.chance(0.1) else self.one(*self.extents, 1) for _ in range(rank)]
        while math.prod(found) > LARGEST // 3:
            found[self.random.randrange(rank)] = self.one(1, 2, 3)
        return tuple(found)

    def numbers(self, dtype: str, shape: Sequence[int], *, plain: bool = False) -> Array:
        """Values of an input or constant; `plain` ones neither NaN, infinite nor far from 1."""
        shape = tuple(shape)
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
        """A new input; of these values, if given."""
        if array is None:
            shape = self.shape() if shape is None else shape
            array = self.numbers(dtype or self.one(self.types[0], self.types[0], *self.types), shape)
        name, array = f"x{len(self.inputs)}", np.asarray(array)
        self.inputs[name] = array
        return self._known(name, array)

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """A constant of the model."""
        array = np.asarray(array, dtype)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return Value(name, str(array.dtype), array.shape)

    def weight(self, dtype: str, *shape: int) -> Value:
        """A constant of random values, at times an input or one value everywhere."""
        if math.prod(shape) > 2 * LARGEST:
            raise Refused("too large")
        if self.chance(0.1):
            return self.constant(np.full(shape, self.one(0, 1, 2), dtype))
        array = self.numbers(dtype, shape, plain=True)
        return self.input(array=array) if self.chance(0.15) else self.constant(array)

    def ints(self, *values: int) -> Value:
        """A constant vector of i64."""
        return self.constant(np.array(values, np.int64))

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
        found = [v for v in self.values.values() if v.dtype == x.dtype and _broadcast(v.shape, x.shape) <= LARGEST]
        if found and self.chance(0.6):
            return self.random.choice(found)
        kept = x.shape[self.random.randint(0, x.rank) :]
        return self.weight(x.dtype, *(e if self.chance(0.7) else 1 for e in kept))

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
        node = self._new(op, results, inputs, attributes)
        found = self._inferred(node, [v for v in inputs if v is not None])
        return self._kept(node, found)

    def known(
        self, op: str, like: Sequence[Value], *inputs: Value | None, reads: Sequence[Value] = (), **attributes: Any
    ) -> list[Value]:
        """The results of a new node whose types are known, where ONNX's inference of single nodes does not reach.

        `reads` are what graphs inside it name.
        """
        node = replace(self._new(op, len(like), inputs, attributes), reads=tuple(v.name for v in reads))
        found = [Value(name, v.dtype, v.shape) for name, v in zip(node.outputs, like, strict=True)]
        return self._kept(node, found)

    def _new(self, op: str, results: int, inputs: Sequence[Value | None], attributes: dict[str, Any]) -> Node:
        names = tuple("" if v is None else v.name for v in inputs)
        start = sum(len(n.outputs) for n in self.nodes)
        return Node(op, names, tuple(f"v{start + k}" for k in range(results)), attributes)

    def _kept(self, node: Node, found: list[Value]) -> list[Value]:
        if any(v.size > LARGEST or v.rank > MOST_RANK or (0 in v.shape and not self.empty) for v in found):
            raise Refused("too large, or empty")
        self.nodes.append(node)
        self.values.update((v.name, v) for v in found)
        return found

    def _inferred(self, node: Node, inputs: Sequence[Value]) -> list[Value]:
        schema = _schema(node.op, self.opset)
        types = {v.name: helper.make_tensor_type_proto(_code(v.dtype), v.shape) for v in inputs}
        small = (v.name for v in inputs if v.name in self.constants and v.size < 64)
        data = {name: numpy_helper.from_array(self.constants[name]) for name in small}
        try:
            found = shape_inference.infer_node_outputs(
                schema,
                node.onnx,
                types,
                data,
                opset_imports=[helper.make_opsetid("", self.opset)],
                ir_version=IR_VERSIONS.get(self.opset, 10),
            )
        except Exception as problem:  # noqa: BLE001 - inference raises classes of its own, RuntimeError among them
            raise Refused(str(problem)) from None
        return [_value(name, found.get(name)) for name in node.outputs]

    def _known(self, name: str, array: Array) -> Value:
        found = self.values[name] = Value(name, str(array.dtype), array.shape)
        return found

    def model(self, outputs: Sequence[str]) -> Model:
        """What was made, as far as the outputs need it."""
        return Model(tuple(self.nodes), self.inputs, self.constants, tuple(outputs), self.opset).live()


def _limits(dtype: str) -> tuple[int, int]:
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    try:
        return math.prod(np.broadcast_shapes(a, b))
    except ValueError:
        return math.inf


@cache
def _schema(op: str, opset: int) -> Any:
    try:
        return onnx.defs.get_schema(op, opset, "")
    except Exception:  # noqa: BLE001 - a class that onnx does not export
        raise Refused(f"{op} is not in version {opset}") from None


@cache
def has_attribute(op: str, opset: int, name: str) -> bool:
    """Whether an operator has an attribute in a version."""
    return name in _schema(op, opset).attributes


def _code(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _value(name: str, proto: Any) -> Value:
    tensor = proto.tensor_type if proto is not None else None
    if tensor is None or not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        raise Refused("a shape that depends on data")
    shape = tuple(int(d.dim_value) for d in tensor.shape.dim)
    if any(d < 0 for d in shape):
        raise Refused(f"{shape} is no shape")
    return Value(name, str(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), shape)


def _learning(m: Maker) -> str:
    """A value that depends on a parameter."""
    floats = [v for v in m.values.values() if v.dtype == "float32" and v.rank and v.size]
    x = floats[-1] if floats else m.input("float32")
    return m.node("Mul", x, m.constant(m.numbers(x.dtype, x.shape[-1:], plain=True))).name


def draw(
    seed: int, kinds: Sequence[tuple[int, Callable[[Maker], object]]], most: int, *, learns: bool = False
) -> Model:
    """The model of a seed: up to `most` nodes, several outputs, views among them.

    A model that `learns` has one output, of floats, that depends on a parameter.
    """
    maker = Maker.of(seed)
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
