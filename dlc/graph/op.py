"""`Op`: one declaration gives node, value, pattern, shape rule, reference semantics and loops.

A subclass is a frozen dataclass. Its fields that hold ops are operands (`x: Op`, `b: Op | None`,
`xs: tuple[Op, ...]`); the others are attributes. It declares what it computes once, either as comprehensions (`define`)
or as a composition of other ops (`expand`); everything else is derived. `evaluate` may be overridden for speed, and
`vjp` to name a gradient; a generated test proves the override equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, wraps
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeAlias, cast, dataclass_transform

from dlc.base.allowed import Demand
from dlc.base.budget import tick
from dlc.base.extents import Dim
from dlc.base.extents import symbols as symbols_in
from dlc.base.polynomials import Symbol
from dlc.base.table import quoted
from dlc.base.types import DType, Type
from dlc.base.uses import NUMPY, used
from dlc.graph.tensor import Array, Tensor
from dlc.graph.walk import evaluate_ops
from dlc.kernel.define import Comp, ShapeError, element_type, kernel_of
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Operand as Logical
from dlc.kernel.nest import Param
from dlc.kernel.print import print_literal

Operand: TypeAlias = "Op | tuple[Op, ...] | None"
"""The value of an operand field."""
_OPERAND = re.compile(r"\bOp\b")
_SHOWN = 4
"""Operands that a message names."""
_BODY = re.compile(r"\bGraph\b")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Body:
    """A graph as the attribute of an op: an op knows it by its digest. `Graph` is declared above this module."""

    @property
    def digest(self) -> str:
        """Content digest."""
        raise NotImplementedError


def attr_text(value: Any) -> str:
    """An attribute as text, canonical and unambiguous: it is what digests and `.dlc` files contain."""
    match value:
        case None:
            return "none"
        case Dim():
            return f"<{value}>"
        case bool() | int() | float():
            return print_literal(value)
        case str():
            return quote(value)
        case tuple():
            return f"({','.join(attr_text(v) for v in cast('tuple[Any, ...]', value))})"
        case DType() | Type():
            return str(value)
        case Tensor():
            return f"{value.type}:{value.digest}"
        case Kernel() | Body():
            return f"@{value.digest}"
        case _:
            raise TypeError(f"{type(value).__name__} is not an attribute type")


quote = quoted


@dataclass_transform(frozen_default=True, eq_default=False)
class Op:
    """Base of all ops. Instances are immutable; equality and hashing are by content digest."""

    is_abstract: ClassVar[bool] = True
    runs: ClassVar[bool] = False
    """Whether plans run it as a step: a kernel's call, or an instruction of a target. What does not run is an input, a
    constant or a result of such an op."""
    of_pack: ClassVar[bool] = False
    """Whether an op pack declares it. Programs that hold graphs name no such op: they run where the pack is not."""
    computed_once: ClassVar[Callable[[Op, Op], Op]]
    """(op, its expansion) → the expansion without rounding between its parts. `dlc.graph.precise` sets it."""
    is_rounded: ClassVar[bool] = False
    """Whether what `expand` gives for narrow floats is rounded as it should be. Else it is made of operands in f32."""
    text_name: ClassVar[str]
    """What the op is called in text, messages and listings: the class's name in lower case, "max_pool" of MaxPool."""
    operand_names: ClassVar[tuple[str, ...]]
    """The fields that hold ops, in order: what the op reads."""
    attr_names: ClassVar[tuple[str, ...]]
    """All other fields, in order: what is known when the op is made."""
    is_repeat: ClassVar[bool] = False
    """Whether it is what `again` gives: an execution of another op once more."""
    body_names: ClassVar[tuple[str, ...]]
    """The attributes that are graphs. An op that has any is computed at run time, even if all its operands are
    constant: nobody knows how long that takes."""
    exact: ClassVar[bool] = False
    """Whether an `evaluate` of its own gives the same bits with every numpy: it places elements, compares or counts."""
    digest: str
    """Content digest, 32 hexadecimal digits: of the op's name, its attributes and its operands' digests. Ops with equal
    digests are equal; two nodes of a model that compute the same are one op."""
    types: tuple[Type, ...]
    """Element type and shape of each result, derived from operands and attributes. All ops of `dlc.ops` but those with
    several results have one."""

    def __init_subclass__(cls, abstract: bool = False) -> None:
        cls.is_abstract = abstract
        if "evaluate" in vars(cls) and not vars(cls).get("exact", False):  # what it inherits says nothing of its own
            cls.evaluate = _noted(cls.evaluate)
        cls.text_name = _CAMEL.sub("_", cls.__name__).lower()
        dataclass(frozen=True, eq=False, repr=False)(cls)
        declared = fields(cast("Any", cls))  # type checkers see a plain class until the line above has run
        cls.operand_names = tuple(f.name for f in declared if _OPERAND.search(str(f.type)))
        cls.attr_names = tuple(f.name for f in declared if f.name not in cls.operand_names)
        cls.body_names = tuple(f.name for f in declared if _BODY.search(str(f.type)))

    # Digest and type are derived at construction: chains may be thousands of nodes deep, and deriving them on demand
    # would recurse as deep. It also puts a shape error where the op was written.
    def __post_init__(self) -> None:
        tick()
        object.__setattr__(self, "digest", self._digest())
        try:
            object.__setattr__(self, "types", self.derive_types())
        except ShapeError as problem:
            # Of ops that are composed of others, the outermost counts: it is the one that somebody wrote.
            problem.op = self._described()
            raise

    def _described(self) -> str:
        """The op on its operands, as messages say it: 'add of "x" f32[2,3] and a relu f32[4]'."""
        named = [quote(name) if (name := getattr(o, "name", "")) else f"a {o.text_name}" for o in self.operands]
        shown = [f"{name} {o.types[0].text}" for name, o in zip(named, self.operands, strict=True)][:_SHOWN]
        return f"{self.text_name} of {' and '.join(shown)}" + (" and more" if len(named) > _SHOWN else "")

    def _digest(self) -> str:
        h = blake2b(f"{self.text_name}\0".encode(), digest_size=16)
        for name in (*self.operand_names, *self.attr_names):
            h.update(f"{name}={_digest_text(getattr(self, name))}\0".encode())
        return h.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"{self.text_name}<{self.digest[:8]}>"

    @cached_property
    def operands(self) -> tuple[Op, ...]:
        """The ops this one reads, in field order, tuples flattened, absent ones left out."""
        return tuple(o for _, value in self.operand_fields() for o in _flatten(value))

    @cached_property
    def attrs(self) -> Mapping[str, Any]:
        """The fields that are not operands, by name."""
        return {name: getattr(self, name) for name in self.attr_names}

    @property
    def bodies(self) -> tuple[Any, ...]:
        """The graphs that it holds, in field order."""
        return tuple(getattr(self, name) for name in self.body_names)

    def with_bodies(self, new: Sequence[Body]) -> Self:
        """The same op on the same operands with other graphs."""
        if all(a is b for a, b in zip(self.bodies, new, strict=True)):
            return self
        held = dict(zip(self.body_names, new, strict=True))
        return type(self)(**dict(self.operand_fields()), **{**self.attrs, **held})

    def operand_fields(self) -> Iterator[tuple[str, Operand]]:
        """(field name, op | None | tuple of ops) of every operand field, in order."""
        return ((name, getattr(self, name)) for name in self.operand_names)

    @property
    def type(self) -> Type:
        """Element type and shape of the single result. Raises ValueError: the op has several (`types`)."""
        (single,) = self.types
        return single

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the single result, () of a scalar; a size that a call decides is a symbol. See `type`."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Element type of the single result. See `type`."""
        return self.type.dtype

    # ---- what a subclass declares: exactly one of the two ----
    # The keywords are there for type checkers only: they let a subclass write `define(self, x, b)`.
    def define(self, *params: Any, **_: Any) -> Comp | Sequence[Comp]:
        """The op as comprehensions over one `Param` per operand field (None where absent, a tuple where variadic)."""
        raise TypeError(f"{type(self).__name__} has no definition")

    def expand(self) -> Op | None:
        """The op as a composition of other ops, or None when it is defined by `define`."""
        return None

    def as_ops(self) -> Op | None:
        """The op as a composition, for targets that take ops one by one; None when there is none."""
        return self.expansion

    def defines(self) -> Mapping[Symbol, Op]:
        """Symbols of its results' dimensions that depend on data, with the operands, i64 scalars, that hold the sizes.

        Nothing else defines them: their names are not those of other symbols.
        """
        return {}

    def requires(self) -> Mapping[Symbol, Op]:
        """Numbers, operands that are i64 scalars, with the bounds that they have to be in: else a call is refused.

        An op that has any gives its first operand. It is no longer there once it is lowered: the numbers are outputs.
        """
        return {}

    @property
    def finds(self) -> frozenset[Symbol]:
        """The symbols that depend on data and that it defines, or requires to be in their bounds."""
        return frozenset((*self.defines(), *self.requires()))

    def demands(self) -> Mapping[str, Demand]:
        """Operand fields whose elements choose something, as subscripts do, with what they may be.

        An op that says so speaks for its expansion too. Nothing depends on it but the declared range of inputs
        (`Input.allowed`): whatever an index is, no op leaves its tensors.
        """
        return {}

    def again(self, number: int) -> Op | None:
        """Of an op that runs, an op that gives the same bits once more, after `number` executions; None for none.

        It gives the results that `made_again` lists, in that order, and may do without operands that only others need.
        """
        del number
        return None

    def made_again(self) -> tuple[int, ...]:
        """Results that `again` gives. What moves with every execution, as running statistics do, is not among them."""
        return tuple(range(len(self.types)))

    def operations(self) -> int:
        """Of an op that runs, what an execution computes, for those who choose what to execute again."""
        return 0

    def overwrites(self) -> tuple[tuple[int, int], ...]:
        """(operand, result) of an op that runs that may be one memory: it reads all there before it writes any."""
        return ()

    def for_gradient(self) -> Op:
        """The op that a graph holds which holds its gradient too: it may have further results after its own."""
        return self

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        """The cotangents of `operands`, in their order, given those of the results; None: derive them.

        Override it to name a gradient that a target recognises, or for a cheaper formula; a generated test holds it
        against the derivation, which follows `expand`, or differentiates the kernel that `define` gives.

        Args:
            seeds: One per result, of its type: how much a scalar changes with it. None where it changes nothing.

        Returns:
            One per operand, of its type; None where the derivative is zero everywhere. What nobody asks for costs
            nothing: an op that no output reaches is not in the graph.
        """
        del seeds
        return None

    # ---- derived ----
    @cached_property
    def expansion(self) -> Op | None:
        """`expand()`, once; of narrow floats computed in f32 and rounded once, see `dlc.graph.precise`."""
        whole = self.expand()
        if whole is None or self.is_rounded or not any(t.dtype.narrow for o in self.operands for t in o.types):
            return whole
        return Op.computed_once(self, whole)

    def _parameters(self) -> tuple[tuple[Param, ...], tuple[Any, ...]]:
        flat: list[Param] = []

        def param(o: Op) -> Param:
            flat.append(Logical(f"p{len(flat)}", o.type))
            return flat[-1]

        shaped = tuple(
            tuple(param(o) for o in v) if isinstance(v, tuple) else None if v is None else param(v)
            for _, v in self.operand_fields()
        )
        return tuple(flat), shaped

    @cached_property
    def _comps(self) -> tuple[tuple[Param, ...], tuple[Comp, ...]]:
        flat, shaped = self._parameters()
        found = self.define(*shaped)
        return flat, (found,) if isinstance(found, Comp) else tuple(found)

    def derive_types(self) -> tuple[Type, ...]:
        if (whole := self.expansion) is not None:
            return whole.types
        flat, comps = self._comps
        dtype = element_type([c.body for c in comps], {p.name: p.dtype for p in flat})
        return (Type(dtype, comps[0].shape),)

    @cached_property
    def kernel(self) -> Kernel:
        """The op's loops: its comprehensions as a kernel over its operands.

        Raises:
            TypeError: the op is composed of others (`expansion`), each of which has loops; passes make one kernel of
                them later, which `Backend.accepts_kernel` is asked about.
        """
        if type(self).define is Op.define and self.expansion is not None:
            raise TypeError(
                f"{self.text_name} is composed of other ops and has no kernel of its own: those of its expansion have, "
                "and Backend.accepts_kernel is asked about what is made of them"
            )
        flat, comps = self._comps
        return kernel_of(flat, comps, self.type.dtype, self.symbols)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols that its types, those of its operands and its attributes have in their dimensions, by name.

        Its kernel has one more parameter for each, behind those of the operands.
        """
        types = (*self.types, *(t for o in self.operands for t in o.types))
        return symbols_in(*(d for t in types for d in t.shape), *_dims(self.attrs.values()))

    def evaluate(self, *args: Array) -> Any:
        """The result on arrays of the operands (the reference semantics). One array per result."""
        from dlc.kernel.evaluate import run_kernel

        if (whole := self.expansion) is not None:
            return evaluate_ops((whole,), dict(zip(self.operands, args, strict=True)))[0]
        return run_kernel(self.kernel, args)[0]

    def with_operands(self, new: Sequence[Op]) -> Self:
        """The same op on other operands; the same object when nothing changes."""
        if all(a is b for a, b in zip(self.operands, new, strict=True)):
            return self
        if any(a.types != b.types for a, b in zip(self.operands, new, strict=True)):
            return self.remade(new, self.attrs)
        # Types follow from the operands' types: rewriting a large graph need not derive every one again.
        moved = object.__new__(type(self))
        for name, value in (*self._held(new).items(), *self.attrs.items(), ("types", self.types)):
            object.__setattr__(moved, name, value)
        object.__setattr__(moved, "digest", moved._digest())
        return moved

    def remade(self, operands: Sequence[Op], attributes: Mapping[str, Any]) -> Self:
        """An op of this class on other operands, in the same places, and with other attributes: types are derived."""
        return type(self)(**self._held(operands), **attributes)

    def _held(self, operands: Sequence[Op]) -> dict[str, Any]:
        """The fields that hold operands, with others in the same places."""
        rest = iter(operands)
        return {
            name: tuple(next(rest) for _ in v) if isinstance(v, tuple) else None if v is None else next(rest)
            for name, v in self.operand_fields()
        }


def _noted(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """An `evaluate` that computes with numpy itself: results that are floats are those of its version."""

    @wraps(evaluate)
    def noted(self: Op, *args: Array) -> Any:
        if any(t.dtype.is_float for t in self.types):
            used(NUMPY)
        return evaluate(self, *args)

    return noted


def _dims(values: Iterable[Any]) -> Iterator[Dim]:
    """The symbolic dimensions in attributes, lists included."""
    for value in values:
        if isinstance(value, Dim):
            yield value
        elif isinstance(value, tuple):
            yield from _dims(cast("tuple[Any, ...]", value))
        elif isinstance(value, Type):
            yield from (d for d in value.shape if isinstance(d, Dim))


def _flatten(value: Operand) -> tuple[Op, ...]:
    return () if value is None else value if isinstance(value, tuple) else (value,)


def _digest_text(value: Any) -> str:
    match value:
        case Op():
            return value.digest
        case (Op(), *_):
            return "|".join(o.digest for o in cast("tuple[Op, ...]", value))
        case _:
            return attr_text(value)
