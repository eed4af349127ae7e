"""Instructions one after the other: what they read has been written and lives, in every entry from its first on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from dlc.base.diagnostics import Diagnostic, quote
from dlc_backend_s2train.checks.instructions import Bytes, understood
from dlc_backend_s2train.checks.problems import problem, tensor_title, title
from dlc_backend_s2train.codes import Arena, Element
from dlc_backend_s2train.program import Entry, Instruction, Program


def entry_problems(program: Program) -> Iterator[Diagnostic]:
    """What is wrong with entries, and with the order of their instructions."""
    names: set[str] = set()
    for entry in program.entries:
        if entry.name in names:
            yield problem("bad-entry", f"there are two entries {quote(entry.name)}")
        names.add(entry.name)
        if not 0 <= entry.begin < entry.end <= len(program.instructions):
            count = len(program.instructions)
            yield problem("bad-entry", f"{_title(entry)} has the instructions {entry.begin} to {entry.end} of {count}")
            continue
        bad = list(_bindings(program, entry))
        yield from bad
        if not bad:
            yield from _Run(program, entry).problems()


def _bindings(program: Program, entry: Entry) -> Iterator[Diagnostic]:
    """Names and tensors that the host cannot work with."""
    for kind, pairs in (("input", (*entry.inputs, *entry.labels)), ("output", entry.outputs)):
        names = [name for name, _ in pairs]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield problem("bad-entry", f"{_title(entry)} has two {kind}s {quote(name)}")
        for name, number in pairs:
            if not 0 <= number < len(program.tensors):
                message = f"{kind} {quote(name)} is tensor {number} of {len(program.tensors)}"
                yield problem("bad-entry", f"{_title(entry)}: {message}")
                continue
            tensor = program.tensors[number]
            s = program.storages[tensor.storage]
            at = entry.begin if kind == "input" else entry.end - 1
            if not s.begin <= at < s.end:
                message = f"{kind} {quote(name)}, {tensor_title(program, number)}, has to live at instruction {at}"
                message = f"{message}; its storage {tensor.storage} lives from {s.begin} to {s.end}"
                yield problem("dead-operand", f"{_title(entry)}: {message}")
    for name, number in entry.labels:
        if number < len(program.tensors) and program.tensors[number].element is not Element.INT32:
            element = program.tensors[number].element.name.lower()
            message = f"label {quote(name)}, {tensor_title(program, number)}, holds {element}; it should be int32"
            yield problem("bad-entry", f"{_title(entry)}: {message}")


@dataclass
class _Run:
    """What is known while an entry is walked through."""

    program: Program
    entry: Entry
    written: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    """Storage → runs of bytes that hold something, apart from each other and ascending."""
    updated: dict[int, list[tuple[Bytes, int]]] = field(default_factory=dict[int, list[tuple[Bytes, int]]])
    """Storage → weights that are new already, and the instruction that made them so."""
    tokens: dict[int, int] = field(default_factory=dict[int, int])
    """Tokens that were given and nobody waited for yet, and the instruction that gave them."""

    def problems(self) -> Iterator[Diagnostic]:
        program, entry = self.program, self.entry
        for _, number in (*entry.inputs, *entry.labels):
            tensor = program.tensors[number]
            self._write(Bytes(tensor.storage, tensor.offset, tensor.offset + tensor.nbytes))
        for number in range(entry.begin, entry.end):
            instruction = program.instructions[number]
            yield from self._tokens(number, instruction)
            yield from self._operands(number, instruction)
        for name, number in entry.outputs:
            tensor = program.tensors[number]
            missing = self._missing(Bytes(tensor.storage, tensor.offset, tensor.offset + tensor.nbytes))
            if missing:
                message = f"nothing writes output {quote(name)}, {tensor_title(program, number)}, {_bytes(*missing)}"
                yield problem("read-before-write", f"{_title(entry)}: {message}")
        for token, giver in self.tokens.items():
            message = f"token {token} of instruction {giver} is given, and nothing waits for it"
            yield problem("token", f"{_title(entry)}: {message}")

    def _operands(self, number: int, instruction: Instruction) -> Iterator[Diagnostic]:
        program, reading = self.program, understood(self.program, instruction)
        ways, spans = reading.ways, reading.spans

        def place(slot: str) -> str:
            return f"{title(number, instruction)}: {slot}, {tensor_title(program, reading.tensors[slot])}"

        for slot, span in spans.items():
            s = program.storages[span.storage]
            if not s.begin <= number < s.end:
                message = f"storage {span.storage}, which lives from instruction {s.begin} to {s.end}"
                yield problem("dead-operand", f"{place(slot)}, lies in {message}")
            if ways[slot].reads:
                yield from self._read(place(slot), span)
        for slot, span in spans.items():
            if ways[slot].writes:
                self._write(span)
        if instruction.updates and spans:
            weight = spans["dst0"]
            self.updated.setdefault(weight.storage, []).append((weight, number))

    def _read(self, place: str, span: Bytes) -> Iterator[Diagnostic]:
        missing = self._missing(span)
        if missing:
            message = f"{place}, is read, but nothing has written {_bytes(*missing)}"
            yield problem("read-before-write", f"{message} in {_title(self.entry)}")
        for weight, update in self.updated.get(span.storage, ()):
            if weight.meets(span):
                yield problem("stale-weight", f"{place}, is read after instruction {update} updated it")
                return

    def _missing(self, span: Bytes) -> tuple[int, int] | None:
        """The first bytes of a span that hold nothing."""
        if self.program.storages[span.storage].arena is Arena.WEIGHTS:
            return None
        begin = span.begin
        runs = self.written.get(span.storage, [])
        k = bisect_right(runs, begin, key=lambda run: run[0]) - 1
        if k >= 0 and runs[k][1] > begin:
            begin = runs[k][1]
        if begin >= span.end:
            return None
        return begin, min(runs[k + 1][0], span.end) if k + 1 < len(runs) else span.end

    def _write(self, span: Bytes) -> None:
        if span.begin == span.end:
            return
        runs = self.written.setdefault(span.storage, [])
        first = bisect_left(runs, span.begin, key=lambda run: run[1])
        last = bisect_right(runs, span.end, key=lambda run: run[0])
        merged = runs[first:last]
        begin = min([span.begin, *(run[0] for run in merged)])
        runs[first:last] = [(begin, max([span.end, *(run[1] for run in merged)]))]

    def _tokens(self, number: int, instruction: Instruction) -> Iterator[Diagnostic]:
        head = title(number, instruction)
        if instruction.wait and self.tokens.pop(instruction.wait, None) is None:
            yield problem("token", f"{head} waits for token {instruction.wait}, which nothing has given")
        if instruction.signal:
            if instruction.signal in self.tokens:
                giver = self.tokens[instruction.signal]
                message = f"gives token {instruction.signal}, which instruction {giver} gave and nothing waited for"
                yield problem("token", f"{head} {message}")
            self.tokens[instruction.signal] = number


def _bytes(begin: int, end: int) -> str:
    return f"bytes {begin} to {end}"


def _title(entry: Entry) -> str:
    return f"entry {quote(entry.name)}"
