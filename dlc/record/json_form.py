"""Records from JSON, and the JSON Schema of records, derived from the declarations; `dlc.record.to_json` writes them.

A declaration is a frozen dataclass with a sentence under each field; fields are texts, numbers, booleans, None, tuples,
mappings from texts, and other declarations.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from dlc.base.diagnostics import ExitCode, Location, error
from dlc.record.checks import Unfit, check
from dlc.record.record import SCHEMA, Record

T = TypeVar("T")
_SCALARS: Mapping[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def of_json(kind: type[T], data: object, where: str = "") -> T:
    """The inverse. Keys that are not declared are left out: they are of a later version.

    Raises:
        Unfit: a value is missing, or of another type.
    """
    return cast("T", _read(kind, data, where))


def record_of_json(data: object, source: str) -> Record:
    """A record from a file's JSON.

    Raises:
        DlcError: (USAGE) it is none, or one of another version.
    """
    version = cast("Mapping[str, object]", data).get("schema") if isinstance(data, Mapping) else None
    if version != SCHEMA:
        what = f"its schema is {version!r}" if isinstance(version, str) else "it has no schema"
        raise no_record(source, f"{what}, not {SCHEMA!r}")
    try:
        found = of_json(Record, cast("object", data))
        check(found)
        return found
    except Unfit as problem:
        raise no_record(source, str(problem)) from None


def no_record(source: str, reason: str) -> Exception:
    """What to raise when a file holds no record."""
    return error(
        "not-a-record",
        f"{source} is no record of a build or a measurement: {reason}",
        location=Location(source),
        help="write one with: dlc build MODEL --record, or dlc bench MODEL --record FILE.json",
        exit_code=ExitCode.USAGE,
    )


def _read(kind: Any, data: object, where: str) -> object:
    if is_dataclass(kind):
        return _read_fields(kind, data, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(data, list):
        listed = cast("list[object]", data)
        return tuple(_read(arguments[0], each, f"{where}[{k}]") for k, each in enumerate(listed))
    if origin is not None and issubclass(_class_of(origin), Mapping) and isinstance(data, dict):
        pairs = cast("dict[object, object]", data).items()
        return {str(key): _read(arguments[1], each, f"{where}.{key}") for key, each in pairs}
    if origin in (Union, types.UnionType):
        whole = [a for a in arguments if is_dataclass(a)]
        if whole and data is not None:
            return _read(whole[0], data, where)
        if any(_fits(a, data) for a in arguments):
            return data
    elif _fits(kind, data):
        return float(cast("float", data)) if kind is float else data
    raise Unfit(f"{where or 'the whole'} is {_brief(data)}, not {_words(kind)}")


def _class_of(origin: object) -> type:
    return origin if isinstance(origin, type) else object


def _read_fields(kind: Any, data: object, where: str) -> object:
    if not isinstance(data, dict):
        raise Unfit(f"{where or 'the whole'} is {_brief(data)}, not an object")
    given, hints = cast("dict[str, object]", data), _hints(kind)
    values: dict[str, object] = {}
    for f in fields(kind):
        place = f"{where}.{f.name}" if where else f.name
        if f.name in given:
            values[f.name] = _read(hints[f.name], given[f.name], place)
        elif f.default is MISSING and f.default_factory is MISSING:
            raise Unfit(f"{place} is missing")
    return kind(**values)


def _fits(kind: object, data: object) -> bool:
    if kind is float:
        return isinstance(data, int | float) and not isinstance(data, bool)
    if kind is int:
        return isinstance(data, int) and not isinstance(data, bool)
    return kind in _SCALARS and isinstance(data, cast("type", kind))


def _brief(data: object) -> str:
    return "an object" if isinstance(data, dict) else "a list" if isinstance(data, list) else repr(data)[:40]


def _words(kind: Any) -> str:
    schema = schema_of(kind, {})
    found = schema.get("type", schema.get("anyOf", "an object"))
    return " or ".join(str(w) for w in found) if isinstance(found, list) else str(found)  # pyright: ignore


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of records."""
    definitions: dict[str, Any] = {}
    whole = schema_of(Record, definitions)
    definitions["Record"]["properties"]["schema"]["const"] = SCHEMA
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        **whole,
        "$defs": dict(sorted(definitions.items())),
    }


def schema_of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type of a field; those of declarations are added to `definitions`."""
    if is_dataclass(kind):
        name = cast("type", kind).__name__
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = _object(cast("type", kind), definitions)
        return {"$ref": f"#/$defs/{name}"}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return {"type": "array", "items": schema_of(arguments[0], definitions)}
    if origin in (Union, types.UnionType):
        if all(a in _SCALARS for a in arguments):
            return {"type": [_SCALARS[a] for a in arguments]}
        return {"anyOf": [schema_of(a, definitions) for a in arguments]}
    if origin is not None:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], definitions)}
    return {"type": _SCALARS[kind]}


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    sentences, hints = _sentences(kind), _hints(kind)
    declared = fields(cast("Any", kind))
    return {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "properties": {
            f.name: {**schema_of(hints[f.name], definitions), "description": sentences.get(f.name, "")}
            for f in declared
        },
        "required": [f.name for f in declared if f.default is MISSING and f.default_factory is MISSING],
    }


def _sentences(kind: type) -> Mapping[str, str]:
    """The sentence under each field, which exists in the source only."""
    (declaration,) = ast.parse(inspect.getsource(kind)).body
    found: dict[str, str] = {}
    name = ""
    for statement in cast("ast.ClassDef", declaration).body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=str(name))):
                pass
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = inspect.cleandoc(text)
            case _:
                pass
    return found
