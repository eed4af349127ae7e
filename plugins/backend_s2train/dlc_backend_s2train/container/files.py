"""What the command line asks of a `.s2t` file: what it holds, as text and as data, and whether it is right.

The text has tensors, instructions with the names of their operands, and words of version 1, each with the instruction
that it is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from dlc.api.artifact import Description
from dlc.api.source import Source
from dlc.base.diagnostics import Diagnostic, DlcError, Location, escape, quote
from dlc_backend_s2train.build_lines import fusion_line
from dlc_backend_s2train.checks import Verified, verified
from dlc_backend_s2train.checks.problems import instruction_of
from dlc_backend_s2train.codes import Arena
from dlc_backend_s2train.container.layout import WORD_2
from dlc_backend_s2train.container.reader import read
from dlc_backend_s2train.container.sections import open_envelope
from dlc_backend_s2train.cost.operand_traffic import fusion_facts
from dlc_backend_s2train.defaults import LIMIT
from dlc_backend_s2train.frames.stream import FRAMES_RIGHT, frame_rows, frames_data
from dlc_backend_s2train.isa.access import operands_of
from dlc_backend_s2train.isa.text import print_v1, print_v2
from dlc_backend_s2train.program import Entry, Function, Instruction, Program, Storage, Tensor
from dlc_backend_s2train.v1 import encoding as v1
from dlc_backend_s2train.v1.correspondence import worded


def shown_words(program: Program) -> str:
    """`HEX  TEXT  # INSTRUCTION`, a word a line."""
    lines = (
        f"{data.hex()}  {print_v1(v1.decode(data))}  # {'no instruction' if at is None else at}"
        for data, at in _beside(program)
    )
    return "\n".join(lines)


def number_rows(program: Program) -> list[tuple[str, ...]]:
    """A row for each time that a number stands for a tensor, below a head; none where numbers are the tensors' own."""
    if all(entry.number == entry.tensor for entry in program.numbering):
        return []
    rows = [(f"%{e.number}", f"%{e.tensor}", f"{e.begin} to {e.end}") for e in program.numbering]
    return [("number", "tensor", "instructions"), *rows]


def words_summary(program: Program) -> str:
    """`82 for 84 instructions, 60 numbers for 135 tensors`."""
    numbers = {entry.number for entry in program.numbering}
    tensors = {entry.tensor for entry in program.numbering}
    words = f"{len(program.legacy):,} for {len(program.instructions):,} instructions"
    return f"{words}, {len(numbers):,} of {v1.TENSORS} numbers for {len(tensors):,} tensors"


def words_data(program: Program) -> dict[str, Any]:
    """The same as a JSON object."""
    return {
        "words": [
            {"instruction": at, "word": data.hex(), "text": print_v1(v1.decode(data))} for data, at in _beside(program)
        ],
        "numbering": [
            {"number": e.number, "tensor": e.tensor, "begin": e.begin, "end": e.end} for e in program.numbering
        ],
    }


def _beside(program: Program) -> Sequence[tuple[bytes, int | None]]:
    """Words with their instructions; a file that is wrong may have more words than those."""
    pairs = zip_longest(program.legacy, worded(program))
    return [(data, at) for data, at in pairs if data is not None]


def show(program: Program, name: str) -> str:
    """Summary, table of tensors and disassembly; every name is escaped, so that it may go to a terminal."""
    parts = [summary(program, name), f"tensors\n{_aligned(_tensor_rows(program), right=(0, 6, 7))}"]
    parts += [f"entry {escape(entry.name)}\n{disassembly(program, entry)}" for entry in program.entries]
    parts += [f"function {number}\n{_function(function)}" for number, function in enumerate(program.functions)]
    if program.legacy:
        parts.append(f"words of version 1\n{shown_words(program)}")
    if rows := number_rows(program):
        parts.append(f"numbers of version 1\n{_aligned(rows, right=(0, 1))}")
    if frames := frame_rows(program):
        parts.append(f"frames\n{_aligned(frames, right=FRAMES_RIGHT)}")
    return "\n\n".join(parts)


def summary(program: Program, name: str) -> str:
    """The machine, entries with what they take and give, memory, provenance: a line for each."""
    return _aligned(_summary(program, name))


def disassembly(program: Program, entry: Entry) -> str:
    """An entry's instructions for the assembler, one a line, with `# number: operands read → written` as comments."""
    lines = (
        f"{print_v2(program.instructions[n])}  # {n}{_comment(program, program.instructions[n])}"
        for n in range(entry.begin, entry.end)
    )
    return "\n".join(lines)


def show_data(program: Program, name: str) -> dict[str, Any]:
    """The same facts as a JSON object; names are unescaped."""
    return {
        "kind": "s2train",
        "name": name,
        "machine": {k: getattr(program.target, k) for k in ("cores", "columns", "rows", "lanes", "weight_bytes")},
        "entries": [
            {
                "name": entry.name,
                "begin": entry.begin,
                "end": entry.end,
                **fusion_facts(program, entry),
                **{kind: _ports(program, pairs) for kind, pairs in _bindings(entry)},
            }
            for entry in program.entries
        ],
        "memory": {
            _spelled(arena): {"storages": count, "bytes": whole, "peak_bytes": peak}
            for arena, count, whole, peak in memory(program)
        },
        "weights_bytes": sum(map(len, program.weights.values())),
        "frames_bytes": len(program.frames),
        "frames": frames_data(program),
        "functions": [{"text": f.text, "reads": list(f.reads), "writes": list(f.writes)} for f in program.functions],
        "instructions": [print_v2(i) for i in program.instructions],
        **({"version_1": words_data(program)} if program.legacy else {}),
        "tensors": [
            {
                "name": t.name,
                "element": t.element.name.lower(),
                "shape": list(t.shape),
                "role": _spelled(t.role),
                "address": program.storages[t.storage].address + t.offset,
                "bytes": t.nbytes,
                "begin": program.storages[t.storage].begin,
                "end": program.storages[t.storage].end,
            }
            for t in program.tensors
        ],
        "meta": dict(program.meta),
    }


def memory(program: Program) -> list[tuple[Arena, int, int, int]]:
    """Per arena that has storages: their number, the bytes of all, the most bytes that live at one instruction."""
    found: list[tuple[Arena, int, int, int]] = []
    for arena in Arena:
        held = [s for s in program.storages if s.arena is arena]
        if held:
            found.append((arena, len(held), sum(s.size for s in held), _peak(held)))
    return found


def _peak(storages: Sequence[Storage]) -> int:
    """The most bytes of storages that live at the same instruction."""
    changes: dict[int, int] = {}
    for s in storages:
        if s.begin < s.end:
            changes[s.begin] = changes.get(s.begin, 0) + s.size
            changes[s.end] = changes.get(s.end, 0) - s.size
    live = peak = 0
    for at in sorted(changes):
        live += changes[at]
        peak = max(peak, live)
    return peak


def _summary(program: Program, name: str) -> list[tuple[str, str]]:
    t = program.target
    array = f"{t.cores} cores of {t.columns} columns, {t.rows} rows x {t.lanes} lanes, {t.weight_bytes:,} B of weights"
    rows = [("program", escape(name)), ("machine", array)]
    for entry in program.entries:
        rows.append(("entry", f"{escape(entry.name)}: {entry.end - entry.begin} instructions"))
        rows.append(("  moves", f"operands: {fusion_line(fusion_facts(program, entry))}"))
        for kind, pairs in _bindings(entry):
            rows += [(f"  {kind.removesuffix('s')}", _port(program, port, number)) for port, number in pairs]
    for arena, count, whole, peak in memory(program):
        rows.append(("memory", f"{_spelled(arena)}: {peak:,} B at once, {whole:,} B in {count} storages"))
    planned = [s for s in program.storages if s.arena not in (Arena.HOST, Arena.WEIGHTS)]
    rows.append(("memory", f"all that is planned: {_peak(planned):,} B at once"))
    rows.append(("weights", f"{sum(map(len, program.weights.values())):,} B"))
    if program.functions:
        rows.append(("host", f"{len(program.functions)} functions, {sum(len(f.text) for f in program.functions):,} B"))
    if program.frames:
        rows.append(("frames", f"{len(program.frames):,} B"))
    if program.legacy:
        rows.append(("words", f"of version 1: {words_summary(program)}"))
    rows += [("meta", f"{escape(key)}: {escape(value)}") for key, value in sorted(program.meta.items())]
    return rows


def _tensor_rows(program: Program) -> list[tuple[str, ...]]:
    head = ("#", "name", "element", "shape", "role", "arena", "address", "bytes", "instructions")
    rows: list[tuple[str, ...]] = [head]
    for number, t in enumerate(program.tensors):
        s = program.storages[t.storage]
        place = (_spelled(s.arena), f"{s.address + t.offset:,}", f"{t.nbytes:,}", f"{s.begin} to {s.end}")
        rows.append((f"%{number}", escape(t.name), t.element.name.lower(), _shape(t), _spelled(t.role), *place))
    return rows


def _comment(program: Program, instruction: Instruction) -> str:
    """`: "x", "w" → "y"`: operands that are read, then those that are written."""
    operands = operands_of(program, instruction).values()
    read = [_named(program, number) for way, number in operands if way.reads]
    written = [_named(program, number) for way, number in operands if way.writes]
    return f": {', '.join(read)} → {', '.join(written)}" if operands else ""


def _function(function: Function) -> str:
    """Which tensors a host function is on, and its text; that comes from the file, so it is escaped."""
    sides = (", ".join(f"%{number}" for number in side) for side in (function.reads, function.writes))
    return "\n".join([f"({') → ('.join(sides)})", *map(escape, function.text.splitlines())])


def _named(program: Program, number: int) -> str:
    return quote(program.tensors[number].name)


def _bindings(entry: Entry) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    yield from (("inputs", entry.inputs), ("labels", entry.labels), ("outputs", entry.outputs))


def _ports(program: Program, pairs: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"name": name, "tensor": n, "shape": list(program.tensors[n].shape)} for name, n in pairs]


def _port(program: Program, name: str, number: int) -> str:
    tensor = program.tensors[number]
    return f"{escape(name)}: {tensor.element.name.lower()}{_shape(tensor)}"


def _shape(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


def _spelled(member: Any) -> str:
    return str(member.name).lower().replace("_", "-")


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows in columns, two spaces apart."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = (
        "  ".join(c.rjust(w) if k in right else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def describe(source: Source) -> Description:
    """A file as text and as a JSON object.

    Raises:
        DlcError: "bad-s2t", with the byte and the reason; the file cannot be read.
    """
    program = read(source.view(), source.name)
    name = source.name
    data = {**show_data(program, name), "bytes": len(source.view())}
    return Description(summary(program, name), show(program, name), data)


def check(source: Source, limit: int = LIMIT) -> Verified:
    """The program of a file that is right, and takes at most `limit` bytes of memory.

    Raises:
        DlcError: as `describe`; or everything that the verifier finds, with the file's name.
    """
    content = source.view()
    program = read(content, source.name)
    try:
        return verified(program, limit)
    except DlcError as refused:
        sections = open_envelope(content, source.name).sections
        begin = {fourcc: span.offset for fourcc, span in sections.items()}
        placed = (replace(p, location=_place(source, begin, p)) for p in refused.diagnostics)
        raise DlcError(*placed, exit_code=refused.exit_code) from None


def _place(source: Source, begin: Mapping[str, int], problem: Diagnostic) -> Location:
    """The frame or the instruction's word, where a message is about one; else the file."""
    if problem.code == "bad-frame" and problem.location is not None:
        return Location(source.name, byte=begin["FRAM"] + problem.location.byte)
    number = instruction_of(problem.message)
    return Location(source.name, byte=-1 if number is None else begin["INS2"] + number * WORD_2)
