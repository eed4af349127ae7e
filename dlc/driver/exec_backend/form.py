"""Dataclasses ↔ JSON, and JSON Schema: the form of messages follows from the declaration of their fields."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from dlc.base.diagnostics import did_you_mean, quote

T = TypeVar("T")
_PLAIN: Mapping[object, tuple[str, tuple[type, ...]]] = {
    bool: ("boolean", (bool,)),
    int: ("integer", (int,)),
    float: ("number", (int, float)),
    str: ("string", (str,)),
    type(None): ("null", (type(None),)),
}
"""Type of Python → its name in JSON Schema, and what the JSON reader makes of such values."""
_NON_FINITE: Mapping[str, float] = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class FormError(ValueError):
    """A value that is not of its form."""

    def __init__(self, where: str, message: str, help: str = "") -> None:
        """`where` is a path as `result.ops[3]`."""
        super().__init__(f"{where}: {message}")
        self.help = help


def part(text: str, default: Any = MISSING) -> Any:
    """A field of a message: what it is, in a phrase, and its value where it is left out."""
    if isinstance(default, dict):
        return field(default_factory=dict[str, Any], metadata={"doc": text})
    return field(default=default, metadata={"doc": text}) if default is not MISSING else field(metadata={"doc": text})


def to_json(value: Any) -> Any:
    """A message as lists, dicts, texts and numbers; floats that JSON does not have are texts."""
    if is_dataclass(value):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json(v) for key, v in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [to_json(v) for v in cast("tuple[Any, ...]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def from_json(kind: type[T], value: Any, where: str) -> T:
    """The message that `to_json` makes `value` of. Raises FormError: it is of another form."""
    return cast("T", _read(kind, value, where))


def _read(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if kind in _PLAIN:
        name, allowed = _PLAIN[kind]
        if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
            raise FormError(where, f"must be {_article(name)}, not {_shown(value)}")
        return float(value) if kind is float else value
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise FormError(where, f"must be one of {', '.join(map(str, arguments))}, not {_shown(value)}")
        return value
    if origin in (Union, types.UnionType):
        return _union(arguments, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise FormError(where, f"must be a list, not {_shown(value)}")
        items = cast("list[Any]", value)
        return tuple(_read(arguments[0], item, f"{where}[{k}]") for k, item in enumerate(items))
    if not isinstance(value, dict):
        raise FormError(where, f"must be an object, not {_shown(value)}")
    given = cast("dict[str, Any]", value)
    if is_dataclass(kind):
        return _object(kind, given, where)
    return {key: _read(arguments[1], v, f"{where}.{key}") for key, v in given.items()}


def _union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    problems: list[FormError] = []
    for each in arguments:
        try:
            return _read(each, value, where)
        except FormError as problem:
            problems.append(problem)
    # Of what may be left out, what else it may be is what the author meant to write.
    raise next((p for k, p in zip(arguments, problems, strict=True) if k is not type(None)), problems[0])


def _object(kind: Any, given: dict[str, Any], where: str) -> Any:
    known = {f.name: f for f in fields(kind)}
    for key in given:
        if key not in known:
            raise FormError(where, f"has no field {quote(key)}", did_you_mean(key, known, "fields"))
    for name, declared in known.items():
        if name not in given and declared.default is MISSING and declared.default_factory is MISSING:
            raise FormError(where, f"lacks the field {name}")
    hints = hints_of(kind)
    return kind(**{key: _read(hints[key], v, f"{where}.{key}") for key, v in given.items()})


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else name if name == "null" else f"a {name}"


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return quote(value[:60]) if isinstance(value, str) else str(value)[:40]


@cache
def hints_of(kind: type[Any]) -> Mapping[str, Any]:
    """The types of the fields of a message."""
    return get_type_hints(kind)


@dataclass
class _Schema:
    """A JSON Schema that grows by the messages it refers to."""

    definitions: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type."""
        if kind in _PLAIN:
            return {"type": _PLAIN[kind][0]}
        if kind is Any:
            return {}
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(each) for each in arguments]}
        if origin is tuple:
            if arguments[-1] is ...:
                return {"type": "array", "items": self.of(arguments[0])}
            items = [self.of(each) for each in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if is_dataclass(kind):
            name = cast("type[Any]", kind).__name__
            if name not in self.definitions:
                self.definitions[name] = {}  # it may refer to itself
                self.definitions[name] = self._object(kind)
            return {"$ref": f"#/$defs/{name}"}
        return {"type": "object", "additionalProperties": self.of(arguments[1])}

    def _object(self, kind: Any) -> dict[str, Any]:
        hints, properties = hints_of(kind), dict[str, Any]()
        required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
        for f in fields(kind):
            properties[f.name] = {**self.of(hints[f.name]), "description": f.metadata["doc"]}
            if f.name not in required:
                made = f.default if f.default is not MISSING else cast("Any", f.default_factory)()
                properties[f.name]["default"] = to_json(made)
        text = " ".join((kind.__doc__ or "").split())
        found: dict[str, Any] = {"type": "object", "description": text, "properties": properties}
        return {**found, "required": required} if required else found


def json_schema(strict: type[Any], *others: type[Any]) -> dict[str, Any]:
    """The JSON Schema of messages: any of them is valid, and objects in `strict` have no other fields."""
    closed = _Schema()
    roots = [closed.of(strict)]
    for definition in closed.definitions.values():
        definition["additionalProperties"] = False
    schema = _Schema(closed.definitions)
    roots += [schema.of(kind) for kind in others]
    head = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": head, "anyOf": roots, "$defs": dict(sorted(schema.definitions.items()))}
