"""Values of options: spec text ↔ Python, one case per kind of type."""

import math
import re
import types
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Protocol, Self, TypeAlias, Union, cast, get_args, get_origin

from dlc.base.diagnostics import did_you_mean, quote
from dlc.spec.text import Spec, Value

_YES_NO = {"yes": True, "true": True, "no": False, "false": False}
_INTEGER = re.compile(r"[+-]?(?:0x[0-9a-fA-F]+|[0-9]+(?:_[0-9]+)*)")
_SIZE = re.compile(r"([0-9]+)([A-Za-z]*)")
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True)
class ByteUnits:
    """Marks an integer annotation as a number of bytes."""


Bytes: TypeAlias = Annotated[int, ByteUnits()]
"""An int written with units: 64, 512KiB, 4GiB."""


class Nested(Protocol):
    """A value with options of its own: a `Configurable`, which is declared above this module."""

    @classmethod
    def from_spec(cls, spec: Spec) -> Self: ...
    def to_spec(self) -> Spec: ...


class Problem(ValueError):
    """A value that its type does not allow; the caller knows where it stands."""

    def __init__(self, message: str, help: str = "") -> None:
        """`message` names the value."""
        super().__init__(message)
        self.help = help


def parse_bytes(text: str) -> int:
    """`4GiB` → 4294967296; raises Problem."""
    found = _SIZE.fullmatch(text)
    if not found or found[2] not in _UNITS or len(found[1]) > 20:
        raise Problem(f"{quote(text)} is not a size", "write a whole number with B, KiB, MiB, GiB or TiB: 4GiB")
    return int(found[1]) * _UNITS[found[2]]


def format_bytes(count: int) -> str:
    """Inverse of `parse_bytes`: the largest unit that divides `count`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if count and count % _UNITS[unit] == 0:
            return f"{count // _UNITS[unit]}{unit}"
    return str(count)


def read(annotation: object, value: Value) -> object:
    """`value` as the annotated type; raises Problem."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        is_size = any(isinstance(a, ByteUnits) for a in args[1:])
        return parse_bytes(_word(value, "a size")) if is_size else read(args[0], value)
    if origin is Literal:
        return _choice({str(a): a for a in args}, value)
    if origin in (types.UnionType, Union):
        return _read_union(args, value)
    if origin is tuple:
        return _read_tuple(args, value)
    if annotation is Spec:
        return value if isinstance(value, Spec) else Spec(_word(value, "a name"))
    return _read_class(cast("type[object]", annotation), value)


def write(annotation: object, value: Any) -> Value:
    """Inverse of `read`: the canonical spec value of a field."""
    if get_origin(annotation) in (types.UnionType, Union) and isinstance(value, tuple):
        annotation = next(member for member in get_args(annotation) if get_origin(member) is tuple)
    origin, args = get_origin(annotation), get_args(annotation)
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case Enum():
            return _enum_word(value)
        case int() if origin is Annotated:
            return format_bytes(value)
        case float():
            return repr(value)
        case tuple():
            items = cast("tuple[object, ...]", value)
            if _is_pairs(args):
                pairs = cast("tuple[tuple[str, object], ...]", items)
                return tuple(f"{k}:{write(get_args(args[0])[1], v)}" for k, v in pairs)
            kinds = (args[0],) * len(items) if args[1:] == (...,) else args
            return tuple(_flat(write(kind, item)) for kind, item in zip(kinds, items, strict=True))
        case Spec():
            return value
        case str() | int():
            return str(value)
        case _:
            return cast("Nested", value).to_spec()


def format_option(annotation: object, value: object) -> str:
    """A field's value as it stands after "key=" in a spec."""
    _, _, text = str(Spec("x", (("x", write(annotation, value)),))).partition("=")
    return text[:-1]


def spec_name(kind: object) -> str:
    """The spec name of a Configurable class, "" for any other annotation."""
    name: object = vars(kind).get("name") if isinstance(kind, type) else None
    return name if isinstance(name, str) else ""


def describe(annotation: object) -> str:
    """Accepted values in words."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return "size" if any(isinstance(a, ByteUnits) for a in args[1:]) else describe(args[0])
    if origin is Literal:
        return " | ".join(str(a) for a in args)
    if origin in (types.UnionType, Union):
        return " | ".join("none" if a is type(None) else describe(a) for a in args)
    if origin is tuple:
        if _is_pairs(args):
            return f"list of name:{describe(get_args(args[0])[1])}"
        return f"list of {describe(args[0])}" if args[1:] == (...,) else ",".join(describe(a) for a in args)
    simple: dict[object, str] = {bool: "yes | no", int: "integer", float: "number", str: "text", Spec: "spec"}
    if annotation in simple:
        return simple[annotation]
    kind = cast("type[object]", annotation)
    if issubclass(kind, Enum):
        return " | ".join(_enum_word(e) for e in kind)
    return spec_name(annotation) + "{…}"


def _read_class(kind: type[object], value: Value) -> object:
    if kind is str:
        return _word(value, "text")
    if kind is bool:
        return _choice(_YES_NO, value)
    if kind is int:
        word = _word(value, "an integer")
        if not _INTEGER.fullmatch(word) or len(word) > 400:
            raise Problem(f"{quote(word)} is not an integer")
        return int(word, 16) if "x" in word else int(word)
    if kind is float:
        return _read_float(_word(value, "a number"))
    if issubclass(kind, Enum):
        return _choice({_enum_word(e): e for e in kind}, value)
    name = spec_name(kind)
    assert name, f"{kind} cannot be the type of an option"
    spec = value if isinstance(value, Spec) else Spec(_word(value, f"{name}{{…}}"))
    if spec.name != name:
        raise Problem(f"{quote(spec.name)} is not {name}", did_you_mean(spec.name, [name], "known"))
    return cast("type[Nested]", kind).from_spec(spec)


def _read_float(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        raise Problem(f"{quote(word)} is not a number") from None
    if math.isnan(number):
        raise Problem("nan is not a usable number")
    return number


def _read_union(args: tuple[Any, ...], value: Value) -> object:
    """`none`, a nested spec by its name, or the first member that accepts the value."""
    if type(None) in args and value == "none":
        return None
    members = [a for a in args if a is not type(None)]
    named = {spec_name(m): m for m in members}
    if "" not in named:
        word = value.name if isinstance(value, Spec) else _word(value, "a name")
        return _read_class(_choice(named, word), value)
    problems: list[Problem] = []
    for member in members:
        try:
            return read(member, value)
        except Problem as problem:
            problems.append(problem)
    raise problems[-1]


def _read_tuple(args: tuple[Any, ...], value: Value) -> tuple[object, ...]:
    items = value if isinstance(value, tuple) else (value,)
    if _is_pairs(args):
        return tuple(_read_pair(get_args(args[0])[1], item) for item in items)
    if args[1:] == (...,):
        return tuple(read(args[0], item) for item in items)
    if len(items) != len(args):
        raise Problem(f"{len(args)} values are needed, {len(items)} are given")
    return tuple(read(kind, item) for kind, item in zip(args, items, strict=True))


def _read_pair(kind: object, item: Value) -> tuple[str, object]:
    """`name:value`; the last colon divides, because tensor names hold colons."""
    word = _word(item, "name:value")
    key, colon, text = word.rpartition(":")
    if not colon or not key:
        raise Problem(f"{quote(word)} is not of the form name:value")
    return key, read(kind, text)


def _is_pairs(args: tuple[Any, ...]) -> bool:
    return (
        args[1:] == (...,)
        and get_origin(args[0]) is tuple
        and len(get_args(args[0])) == 2
        and get_args(args[0])[0] is str
    )


def _flat(value: Value) -> "str | Spec":
    assert not isinstance(value, tuple), "a list of lists has no spec text"
    return value


def _choice(known: dict[str, Any], value: Value) -> Any:
    word = _word(value, "a word")
    if word not in known:
        raise Problem(f"unknown value {quote(word)}", did_you_mean(word, known, "values"))
    return known[word]


def _enum_word(member: Enum) -> str:
    return member.value if isinstance(member.value, str) else member.name.lower().replace("_", "-")


def _word(value: Value, wanted: str) -> str:
    if isinstance(value, str):
        return value
    found = f"the spec {quote(str(value))}" if isinstance(value, Spec) else f"a list of {len(value)}"
    raise Problem(f"{wanted} is needed, not {found}")
