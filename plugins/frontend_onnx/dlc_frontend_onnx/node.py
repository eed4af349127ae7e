"""`Node`: what an import rule sees of a NodeProto — operands as ops, attributes by type, constants by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import onnx

from dlc.base.types import Array, DType
from dlc.graph import Constant, Op, Tensor
from dlc.ops.elementwise import Cast
from dlc.ops.pointwise import normalized, scalar
from dlc_frontend_onnx.budget import Budget
from dlc_frontend_onnx.refusals import Refusals
from dlc_frontend_onnx.regions import Around
from dlc_frontend_onnx.sequences import Resolved, SequenceValue, kind_of
from dlc_frontend_onnx.tensors import dtype_of, memory_tensor
from dlc_frontend_onnx.texts import Texts
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported

Kind = onnx.AttributeProto
T = TypeVar("T")

FIXED: Final = "export the model with this value as a constant, or with fixed input shapes where it follows from those"

Implied = Callable[[Sequence[tuple[int, ...]]], "Sequence[Sequence[int]] | None"]
"""Declared shapes of a node's outputs → what each element of an operand may be."""

_TYPE_NAMES = {v: k for k, v in Kind.AttributeType.items()}


class Values(Protocol):
    """What a rule may ask about the model around its node."""

    budget: Budget
    """What the model may ask for."""
    unroll: int
    """Nodes up to which the iterations of a loop of known length are written out."""
    texts: Texts
    """The texts that it has met."""

    def value(self, op: Op) -> Array | None:
        """The value of an op that depends on constants only and is cheap to compute, else None."""
        ...

    def extents(self, op: Op) -> tuple[int, ...] | None:
        """The elements of a small integer value as numbers and symbolic dimensions, in order; None: not known."""
        ...

    def found_size(self, name: str, mask: Op) -> int:
        """The dimension of as many elements as a mask keeps, named after a value; for one mask always the same one."""
        ...

    def size_name(self, name: str) -> str:
        """A name for the size of a value that no other size has."""
        ...

    def quirk(self, node: Node, what: str, reading: str) -> None:
        """Something that the standard does not know and that has one sensible reading: noted if the user asked for such
        readings, refused else. Either way the rule goes on, so that all of them are found at once."""
        ...

    def assume(self, op: Op, choices: Sequence[Sequence[int]]) -> None:
        """Restrict an input of the model: element k is one of `choices[k]`. Raises Unsupported: it is no such input."""
        ...

    def subgraph(self, graph: onnx.GraphProto, node: Node, operands: Sequence[Op] = ()) -> tuple[Op | None, ...]:
        """The outputs of a graph that is an attribute, in the scope of its node, for these inputs; None if refused."""
        ...

    def attempt(self, make: Callable[[], T], node: Node) -> tuple[T | None, Refusals]:
        """What `make` gives for a node, and what was refused meanwhile, which nobody hears of unless it is reported.

        None where `make` itself gave up.
        """
        ...

    def report(self, refusals: Refusals) -> None:
        """Report what an attempt refused."""
        ...

    def around(self) -> Around:
        """What the graph around a body offers, where the node stands."""
        ...

    def fresh(self) -> str:
        """A text that no other call gives."""
        ...

    def named(self, name: str, instead: Mapping[str, Op] = MappingProxyType({})) -> Op | None:
        """The value of this name where the node stands, computed with others `instead` of their own; None if refused.

        Raises:
            Unsupported: nothing gives the name a value.
        """
        ...


@dataclass
class Node:
    """One node that is being imported."""

    proto: onnx.NodeProto
    name: str
    """The model's name, or the operator's name and the node's number."""
    version: int
    """Version of the node's operator set."""
    inputs: tuple[Op | None, ...]
    """Operands; None where left out."""
    values: Values
    attributes: Mapping[str, onnx.AttributeProto]
    declared: tuple[tuple[int, ...] | None, ...] = ()
    """Shapes that the model declares for the outputs, as far as it does."""
    seen: set[str] = field(default_factory=set[str])
    """Attributes that the rule has read; one that it does not know must not be ignored."""
    gives_texts: bool = False
    """Whether the rule found that the first result is numbers of texts."""

    # ---- operands
    def x(self, k: int = 0) -> Op:
        """Operand `k`, a tensor which must be there."""
        found = self.any(k)
        if isinstance(found, Resolved):
            raise Unsupported(f"operand {k} is {kind_of(found)}", "export the model with tensors in this place")
        return found

    def any(self, k: int = 0) -> Op:
        """Operand `k`, which must be there, and may be a sequence or an absent optional value."""
        found = self.inputs[k] if k < len(self.inputs) else None
        if found is None:
            raise Unsupported(f"operand {k} is missing", MALFORMED)
        return found

    def sequence(self, k: int = 0) -> tuple[Op, ...]:
        """The tensors of operand `k`, a sequence."""
        found = self.any(k)
        if not isinstance(found, SequenceValue):
            raise Unsupported(f"operand {k} is {kind_of(found)}, not a sequence", MALFORMED)
        return found.xs

    def optional(self, k: int) -> Op | None:
        """Operand `k`, a tensor, or None when it is left out."""
        return self.x(k) if k < len(self.inputs) and self.inputs[k] is not None else None

    def all(self) -> tuple[Op, ...]:
        """Every operand of a variadic operator."""
        return tuple(self.x(k) for k in range(len(self.inputs)))

    def constant(self, k: int, what: str) -> Array:
        """The value of operand `k`, which must not depend on the model's inputs."""
        found = self.values.value(self.x(k))
        if found is None:
            noun = what.removeprefix("the ").split()[0]  # the sizes; the shape of the windows
            are, constants = ("are", "constants") if noun.endswith("s") and noun != "axis" else ("is", "a constant")
            raise Unsupported(
                f"{what} {are} computed from the model's inputs",
                f"export the model with {what} as {constants}, or with fixed input shapes where they follow from those",
            )
        return found

    def maybe_constant(self, k: int) -> Array | None:
        """The value of operand `k` if it is there and constant."""
        found = self.optional(k)
        return None if found is None else self.values.value(found)

    def numbers(self, k: int, what: str, implied: Implied | None = None) -> tuple[int, ...]:
        """Operand `k` as integers that are constant, or that follow from the shapes which the model declares.

        Args:
            k: The operand.
            what: How messages call it.
            implied: For the declared shapes of the outputs: what each element may be that leads to them, first as it is
                taken to be, () for anything; None where they do not tell. An input of the model is restricted to these.
        """
        x = self.x(k)
        if (found := self.values.extents(x)) is not None:
            return found
        if implied is not None and self.values.value(x) is None and None not in self.declared and self.declared:
            shapes = tuple(shape for shape in self.declared if shape is not None)
            if (choices := implied(shapes)) is not None:
                self.values.assume(x, choices)
                return tuple(choice[0] if choice else 0 for choice in choices)
        return tuple(int(v) for v in self.constant(k, what).reshape(-1))

    def numbers_or_none(self, k: int, what: str, implied: Implied | None = None) -> tuple[int, ...] | None:
        """The same, None when operand `k` is left out."""
        return None if self.optional(k) is None else self.numbers(k, what, implied)

    @property
    def outputs(self) -> int:
        """Number of outputs that the model names; trailing ones may be left out."""
        return len(self.proto.output)

    def wants(self, k: int) -> bool:
        """Whether output `k` is used at all."""
        return k < len(self.proto.output) and bool(self.proto.output[k])

    def refuse_output(self, k: int, what: str) -> None:
        """Refuse a node whose output `k` is used."""
        if self.wants(k):
            raise Unsupported(f"output {what} is used", "remove the consumers of this output before exporting")

    def quirk(self, what: str, reading: str) -> None:
        """What an exporter wrote against the standard, and how it is read; see `Values.quirk`."""
        self.values.quirk(self, what, reading)

    # ---- attributes
    def has(self, key: str) -> bool:
        """Whether an attribute is given."""
        return key in self.attributes

    def _attribute(self, key: str, kind: int) -> onnx.AttributeProto | None:
        self.seen.add(key)
        found = self.attributes.get(key)
        if found is not None and found.type not in (kind, Kind.UNDEFINED):
            wanted, got = _TYPE_NAMES[kind], _TYPE_NAMES.get(found.type, str(found.type))
            raise Unsupported(f"attribute {key} is of type {got}, not {wanted}", MALFORMED)
        return found

    def int(self, key: str, default: int = 0) -> int:
        """An integer attribute."""
        found = self._attribute(key, Kind.INT)
        return default if found is None else found.i

    def flag(self, key: str, default: bool = False) -> bool:
        """An integer attribute that stands for a truth value."""
        return bool(self.int(key, default))

    def float(self, key: str, default: float = 0.0) -> float:
        """A number attribute; ONNX stores it in single precision, and so it does its own default."""
        found = self._attribute(key, Kind.FLOAT)
        return float(np.float32(default)) if found is None else found.f

    def text(self, key: str, default: str = "") -> str:
        """A string attribute."""
        found = self._attribute(key, Kind.STRING)
        return default if found is None else found.s.decode("utf-8", "replace")

    def ints(self, key: str) -> tuple[int, ...] | None:
        """An attribute of integers, None when it is not given."""
        single = self.attributes.get(key)
        if single is not None and single.type == Kind.INT:
            self.seen.add(key)
            self.quirk(f"attribute {key} is a number, not a list", "as a list of one")
            return (single.i,)
        found = self._attribute(key, Kind.INTS)
        return None if found is None else tuple(found.ints)

    def floats(self, key: str) -> tuple[float, ...] | None:
        """An attribute of numbers, None when it is not given."""
        found = self._attribute(key, Kind.FLOATS)
        return None if found is None else tuple(found.floats)

    def texts(self, key: str) -> tuple[str, ...]:
        """An attribute of strings, none when it is not given."""
        found = self._attribute(key, Kind.STRINGS)
        return () if found is None else tuple(s.decode("utf-8", "replace") for s in found.strings)

    def tensor(self, key: str) -> Tensor | None:
        """A tensor attribute, None when it is not given."""
        found = self._attribute(key, Kind.TENSOR)
        return None if found is None else memory_tensor(found.t)

    def graph(self, key: str) -> onnx.GraphProto:
        """A graph attribute."""
        found = self._attribute(key, Kind.GRAPH)
        if found is None:
            raise Unsupported(f"attribute {key} is missing", MALFORMED)
        return found.g

    def dtype(self, key: str, default: int = onnx.TensorProto.FLOAT) -> DType:
        """An attribute that names an element type."""
        return dtype_of(self.int(key, default))

    def ignore(self, *keys: str) -> None:
        """Attributes that do not change the result here."""
        self.seen.update(keys)

    # ---- what rules often need
    def axis(self, key: str = "axis", default: int = 0, rank: int | None = None) -> int:
        """An axis attribute of operand 0, counted from the front."""
        return normalized(self.int(key, default), len(self.x().shape) if rank is None else rank)

    def axes(self, found: Sequence[int] | None, rank: int | None = None) -> tuple[int, ...]:
        """Axes counted from the front, in order; all of operand 0 when None."""
        rank = len(self.x().shape) if rank is None else rank
        return tuple(range(rank)) if found is None else tuple(sorted({normalized(a, rank) for a in found}))


def constant(value: Any, dtype: DType | None = None) -> Constant:
    """A constant of an array or number."""
    return Constant(Tensor.of(np.asarray(value) if dtype is None else np.asarray(value, dtype.numpy), dtype))


def cast(x: Op, to: DType) -> Op:
    """x in another element type; x itself when it has that type."""
    return x if x.dtype == to else Cast(x, to=to)


def number(value: float, like: Op) -> Op:
    """A scalar operand of the element type of `like`."""
    return scalar(value, like.dtype)


def cut_axis(node: Node) -> int:
    """An axis attribute that cuts a shape in two: from 0 to the rank, or negative from the last dimension on."""
    axis, rank = node.int("axis", 1), len(node.x().shape)
    return rank if axis == rank else normalized(axis, rank)
