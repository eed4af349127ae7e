"""`assembled`: the text that `listing` prints → program and file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any, cast

from dlc.base.diagnostics import did_you_mean
from dlc.base.lexer import Tokens
from dlc_backend_s2train.codes import Arena, Element, Role
from dlc_backend_s2train.container.layout import KINDS, RANK, SECTIONS, WORD_1
from dlc_backend_s2train.container.listing import BOUND
from dlc_backend_s2train.container.writer import write
from dlc_backend_s2train.device.registers import with_setups
from dlc_backend_s2train.isa.text import parse_instruction
from dlc_backend_s2train.program import (
    Entry,
    Function,
    Geometry,
    Hyper,
    Numbered,
    Program,
    Setup,
    Storage,
    Target,
    Tensor,
)


def assembled(text: str, source: str) -> tuple[Program, bytes]:
    """The program and the file that a text says; whether it is legal is for the verifier.

    Raises:
        DlcError: "syntax", "bad-instruction", with line and column; "s2t-limit".
    """
    made = _Assembly(Tokens(text, source))
    program = made.program()
    return program, write(program, made.sections)


class _Assembly:
    """Records of a text, by kind."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._target = Target()
        self._entries: list[Entry] = []
        self._tables: dict[str, list[Any]] = {n: [] for n in ("storage", "tensor", "geometry", "hyper", "function")}
        self._held: dict[str, list[Any]] = {n: [] for n in ("instruction", "word", "number", "setup")}
        self._meta: dict[str, str] = {}
        self._weights: dict[int, bytes] = {}
        self._frames = b""
        self._derived = False
        """Whether registers follow from the instructions."""
        self.sections: dict[str, bytes] = {}
        """Optional sections."""
        readers: dict[str, Callable[[], object]] = {
            "machine": self._machine,
            "meta": self._a_meta,
            "storage": self._storage,
            "tensor": self._tensor,
            "geometry": lambda: self._numbered("geometry", lambda: Geometry(**self._values(Geometry))),
            "hyper": lambda: self._numbered("hyper", lambda: Hyper(**self._values(Hyper))),
            "function": self._function,
            "entry": self._entry,
            **{word: self._bound(kind) for word, kind in BOUND.items()},
            "weights": self._a_weight,
            "word": self._word,
            "number": self._number,
            "frames": self._a_frame,
            "registers": self._derive,
            "setup": lambda: self._held["setup"].append(Setup(**self._values(Setup))),
            "section": self._section,
        }
        while tokens.current.kind != "end":
            if tokens.current.text in readers:
                readers[tokens.take().text]()
            else:
                self._held["instruction"].append(parse_instruction(tokens))

    def program(self) -> Program:
        """All of it."""
        t = self._tables
        for number in self._weights:
            if number >= len(t["storage"]):
                raise self._tokens.fail(f"weights of storage {number}: there are {len(t['storage'])} storages")
        for tensor in t["tensor"]:
            if tensor.storage >= len(t["storage"]):
                raise self._tokens.fail(f"a tensor of storage {tensor.storage}: there are {len(t['storage'])} storages")
        program = Program(
            tuple(t["tensor"]),
            tuple(t["storage"]),
            tuple(t["geometry"]),
            tuple(t["hyper"]),
            tuple(self._held["instruction"]),
            tuple(self._entries),
            self._weights,
            self._frames,
            self._target,
            self._meta,
            tuple(self._held["word"]),
            tuple(self._held["number"]),
            functions=tuple(t["function"]),
            setups=tuple(self._held["setup"]),
        )
        return with_setups(program) if self._derived else program

    def _machine(self) -> None:
        self._target = Target(**self._values(Target))

    def _a_meta(self) -> None:
        key = self._string("a key")
        self._meta[key] = self._string("its value")

    def _storage(self) -> None:
        def read_storage() -> Storage:
            arena = self._member(Arena, "an arena")
            return Storage(arena, **self._values(Storage, "arena"))

        self._numbered("storage", read_storage)

    def _tensor(self) -> None:
        at = self._tokens.current.offset
        number = self._reference()
        if number != len(self._tables["tensor"]):
            raise self._tokens.fail(f"expected %{len(self._tables['tensor'])}, the next tensor", at)
        name, element = self._string("a name"), self._member(Element, "an element")
        at = self._tokens.current.offset
        shape = tuple(self._tokens.listed("[", "]", lambda: self._tokens.extent("a dimension")))
        if len(shape) > RANK or not all(shape):
            raise self._tokens.fail(f"a tensor has at most {RANK} dimensions, none of them 0", at)
        role = self._member(Role, "a role")
        rest = self._values(Tensor, "name", "element", "shape", "role")
        self._tables["tensor"].append(Tensor(name, shape=shape, element=element, role=role, **rest))

    def _function(self) -> None:
        def read_function() -> Function:
            reads = tuple(self._tokens.listed("(", ")", self._reference))
            self._tokens.expect("->")
            writes = tuple(self._tokens.listed("(", ")", self._reference))
            return Function(self._string("the text of a graph"), reads, writes)

        self._numbered("function", read_function)

    def _entry(self) -> None:
        self._entries.append(Entry(self._string("a name"), **self._values(Entry, "name", *KINDS)))

    def _bound(self, kind: str) -> Callable[[], None]:
        def read_bound() -> None:
            if not self._entries:
                raise self._tokens.unexpected("an entry before what belongs to it")
            pair = self._string("a name"), self._reference()
            last = self._entries[-1]
            self._entries[-1] = replace(last, **{kind: (*getattr(last, kind), pair)})

        return read_bound

    def _a_weight(self) -> None:
        number = self._tokens.extent("the number of a storage")
        self._weights[number] = self._data()

    def _word(self) -> None:
        at = self._tokens.current.offset
        data = self._data()
        if len(data) != WORD_1:
            raise self._tokens.fail(f"a word of version 1 has {WORD_1} bytes, not {len(data)}", at)
        self._held["word"].append(data)

    def _number(self) -> None:
        number, tensor = self._tokens.extent("a number of version 1"), self._reference()
        self._held["number"].append(Numbered(tensor, number, **self._values(Numbered, "tensor", "number")))

    def _a_frame(self) -> None:
        self._frames = self._data()

    def _derive(self) -> None:
        self._derived = True

    def _section(self) -> None:
        at = self._tokens.current.offset
        name = self._string("the name of a section")
        known = {s.fourcc for s in SECTIONS if s.must}
        if len(name) != 4 or not name.isascii() or name in known:
            raise self._tokens.fail(f"{name} is no section that readers may skip", at)
        self.sections[name] = self._data()

    def _numbered(self, table: str, read_record: Callable[[], Any]) -> None:
        """A record whose number is the next one."""
        at = self._tokens.current.offset
        if self._tokens.extent("a number") != len(self._tables[table]):
            raise self._tokens.fail(f"expected {len(self._tables[table])}, the next {table}", at)
        self._tables[table].append(read_record())

    def _values(self, record: type, *but: str) -> dict[str, Any]:
        """Fields by name; those without a default have to be there."""
        tokens = self._tokens
        known: Mapping[str, Field[Any]] = {f.name: f for f in fields(record) if f.name not in but}
        found: dict[str, Any] = {}
        while tokens.current.kind == "word" and tokens.current.text in known:
            at = tokens.current.offset
            name = tokens.take().text
            if name in found:
                raise tokens.fail(f"field {name} is given twice", at)
            found[name] = self._read_value(known[name])
        missing = [n for n, f in known.items() if f.default is MISSING and n not in found]
        if missing:
            near = did_you_mean(tokens.current.text, known) if tokens.current.kind == "word" else ""
            raise tokens.unexpected(f"the field {missing[0]}", near)
        return found

    def _read_value(self, field: Field[Any]) -> Any:
        tokens, at = self._tokens, self._tokens.current.offset
        default: object = field.default
        match default:
            case tuple():
                count = len(cast("tuple[int, ...]", default))
                numbers = tuple(tokens.listed("[", "]", tokens.integer))
                if len(numbers) != count:
                    raise tokens.fail(f"{field.name} has {count} numbers, not {len(numbers)}", at)
                return numbers
            case bool():
                return bool(tokens.extent("0 or 1"))
            case float():
                sign = -1.0 if tokens.accept("-") else 1.0
                return sign * float(tokens.kind("number", f"a number for {field.name}").text)
            case _:
                return tokens.extent(f"a number for {field.name}")

    def _member(self, kind: Any, what: str) -> Any:
        words = {member.name.lower(): member for member in kind}
        if self._tokens.current.text not in words:
            raise self._tokens.unexpected(what, did_you_mean(self._tokens.current.text, words))
        return words[self._tokens.take().text]

    def _reference(self) -> int:
        token = self._tokens.kind("value", "a tensor, as in %4")
        if not token.text[1:].isdecimal() or len(token.text) > 6:
            raise self._tokens.fail(f"expected the number of a tensor, found '{token.text[:40]}'", token.offset)
        return int(token.text[1:])

    def _string(self, what: str) -> str:
        token = self._tokens.kind("string", what)
        try:
            return str(json.loads(token.text))
        except ValueError:
            raise self._tokens.fail(f"expected {what}, found a string that is none of JSON's", token.offset) from None

    def _data(self) -> bytes:
        parts: list[bytes] = []
        while not parts or self._tokens.current.kind == "string":
            token = self._tokens.kind("string", 'bytes, as in "3c00"')
            try:
                parts.append(bytes.fromhex(token.text[1:-1]))
            except ValueError:
                raise self._tokens.fail("expected bytes, two hexadecimal digits each", token.offset) from None
        return b"".join(parts)
