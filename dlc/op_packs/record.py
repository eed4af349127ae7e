"""One record of a pack, read: the texts in it become trees, and everything that is wrong is collected."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from dlc.base.diagnostics import Diagnostic, DlcError, did_you_mean
from dlc.base.lexer import Tokens
from dlc.kernel.expr import SIZE, Expr, Load, walk
from dlc.op_packs.compose import Names, Node, Signature, read_composition
from dlc.op_packs.declared import Attribute, usable
from dlc.op_packs.dims import BadType, OperandType
from dlc.op_packs.document import Document, Path_
from dlc.op_packs.instance import Condition
from dlc.op_packs.schema import NAME, OnnxRecord, OpRecord
from dlc.op_packs.statements import Statement, read_condition, read_statements

T = TypeVar("T")


@dataclass(frozen=True)
class Read:
    """What a record says, with its names resolved."""

    record: OpRecord
    name: str
    """With the pack's prefix."""
    path: Path_
    operands: Mapping[str, OperandType]
    attributes: Mapping[str, Attribute]
    require: tuple[Condition, ...]
    statements: tuple[Statement, ...]
    composition: Node | None
    gradient: Mapping[str, Node] | None
    calls: frozenset[str]
    """Ops that the composition calls."""


class RecordReader:
    """Reads one record; `problems` grows."""

    def __init__(self, document: Document, record: OpRecord, name: str, path: Path_, ops: Mapping[str, Signature]):
        self.document, self.record, self.name, self.path, self.ops = document, record, name, path, ops
        self.problems: list[Diagnostic] = []
        self.used: set[str] = set()

    def read(self) -> Read | None:
        """The record; None if something is wrong."""
        record = self.record
        operands = {name: kind for name, text in record.operands.items() if (kind := self._operand(name, text))}
        attributes = {name: self._attribute(name) for name in record.attrs}
        self._names()
        if self.problems:
            return None
        dims = tuple(dict.fromkeys(n for kind in operands.values() for n in kind.names))
        numbers = (*dims, *(name for name, a in attributes.items() if a.is_number))
        everything = (*operands, *dims, *attributes)
        require = tuple(
            Condition(e, " ".join(text.split()))
            for k, text in enumerate(record.require)
            if (e := self._condition(k, text, numbers)) is not None
        )
        statements: tuple[Statement, ...] = ()
        composition: Node | None = None
        called: set[str] = set()
        if record.define is None and record.compose is None:
            self.fail(f"{self.name} has neither define nor compose", (), "an op has one of the two, or both", key=True)
        if record.define is not None:
            statements = self._statements(record.define, operands, numbers)
        if record.compose is not None:
            composition, called = self._composition(("compose",), record.compose, everything)
        if not self.problems:
            self._unused(operands, attributes)
        gradient = self._gradient(operands, everything)
        for k, onnx in enumerate(record.onnx):
            self._onnx(k, onnx, operands, attributes)
        if self.problems:
            return None
        return Read(
            record, self.name, self.path, operands, attributes, require, statements, composition, gradient,
            frozenset(called),
        )  # fmt: skip

    def _statements(
        self, define: str, operands: Mapping[str, OperandType], numbers: tuple[str, ...]
    ) -> tuple[Statement, ...]:
        shapes = {name: kind.dims for name, kind in operands.items()}
        result = self.record.result
        found = self._inside(("define",), lambda text: read_statements(text, "", shapes, numbers, result), define) or ()
        for s in found:
            self.used |= {n.removeprefix(SIZE) for n in s.reads()}
        self._targets(found)
        self._loads(operands)
        return found

    def fail(self, message: str, path: Path_, help: str = "", *, key: bool = False) -> None:
        """Note an error at a place of the record."""
        self.problems.append(self.document.problem(message, (*self.path, *path), help, key=key))

    def _inside(self, path: Path_, read: Callable[[str], T], text: str) -> T | None:
        """What `read` makes of a text; errors in it are noted with their places in the file."""
        try:
            return read(text)
        except DlcError as problem:
            for d in problem.diagnostics:
                self.problems.append(self.document.inside(d, (*self.path, *path)))
            return None

    def _operand(self, name: str, text: str) -> OperandType | None:
        try:
            return OperandType.parse(text)
        except BadType as problem:
            self.fail(str(problem), ("operands", name), problem.help)
            return None

    def _attribute(self, name: str) -> Attribute:
        record, path = self.record.attrs[name], ("attrs", name)
        found = Attribute(record)
        if record.type not in ("int", "float", "ints", "floats") and (record.low, record.high) != (None, None):
            self.fail(f"attribute {name} of type {record.type} has no least and greatest value", path, "remove them")
        elif record.choices is not None and record.type != "text":
            self.fail(f"attribute {name} of type {record.type} has choices", path, "only texts have")
        elif "default" in record.model_fields_set:
            try:
                return Attribute(record, found.checked(record.default))
            except ValueError as problem:
                self.fail(f"attribute {name}: {problem}", (*path, "default"))
        return found

    def _names(self) -> None:
        """That names are free, and that operands which may be left out come last."""
        seen: dict[str, str] = {self.record.result: "result"}
        for what, names in (("operands", self.record.operands), ("attrs", self.record.attrs)):
            for name in names:
                if not usable(name):
                    self.fail(f"the name {name} is reserved", (what, name), "choose another name", key=True)
                elif name in seen:
                    message = f"the name {name} is taken by the {seen[name]} of that name"
                    self.fail(message, (what, name), "names differ within an op", key=True)
                seen[name] = {"operands": "operand", "attrs": "attribute"}[what]
        optional = ""
        for name, text in self.record.operands.items():
            if re.search(r"[=?]", text):
                optional = name
            elif optional:
                message = f"operand {name} cannot be left out and stands after {optional}, which can"
                self.fail(message, ("operands", name), "operands that may be left out come last", key=True)

    def _condition(self, k: int, text: str, numbers: tuple[str, ...]) -> Expr | None:
        found = self._inside(("require", k), lambda t: read_condition(t, "", numbers), text)
        if found is not None:
            self.used |= {x.param.removeprefix(SIZE) for x in walk(found) if isinstance(x, Load)}
        return found

    def _targets(self, statements: tuple[Statement, ...]) -> None:
        """That names of tensors on the way may be those of fields."""
        for s in statements[:-1]:
            if not usable(s.target) or not re.fullmatch(NAME, s.target) or s.target in self.record.attrs:
                tokens = Tokens(self.record.define or "", "")
                problem = tokens.fail(f"the name {s.target} is reserved", s.offset, "choose another, in lower case")
                self.problems.append(self.document.inside(problem.diagnostics[0], (*self.path, "define")))

    def _loads(self, operands: Mapping[str, OperandType]) -> None:
        """Statements read elements, so an operand that is left out has to have a value."""
        for name, kind in operands.items():
            if kind.absent:
                help = "give the value that it then has, as `float[C] = 1.0`"
                self.fail(f"operand {name} may be absent, and statements read it", ("operands", name), help)

    def _unused(self, operands: Mapping[str, OperandType], attributes: Mapping[str, Attribute]) -> None:
        for name, attribute in attributes.items():
            if name not in self.used:
                why = "" if attribute.is_number or self.record.compose else "; kernel text has no texts and lists"
                help = f"use {name} in the mathematics, or remove it{why}"
                self.fail(f"attribute {name} is not used", ("attrs", name), help, key=True)
        for name, kind in operands.items():
            if name not in self.used and self.used.isdisjoint(kind.names):
                help = f"use {name} in the mathematics, or remove it"
                self.fail(f"operand {name} is not used", ("operands", name), help, key=True)

    def _composition(self, path: Path_, text: str, values: tuple[str, ...]) -> tuple[Node | None, set[str]]:
        names = Names(values, self.ops)
        found = self._inside(path, lambda t: read_composition(t, "", names), text)
        self.used |= names.used
        return found, names.called

    def _gradient(self, operands: Mapping[str, OperandType], values: tuple[str, ...]) -> Mapping[str, Node] | None:
        given = self.record.gradient
        if isinstance(given, str):
            return None
        floats = [name for name, kind in operands.items() if kind.may_be_float]
        for name in given:
            if name not in floats:
                what = "has no gradient: its elements are whole" if name in operands else "is not an operand"
                help = did_you_mean(name, floats, "operands with gradients")
                self.fail(f"{name} {what}", ("gradient", name), help, key=True)
        for name in floats:
            if name not in given:
                help = f"write `{name}: none` if it is zero everywhere"
                self.fail(f"the gradient of {name} is missing", ("gradient",), help, key=True)
        result = self.record.result
        used = set(self.used)
        found: dict[str, Node] = {}
        for name, text in given.items():
            if text.strip() != "none":
                node, _ = self._composition(("gradient", name), text, (*values, result, f"d{result}"))
                if node is not None:
                    found[name] = node
        self.used = used
        return found

    def _onnx(
        self, k: int, onnx: OnnxRecord, operands: Mapping[str, OperandType], attributes: Mapping[str, Attribute]
    ) -> None:
        for part in ("rename", "default"):
            for name in getattr(onnx, part):
                if name not in attributes:
                    help = did_you_mean(name, attributes, "attributes")
                    self.fail(f"{self.name} has no attribute {name}", ("onnx", k, part, name), help, key=True)
        for name, value in onnx.default.items():
            if name in attributes:
                try:
                    attributes[name].checked(value)
                except ValueError as problem:
                    self.fail(f"attribute {name}: {problem}", ("onnx", k, "default", name))
        if onnx.operands is not None:
            for j, name in enumerate(onnx.operands):
                if name not in operands:
                    help = did_you_mean(name, operands, "operands")
                    self.fail(f"{self.name} has no operand {name}", ("onnx", k, "operands", j), help)
            missing = [n for n, kind in operands.items() if n not in onnx.operands and not kind.optional]
            if missing:
                self.fail(f"the operand {missing[0]} is missing", ("onnx", k, "operands"), "give each its place")
        ours = {onnx.rename.get(name, name) for name in attributes}
        for j, name in enumerate(onnx.ignore):
            if name in ours:
                self.fail(f"{name} is ignored, and an attribute", ("onnx", k, "ignore", j), "remove one of the two")


def signature_of(record: OpRecord) -> Signature:
    """Names of a record's operands and attributes."""
    return Signature(tuple(record.operands), tuple(record.attrs))
