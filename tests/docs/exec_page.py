"""The tables of messages in `docs/exec-backends.md`, from their declaration."""

import inspect
import json
import re
import types
from dataclasses import MISSING, fields
from typing import Any, Final, Literal, Union, get_args, get_origin

from dlc.driver.exec_backend import protocol as p
from dlc.driver.exec_backend.form import hints_of, to_json

BEGIN, END = "<!-- messages: written by `pytest tests/docs --update` -->\n", "<!-- end of messages -->\n"
ORDER: Final = (
    *(p.Request, p.Response, p.Failure),
    *(p.DescribeRequest, p.Description, p.OptionInfo, p.MemoryInfo),
    *(p.LegaliseRequest, p.OpInfo, p.TensorType, p.Legality, p.Refusal),
    *(p.EmitRequest, p.Program, p.Port, p.Value, p.ConstantData, p.Step),
    *(p.Kernel, p.KernelTensor, p.Nest, p.NestAxis, p.Const, p.Axis, p.Load, p.Apply, p.Emitted),
)


def declared() -> set[type[Any]]:
    """Every message of the protocol."""
    return {kind for _, kind in inspect.getmembers(p, inspect.isclass) if kind.__module__ == p.__name__}


def tables() -> str:
    """A section for each message."""
    return "\n".join(_section(kind) for kind in ORDER)


def _section(kind: Any) -> str:
    head = ("| field | type | default | meaning |", "|---|---|---|---|")
    hints, rows = hints_of(kind), list[str]()
    for f in fields(kind):
        default = f.default_factory() if callable(f.default_factory) else f.default
        text = "" if default is MISSING else f"`{_json(default)}`"
        rows.append(f"| `{f.name}` | {_type(hints[f.name])} | {text} | {f.metadata['doc']} |")
    return "\n".join([f"### {kind.__name__}", "", inspect.getdoc(kind) or "", "", *head, *rows, ""])


def _json(value: Any) -> str:
    return json.dumps(to_json(value))


def _type(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return "any value"
    if origin is Literal:
        return " or ".join(f"`{a}`" for a in arguments)
    if origin in (Union, types.UnionType):
        if set(arguments) == {p.Const, p.Axis, p.Load, p.Apply}:
            return "expression"
        return " or ".join(_type(a) for a in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if kind is type(None):
        return "null"
    if kind in declared():
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    plain = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return plain[kind] if kind in plain else f"object of {_type(arguments[1])}"


def page(text: str) -> str:
    """The page with its tables written anew."""
    assert text.count(BEGIN) == text.count(END) == 1
    return re.sub(f"(?<={re.escape(BEGIN)}).*?(?={re.escape(END)})", lambda _: "\n" + tables(), text, flags=re.DOTALL)
