"""Whether values fit the fields of an op: what text is checked against before an op is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from dlc.base.extents import is_extent
from dlc.base.types import DType, Type
from dlc.graph.op import Op
from dlc.graph.tensor import Tensor

Hint: TypeAlias = Any
"""A resolved annotation."""


@cache
def hints(cls: type[Op]) -> Mapping[str, Hint]:
    """Annotation of every field; Any where it names what is only known to type checkers."""
    try:
        return get_type_hints(cls)
    except NameError:
        return {}


@cache
def _required(cls: type[Op]) -> frozenset[str]:
    return frozenset(f.name for f in fields(cast("Any", cls)) if f.default is MISSING)


def misfit(cls: type[Op], operands: Sequence[Any], attrs: Mapping[str, Any]) -> str:
    """What is wrong with the fields of an op that is to be made; "" when nothing is.

    Args:
        cls: The op.
        operands: Values of the operand fields, in order; fewer when the last ones have defaults.
        attrs: Values of the attributes, by name.
    """
    names, required = cls.operand_names, _required(cls)
    least = max((k + 1 for k, name in enumerate(names) if name in required), default=0)
    if not least <= len(operands) <= len(names):
        wanted = str(least) if least == len(names) else f"{least} to {len(names)}"
        return f"takes {wanted} operands ({', '.join(names) or 'none'}), found {len(operands)}"
    for name in cls.attr_names:
        if name in required and name not in attrs:
            return f"needs the attribute '{name}' ({describe(hints(cls).get(name, Any))})"
    for name, value in (*zip(names, operands, strict=False), *attrs.items()):
        hint = hints(cls).get(name, Any)
        if not fits(value, hint):
            what = "operand" if name in names else "attribute"
            return f"{what} '{name}' must be {describe(hint)}"
    return ""


def fits(value: object, hint: Hint) -> bool:
    """Whether a value is one that an annotation allows. Integers are numbers everywhere, bools are not."""
    match get_origin(hint) or hint:
        case _ if hint is Any:
            return True
        case origin if origin in (Union, UnionType):
            return any(fits(value, h) for h in get_args(hint))
        case origin if origin is Literal:
            return value in get_args(hint)
        case origin if origin is tuple:
            of, *rest = get_args(hint)
            items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else None
            if items is None or (rest != [...] and len(items) != 1 + len(rest)):
                return False
            return all(
                fits(v, h) for v, h in zip(items, [of] * len(items) if rest == [...] else [of, *rest], strict=True)
            )
        case kind if kind is float:
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case kind if kind is int:
            return is_extent(value)
        case kind:
            return isinstance(value, cast("type", kind))


_WORDS: Mapping[object, str] = {
    Any: "anything", int: "an integer", float: "a number", bool: "true or false", str: "a quoted text",
    NoneType: "none", Op: "a value", DType: "an element type", Type: "a type like f32[2,3]", Tensor: "a constant",
}  # fmt: skip
_PLURALS: Mapping[object, str] = {int: "integers", float: "numbers", bool: "truth values", str: "texts", Op: "values"}


def describe(hint: Hint) -> str:
    """An annotation in words: "a list of integers", "none or a value"."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        shown = [h for h in args if not (h is int and float in args)]
        return " or ".join(dict.fromkeys(describe(h) for h in shown))
    if origin is Literal:
        return " or ".join(f'"{v}"' for v in args)
    if origin is tuple:
        inner = _PLURALS.get(args[0], f"{describe(args[0])} each")
        return f"[{inner}]" if args[0] is Op else f"a list of {inner}"
    return _WORDS.get(hint) or f"a {getattr(hint, '__name__', hint)}".lower()
