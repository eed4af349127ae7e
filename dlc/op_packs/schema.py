"""What an op pack may say: the keys of the file, their types, and the message for each fault.

The mathematics are texts here; `dlc.op_packs.declared` reads them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, did_you_mean, quote
from dlc.op_packs.document import Document, Path_

NAME: Final = r"^[a-z][a-z0-9_]*$"
Name: TypeAlias = Annotated[str, StringConstraints(pattern=NAME, max_length=64)]
Text: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
Word: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200)]
AttributeKind: TypeAlias = Literal["int", "float", "bool", "text", "ints", "floats"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AttributeRecord(_Record):
    """An attribute; one without a default has to be given."""

    type: AttributeKind
    default: Any = None
    low: int | float | None = None
    """The least value of a number."""
    high: int | float | None = None
    choices: Annotated[list[Word], Field(min_length=1, max_length=100)] | None = None
    """The values that a text may have."""


class OnnxRecord(_Record):
    """An operator of ONNX models that is read as the op."""

    domain: Word
    name: Word
    since: Annotated[int, Field(ge=1, le=10_000)] = 1
    """First version of the domain's operator set; up to the next `since` of the same operator."""
    operands: Annotated[list[Name], Field(max_length=64)] | None = None
    """The op's operands in the order of the operator's; by default their own order."""
    rename: dict[Name, Word] = {}
    """Attribute of the op → how the operator calls it, if not the same."""
    default: dict[Name, Any] = {}
    """Attribute of the op → its value where the operator does not give it, if not the op's own default."""
    ignore: Annotated[list[Word], Field(max_length=64)] = []
    """Attributes of the operator that do not change its result."""


class OpRecord(_Record):
    """An op."""

    op: Name
    doc: Text
    """The equation, and where it comes from."""
    operands: Annotated[dict[Name, Word], Field(max_length=64)]
    """Name → element type and dimensions: `float[N, C, H, W]`."""
    attrs: Annotated[dict[Name, AttributeRecord], Field(max_length=64)] = {}
    require: Annotated[list[Word], Field(max_length=64)] = []
    """Conditions on dimensions and attributes."""
    define: Text | None = None
    """What it computes, in the kernel language."""
    compose: Text | None = None
    """What it computes, by other ops."""
    result: Name = "y"
    """Name of the result."""
    gradient: dict[Name, Text] | Literal["derived"] = "derived"
    """Operand → its cotangent by other ops, given the result's, `d` before the name of the result."""
    onnx: Annotated[list[OnnxRecord], Field(max_length=64)] = []
    examples: Annotated[list[dict[Name, Any]], Field(min_length=1, max_length=100)]
    """Values of operands and attributes, and the result."""


class PackRecord(_Record):
    """A file."""

    pack: Name
    """Prefix of the names of its ops."""
    doc: Text = "An op pack."
    requires: Word = ""
    """Versions of dlc that it works with, as `>=0.1,<0.3`."""
    ops: Annotated[list[OpRecord], Field(min_length=1, max_length=1000)]


_KNOWN: Final[dict[str, type[BaseModel]]] = {"ops": OpRecord, "attrs": AttributeRecord, "onnx": OnnxRecord}
"""The record below a key, for the names of its own keys."""


def validated(document: Document) -> PackRecord:
    """The document as a pack. Raises DlcError (PLUGIN) with every fault."""
    values = cast("object", document.values)
    if not isinstance(values, dict):
        problem = document.problem("a pack is a mapping", (), "begin the file with the line `pack: NAME`")
        raise DlcError(problem, exit_code=ExitCode.PLUGIN)
    try:
        return PackRecord.model_validate(values)
    except ValidationError as problem:
        found = {d: None for e in problem.errors(include_url=False) if (d := _diagnostic(document, e))}
        raise DlcError(*found, exit_code=ExitCode.PLUGIN) from None


def _diagnostic(document: Document, fault: Any) -> Diagnostic | None:
    """A fault that pydantic found, in our words."""
    # What follows a key of the file in pydantic's path names a branch of a union or marks a key of a mapping.
    path: Path_ = tuple(p for p in fault["loc"] if p != "[key]")
    while path and path not in document.places and fault["type"] != "missing":
        path = path[:-1]
    at_key = fault["loc"][-1:] == ("[key]",)
    shown = quote(str(fault["input"])) if isinstance(fault["input"], str | int | float) else ""
    match fault["type"]:
        case "extra_forbidden":
            known = _record_at(path[:-1]).model_fields
            help = did_you_mean(str(path[-1]), known, "keys")
            return document.problem(f"unknown key {quote(str(path[-1]))}", path, help, key=True)
        case "missing":
            return document.problem(f"the key {path[-1]} is missing", path[:-1], "every record has it")
        case "string_pattern_mismatch":
            help = "names are lower-case letters, digits and _, and begin with a letter"
            return document.problem(f"{shown} is not a name", path, help, key=at_key)
        case "literal_error" if path[-1:] == ("gradient",):
            return None  # of a union: the message for a mapping says all
        case "dict_type" if path[-1:] == ("gradient",):
            message = f"{shown or _kind(fault['input'])} is not a gradient"
            help = "write `gradient: derived`, or a mapping from operands to their cotangents"
        case "literal_error":
            message, help = f"{shown or _kind(fault['input'])} is none of {fault['ctx']['expected']}", ""
        case kind if kind in _NEEDED:
            needed, help = _NEEDED[kind]
            message = f"{needed} is needed, not {_kind(fault['input'])}"
        case "too_short" | "string_too_short":
            message, help = f"{path[-1]} is empty", "it has at least one entry"
        case _:
            text = str(fault["msg"])
            message, help = f"{path[-1] if path else 'the pack'}: {text[:1].lower()}{text[1:]}", ""
    return document.problem(message, path, help)


_NEEDED: Final = {
    "string_type": ("text", "quote it if it is text"),
    "model_type": ("a mapping", ""),
    "dict_type": ("a mapping", ""),
    "list_type": ("a list", "begin its items with `- `"),
    "int_type": ("a whole number", ""),
    "float_type": ("a number", ""),
}
"""What a value of the wrong type should have been, and what to do."""


def _record_at(path: Path_) -> type[BaseModel]:
    """The record that a path leads to."""
    names = [p for p in path if isinstance(p, str) and p in _KNOWN]
    return _KNOWN[names[-1]] if names else PackRecord


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "a mapping"
