"""JSON cases: names, one element type and kernel text.

    {"name": …, "ins": […], "outs": […], "data_type": "float" | "double" | "int", "kernel": "…", "grad_to": […]}

`grad_to` is optional; `closed_form`, `tag` and `origin` document a case and are not read. Any other key is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from dlc.base.diagnostics import Location, did_you_mean, error
from dlc.base.types import DType, f32, f64, i32
from dlc_frontend_kernel.expressions import Reader
from dlc_frontend_kernel.programs import check_flow, read_first, read_statements
from dlc_frontend_kernel.syntax import KernelSource
from dlc_frontend_kernel.tokens import KernelTokens

DATA_TYPES: Final[Mapping[str, DType]] = {"float": f32, "double": f64, "int": i32}
_REQUIRED = ("name", "ins", "outs", "data_type", "kernel")
_KNOWN = (*_REQUIRED, "grad_to")
_DOCUMENTATION = ("closed_form", "tag", "origin")
MAX_TENSORS = 1000


def read_case(text: str, source: str, dtype: DType | None = None) -> KernelSource:
    """The program of a JSON case.

    Args:
        text: The file's content.
        source: How messages call it.
        dtype: Element type; None: that of the case.

    Raises:
        DlcError: not JSON, a key missing or of a wrong kind, or a fault in the kernel text, whose line and column
            count within the text.
    """
    case = _Case(_load(text, source), source)
    name = case.text("name")
    ins, outs = case.names("ins"), case.names("outs")
    if not outs:
        case.refuse("outs is empty: a kernel has at least one output")
    word = case.text("data_type")
    if word not in DATA_TYPES:
        case.refuse(f"data_type is {json.dumps(word)}", did_you_mean(word, DATA_TYPES, "data types"))
    tokens = KernelTokens(case.text("kernel"), f"{source}: kernel")
    reader = Reader(tokens, {}, (*ins, *outs))
    statements = read_statements(reader, "")
    before = read_first(statements)
    both = tuple(n for n in outs if n not in ins and n in before)
    grad = case.names("grad_to") if "grad_to" in case.values else ()
    if "grad_to" in case.values and not grad:
        case.refuse("grad_to is empty", "name inputs, or leave grad_to out")
    program = KernelSource(
        name, (*ins, *both), outs, reader.tensors, statements, dtype or DATA_TYPES[word], tokens, tuple(grad)
    )
    _check(program, case)
    return program


def _check(program: KernelSource, case: _Case) -> None:
    written = {s.target.tensor for s in program.statements}
    for name in program.outs:
        if name not in written:
            case.refuse(f"the kernel writes nothing to the output {name}", did_you_mean(name, written, "written"))
    for name in program.ins:
        if name not in program.tensors:
            help = f"take {name} out of ins, or use it"
            case.refuse(f"the kernel does not use the input {name}, so its shape is not known", help)
    check_flow(program)
    if program.grad and not program.dtype.is_float:
        case.refuse(f"grad_to with elements of type {program.dtype}", "only floats have gradients")
    for name in program.grad:
        if name not in program.ins:
            case.refuse(f"grad_to names {name}, which is no input", did_you_mean(name, program.ins, "inputs"))


class _Case:
    """The object of a file, asked for keys of certain kinds."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values, self.source = values, source
        for key in values:
            if key not in _KNOWN and key not in _DOCUMENTATION:
                self.refuse(f"unknown key {json.dumps(key)}", did_you_mean(key, _KNOWN, "keys"))
        for key in _REQUIRED:
            if key not in values:
                self.refuse(f"the key {key} is missing", f"a case has {', '.join(_REQUIRED)}")

    def refuse(self, message: str, help: str = "") -> NoReturn:
        """Raise the error that the case is not as it should be."""
        raise error("bad-case", message, location=Location(self.source), help=help)

    def text(self, key: str) -> str:
        value = self.values[key]
        if not isinstance(value, str) or not value:
            self.refuse(f"{key} is {_kind(value)}; it must be a text that is not empty")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        value = self.values[key]
        if not isinstance(value, list):
            self.refuse(f"{key} is {_kind(value)}; it must be a list of names")
        items = cast("list[Any]", value)
        if len(items) > MAX_TENSORS:
            self.refuse(f"{key} has {len(items)} names; the limit is {MAX_TENSORS}")
        for item in items:
            if not isinstance(item, str) or not (item.isidentifier() and item.isascii()):
                shown = json.dumps(item) if isinstance(item, str) else _kind(item)
                self.refuse(f"{key} has {shown}, which is no name of a tensor")
        names = tuple(cast("list[str]", items))
        for k, name in enumerate(names):
            if name in names[:k]:
                self.refuse(f"{key} names {name} twice")
        return names


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "an empty text" if not value else "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def _load(text: str, source: str) -> Mapping[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in pairs:
            if key in out:
                raise error("bad-case", f"the key {json.dumps(key)} occurs twice", location=Location(source))
            out[key] = value
        return out

    try:
        found = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as problem:
        line = text.splitlines()[problem.lineno - 1] if problem.lineno <= len(text.splitlines()) else ""
        place = Location(source, line=problem.lineno, column=problem.colno)
        raise error("not-json", f"not JSON: {problem.msg}", location=place, source_line=line) from None
    except RecursionError:
        raise error("not-json", "not a case: lists are nested too deeply", location=Location(source)) from None
    except ValueError as problem:
        raise error("not-json", f"not a case: {problem}", location=Location(source)) from None
    if not isinstance(found, dict):
        message = f"a case is an object, found {_kind(found)}"
        raise error("bad-case", message, location=Location(source))
    return cast("dict[str, Any]", found)
