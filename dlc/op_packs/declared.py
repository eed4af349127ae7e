"""`PackOp`: the base of the ops that packs declare, and how a class is made of a declaration.

A class has fields like one that is written in Python, and `define`, `expand` or `vjp` by what its declaration says, so
that everything else is derived in the same way. An op of several statements is a composition of ops with one each.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import new_class
from typing import Any, ClassVar, Final, cast

from dlc.base.diagnostics import quote
from dlc.base.extents import is_extent
from dlc.base.types import DType, f32
from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError
from dlc.kernel.nest import Operand, Param
from dlc.op_packs.compose import Node, composed
from dlc.op_packs.dims import OperandType
from dlc.op_packs.instance import Condition, Definition, bound, demand
from dlc.op_packs.schema import AttributeRecord
from dlc.ops.pointwise import scalar

_HINTS: Final[Mapping[str, str]] = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "text": "str",
    "ints": "tuple[int, ...]",
    "floats": "tuple[float, ...]",
}


class _Required:
    """The default of what has none."""


REQUIRED: Final = _Required()


@dataclass(frozen=True)
class Attribute:
    """An attribute, checked."""

    record: AttributeRecord
    default: Any = REQUIRED

    def checked(self, value: Any) -> Any:
        """The value in the form that ops have it. Raises ValueError with what is wrong with it."""
        found: Any = _of_kind(self.record.type, value)
        if self.record.choices is not None and found not in self.record.choices:
            raise ValueError(f"{quote(found)} is none of {', '.join(self.record.choices)}")
        values: tuple[Any, ...] = found if self.record.type in ("ints", "floats") else (found,)
        for v in values:
            low, high = self.record.low, self.record.high
            if low is not None and v < low:
                raise ValueError(f"{v} is less than {low}")
            if high is not None and v > high:
                raise ValueError(f"{v} is more than {high}")
        return found

    @property
    def bounds(self) -> str:
        """What its values have to be, in words behind its type; "" for anything."""
        low, high, choices = self.record.low, self.record.high, self.record.choices
        words = [*([f"at least {low}"] if low is not None else []), *([f"at most {high}"] if high is not None else [])]
        return "".join(f", {word}" for word in (*words, *([f"one of {' '.join(choices)}"] if choices else [])))

    @property
    def is_number(self) -> bool:
        """Whether kernel text may use it."""
        return self.record.type in ("int", "float", "bool")


def _of_kind(kind: str, value: Any) -> Any:
    match kind:
        case "bool" if isinstance(value, bool):
            return value
        case "int" if is_extent(value):
            return value
        case "float" if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        case "text" if isinstance(value, str):
            return value
        case "ints" | "floats" if isinstance(value, list | tuple):
            return tuple(_of_kind(kind.removesuffix("s"), v) for v in cast("tuple[Any, ...]", value))
        case _:
            shown = {"int": "a whole number", "ints": "a list of whole numbers", "floats": "a list of numbers"}
            other = {"float": "a number", "bool": "true or false", "text": "a text"}
            raise ValueError(f"{value!r:.60} is not {(shown | other)[kind]}")


@dataclass(frozen=True)
class Texts:
    """A record as it is written, for people."""

    operands: Mapping[str, str] = field(default_factory=dict[str, str])
    mathematics: str = ""
    gradient: str | Mapping[str, str] = "derived"
    onnx: tuple[str, ...] = ()
    """Domain, name and first version of each operator that is read as the op."""


@dataclass(frozen=True)
class Declared:
    """What a record says of an op, read.

    Attributes:
        definition: Its only statement. Kernels are made of statements where there are any.
        parts: Of several statements: what each writes, and the op that computes it.
        composition: Its meaning by other ops; beside statements, for targets that have instructions for ops.
        gradient: Cotangents of the operands that may be floats; None: they are derived.
        ops: All ops that compositions may call.
    """

    name: str
    doc: str
    operands: Mapping[str, OperandType]
    attributes: Mapping[str, Attribute]
    result: str = "y"
    require: tuple[Condition, ...] = ()
    definition: Definition | None = None
    parts: tuple[tuple[str, type[Op]], ...] = ()
    composition: Node | None = None
    gradient: Mapping[str, Node] | None = None
    ops: Mapping[str, type[Op]] = field(default_factory=dict[str, type[Op]], repr=False)
    texts: Texts = field(default_factory=Texts, repr=False)


class PackOp(Op, abstract=True):
    """Base of the ops of packs."""

    of_pack: ClassVar[bool] = True
    declared: ClassVar[Declared]

    def __post_init__(self) -> None:
        for name, attribute in self.declared.attributes.items():
            try:
                value = attribute.checked(getattr(self, name))
            except ValueError as problem:
                raise ShapeError(f"attribute {name}: {problem}") from None
            object.__setattr__(self, name, value)
        super().__post_init__()

    def define(self, *params: Param | None) -> Comp:
        if self.declared.definition is None:
            raise TypeError(f"{self.text_name} is a composition")
        numbers = {name: getattr(self, name) for name, a in self.declared.attributes.items() if a.is_number}
        return self.declared.definition.comp(params, numbers)

    def expand(self) -> Op | None:
        if self.declared.parts:
            values: dict[str, Any] = dict(self.operand_fields())
            for target, kind in self.declared.parts:
                attributes = {name: getattr(self, name) for name in kind.attr_names}
                values[target] = kind(**{name: values[name] for name in kind.operand_names}, **attributes)
            return values[self.declared.result]
        if self.declared.composition is None or self.declared.definition is not None:
            return None
        return self._composed(self.declared.composition)

    def as_ops(self) -> Op | None:
        if self.declared.composition is None or (self.declared.definition is None and not self.declared.parts):
            return self.expansion
        return self._composed(self.declared.composition)

    def _composed(self, node: Node) -> Op:
        return composed(node, self._values(), self.declared.ops, self._dtype())

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        if self.declared.gradient is None:
            return None
        result = self.declared.result
        known = {**self._values(), result: self, f"d{result}": seeds[0]}
        out: list[Op | None] = []
        for name, value in self.operand_fields():
            if value is None:
                continue
            text = self.declared.gradient.get(name)
            assert isinstance(value, Op)
            found = None if text is None else composed(text, known, self.declared.ops, self._dtype())
            if found is not None and found.type != value.type:
                raise ShapeError(f"the gradient of {name} is {found.type.text}, {name} is {value.type.text}")
            out.append(found)
        return out

    def _dtype(self) -> DType:
        """Element type of a number that has no operand beside it."""
        return next((o.dtype for o in self.operands if o.dtype.is_float), f32)

    def _values(self) -> dict[str, Any]:
        """Operands, dimensions and attributes, for compositions. Raises ShapeError: the operands do not fit."""
        kinds = self.declared.operands
        params = [None if v is None else Operand(n, v.type) for n, v in self._single()]
        dims, _ = bound(kinds, params)
        known: dict[str, Any] = {**self.attrs, **dims}
        demand(self.declared.require, known)
        for name, value in self._single():
            default = kinds[name].default
            known[name] = scalar(default, self._dtype()) if value is None and default is not None else value
        return known

    def _single(self) -> list[tuple[str, Op | None]]:
        """Its operands by name: none is variadic."""
        return [(n, v) for n, v in self.operand_fields() if not isinstance(v, tuple)]


RESERVED: Final = frozenset(dir(PackOp)) | frozenset(Op.__annotations__) | {"declared", "self"}
"""Names that fields of an op cannot have."""


def usable(name: str) -> bool:
    """Whether a field of an op may have this name."""
    return name not in RESERVED and not keyword.iskeyword(name)


def op_class(declared: Declared) -> type[Op]:
    """The class of a declaration."""
    body: dict[str, Any] = {"__doc__": declared.doc, "__module__": __name__, "declared": declared}
    annotations: dict[str, str] = {}
    for name, kind in declared.operands.items():
        annotations[name] = "Op | None" if kind.optional else "Op"
        if kind.optional:
            body[name] = None
    for name, attribute in declared.attributes.items():
        annotations[name] = _HINTS[attribute.record.type]
        given = {} if attribute.default is REQUIRED else {"default": attribute.default}
        body[name] = field(kw_only=True, **given)
    body["__annotations__"] = annotations
    title = "".join(word.capitalize() for word in declared.name.split("_"))
    found: Any = new_class(title, (PackOp,), {}, lambda namespace: namespace.update(body))
    found.text_name = declared.name
    return found
