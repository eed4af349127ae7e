"""`read`: bytes of a `.s2t` file → Program; every number is held against what it counts before it is used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dlc.base.diagnostics import DlcError, Location, quote
from dlc_backend_s2train.codes import Arena, Element, Role
from dlc_backend_s2train.container.layout import (
    BIND,
    ENTR,
    GEOM,
    HARG,
    HOST,
    HYPR,
    KINDS,
    META,
    NUM1,
    REGS,
    SECTION_OF,
    SIDES,
    STOR,
    TENS,
    WGHT,
    WORD_1,
    WORD_2,
    aligned,
)
from dlc_backend_s2train.container.sections import Envelope, Row, Span, exists, known, open_envelope, rows_of, words
from dlc_backend_s2train.isa.words import decode
from dlc_backend_s2train.program import (
    Entry,
    Function,
    Geometry,
    Hyper,
    Instruction,
    Numbered,
    Program,
    Setup,
    Storage,
    Tensor,
)
from dlc_backend_s2train.v1 import encoding as v1

_ELEMENTS = {e.code: e for e in Element}
_ROLES = {r.value: r for r in Role}
_ARENAS = {a.value: a for a in Arena}
_ADDRESSES = 1 << 48
"""Behind the last byte that a storage may take."""


def read(data: memoryview, name: str) -> Program:
    """The program that a file holds. `name` is the file's, for messages; the program keeps no part of `data`.

    Its numbers of tensors, storages, geometries and hyper-parameters exist, and its tensors lie inside their storages;
    everything else that makes sense of a program is for `checks.verify`.

    Raises:
        DlcError: "bad-s2t", with the byte and the reason.
    """
    envelope = open_envelope(data, name)
    span = envelope.sections
    storages = _storages(span["STOR"], span["INS2"].count)
    tensors = _tensors(span["TENS"], storages)
    geometries = tuple(Geometry(**values) for _, _, values, _ in rows_of(span["GEOM"], GEOM))
    hypers = tuple(_hyper(span["HYPR"], row) for row in rows_of(span["HYPR"], HYPR))
    functions = _functions(span.get("HOST"), span.get("HARG"), tensors)
    instructions = _instructions(span["INS2"], len(tensors), len(geometries), len(hypers), len(functions))
    return Program(
        tensors,
        storages,
        geometries,
        hypers,
        instructions,
        _entries(span["ENTR"], span["BIND"], len(instructions), len(tensors)),
        _weights(span["WGHT"], storages),
        bytes(span["FRAM"].data) if "FRAM" in span else b"",
        envelope.target,
        _meta(span["META"]),
        _legacy(span["INS1"]) if "INS1" in span else (),
        _numbering(span["NUM1"], len(tensors), len(instructions)) if "NUM1" in span else (),
        functions=functions,
        setups=tuple(Setup(**v) for _, _, v, _ in rows_of(span["REGS"], REGS)) if "REGS" in span else (),
    )


def optional_sections(data: memoryview, name: str) -> Mapping[str, bytes]:
    """The sections of a file that readers may skip, such as PERF, by name. Raises DlcError as `read` does."""
    envelope: Envelope = open_envelope(data, name)
    return {
        fourcc: bytes(span.data)
        for fourcc, span in envelope.sections.items()
        if fourcc not in SECTION_OF or not SECTION_OF[fourcc].must
    }


def _storages(span: Span, instructions: int) -> tuple[Storage, ...]:
    found: list[Storage] = []
    for number, at, v, _ in rows_of(span, STOR):
        arena = known(span, at + STOR.offsets["arena"], _ARENAS, v["arena"], f"storage {number}: arena")
        if v["address"] + v["size"] > _ADDRESSES:
            message = f"storage {number} has {v['size']} bytes at {v['address']}; addresses end at {_ADDRESSES}"
            raise span.refuse(at + STOR.offsets["address"], message)
        if not v["begin"] <= v["end"] <= instructions:
            message = f"storage {number} lives from instruction {v['begin']} to {v['end']} of {instructions}"
            raise span.refuse(at + STOR.offsets["begin"], message)
        found.append(Storage(arena, v["address"], v["size"], v["begin"], v["end"]))
    return tuple(found)


def _tensors(span: Span, storages: tuple[Storage, ...]) -> tuple[Tensor, ...]:
    found: list[Tensor] = []
    where = TENS.offsets
    for number, at, v, (name,) in rows_of(span, TENS):
        title = f"tensor {number} {quote(name)}"
        element = known(span, at + where["element"], _ELEMENTS, v["element"], f"{title}: element")
        role = known(span, at + where["role"], _ROLES, v["role"], f"{title}: role")
        exists(span, at + where["storage"], v["storage"], len(storages), f"{title}: storage")
        rank, shape = v["rank"], v["shape"]
        if rank > len(shape) or any(shape[rank:]) or not all(shape[:rank]):
            message = (
                f"{title} has rank {rank} and the dimensions {list(shape)}: none of the first is 0, the others are"
            )
            raise span.refuse(at + where["rank"], message)
        tensor = Tensor(name, v["storage"], shape[:rank], element, role, v["offset"])
        size = storages[tensor.storage].size
        if tensor.offset + tensor.nbytes > size:
            message = f"{title} has bytes {tensor.offset} to {tensor.offset + tensor.nbytes} of a storage of {size}"
            raise span.refuse(at + where["offset"], message)
        found.append(tensor)
    return tuple(found)


def _hyper(span: Span, row: Row) -> Hyper:
    number, at, v, _ = row
    for f in HYPR.fields:
        if f.type == "f64" and not math.isfinite(v[f.name]):
            raise span.refuse(at + HYPR.offsets[f.name], f"record {number}: {f.name} is {v[f.name]}")
    if v["nesterov"] > 1:
        raise span.refuse(at + HYPR.offsets["nesterov"], f"record {number}: nesterov is {v['nesterov']}, not 0 or 1")
    return Hyper(**{k: bool(x) if k == "nesterov" else x for k, x in v.items() if k != "reserved"})


def _functions(span: Span | None, operands: Span | None, tensors: Sequence[Tensor]) -> tuple[Function, ...]:
    """Host functions that make sense, on tensors that are what their texts say."""
    rows = [] if span is None else [*rows_of(span, HOST)]
    used: dict[tuple[int, int], list[int]] = {}
    last = (0, 0)
    for number, at, v, _ in () if operands is None else rows_of(operands, HARG):
        assert operands is not None
        title = f"operand {number}"
        exists(operands, at + HARG.offsets["function"], v["function"], len(rows), f"{title}: function")
        exists(operands, at + HARG.offsets["kind"], v["kind"], len(SIDES), f"{title}: kind")
        exists(operands, at + HARG.offsets["tensor"], v["tensor"], len(tensors), f"{title}: tensor")
        if (v["function"], v["kind"]) < last:
            raise operands.refuse(at, f"{title} belongs before the one that it follows: functions and kinds ascend")
        last = v["function"], v["kind"]
        used.setdefault(last, []).append(v["tensor"])
    found: list[Function] = []
    for number, at, _, (text,) in rows:
        from dlc_backend_s2train.host_functions import problem_of  # imports all ops; few programs have functions

        assert span is not None
        reads, writes = (tuple(used.get((number, kind), ())) for kind in range(len(SIDES)))
        found.append(Function(text, reads, writes))
        if problem := problem_of(found[-1], tensors):
            raise span.refuse(at, f"function {number}: {problem}")
    return tuple(found)


def _instructions(span: Span, tensors: int, geometries: int, hypers: int, functions: int) -> tuple[Instruction, ...]:
    found: list[Instruction] = []
    for number, word in enumerate(words(span, WORD_2)):
        at = number * WORD_2
        try:
            instruction = decode(word, Location(span.file, byte=span.offset + at))
        except DlcError as problem:
            first = problem.diagnostics[0]
            message = "; ".join([first.message, *first.notes])
            byte = first.location.byte - span.offset if first.location else at
            raise span.refuse(byte, f"instruction {number}: {message}", first.help) from None
        counts = [("geometry", instruction.geometry, geometries), ("hyper-parameters", instruction.hyper, hypers)]
        counts += [("function", instruction.function, functions)]
        counts += [(slot, tensor, tensors) for slot, tensor in instruction.operands.items()]
        for what, chosen, count in counts:
            if chosen is not None:
                exists(span, at, chosen, count, f"instruction {number}: {what}")
        found.append(instruction)
    return tuple(found)


def _legacy(span: Span) -> tuple[bytes, ...]:
    """Words of version 1, each of which is one."""
    found = words(span, WORD_1)
    for number, word in enumerate(found):
        try:
            v1.decode(word, Location(span.file, byte=span.offset + number * WORD_1))
        except DlcError as problem:
            first = problem.diagnostics[0]
            byte = first.location.byte - span.offset if first.location else number * WORD_1
            raise span.refuse(byte, f"word {number}: {first.message}", first.help) from None
    return found


def _numbering(span: Span, tensors: int, instructions: int) -> tuple[Numbered, ...]:
    found: list[Numbered] = []
    for number, at, v, _ in rows_of(span, NUM1):
        exists(span, at + NUM1.offsets["number"], v["number"], v1.TENSORS, f"record {number}: number")
        exists(span, at + NUM1.offsets["tensor"], v["tensor"], tensors, f"record {number}: tensor")
        if not v["begin"] <= v["end"] <= instructions:
            message = f"record {number} holds from instruction {v['begin']} to {v['end']} of {instructions}"
            raise span.refuse(at + NUM1.offsets["begin"], message)
        found.append(Numbered(**v))
    return tuple(found)


def _entries(span: Span, bindings: Span, instructions: int, tensors: int) -> tuple[Entry, ...]:
    rows = [*rows_of(span, ENTR)]
    bound: dict[tuple[int, int], list[tuple[str, int]]] = {}
    last = (0, 0)
    for number, at, v, (name,) in rows_of(bindings, BIND):
        title = f"binding {number} {quote(name)}"
        exists(bindings, at + BIND.offsets["entry"], v["entry"], len(rows), f"{title}: entry")
        exists(bindings, at + BIND.offsets["kind"], v["kind"], len(KINDS), f"{title}: kind")
        exists(bindings, at + BIND.offsets["tensor"], v["tensor"], tensors, f"{title}: tensor")
        if (v["entry"], v["kind"]) < last:
            raise bindings.refuse(at, f"{title} belongs before the one that it follows: entries and kinds ascend")
        last = v["entry"], v["kind"]
        bound.setdefault(last, []).append((name, v["tensor"]))
    found: dict[str, Entry] = {}
    for number, at, v, (name,) in rows:
        if not v["begin"] <= v["end"] <= instructions:
            message = f"entry {quote(name)} has the instructions {v['begin']} to {v['end']} of {instructions}"
            raise span.refuse(at + ENTR.offsets["begin"], message)
        if name in found:
            raise span.refuse(at, f"there are two entries {quote(name)}")
        inputs, labels, outputs = (tuple(bound.get((number, kind), ())) for kind in range(len(KINDS)))
        found[name] = Entry(name, v["begin"], v["end"], inputs, labels, outputs)
    return tuple(found.values())


def _weights(span: Span, storages: tuple[Storage, ...]) -> dict[int, bytes]:
    end = span.count * WGHT.size
    places: list[tuple[int, int, int]] = []
    for number, at, v, _ in rows_of(span, WGHT):
        storage: int = v["storage"]
        begin, size = aligned(end), v["size"]
        exists(span, at + WGHT.offsets["storage"], storage, len(storages), f"record {number}: storage")
        if places and storage <= places[-1][0]:
            raise span.refuse(at, f"record {number}: storage {storage} comes after storage {places[-1][0]}")
        if v["offset"] != begin or begin + size > len(span.data):
            message = f"record {number} has {size} bytes at {v['offset']}; they should begin at {begin} and end in the "
            raise span.refuse(at + WGHT.offsets["offset"], f"{message}section's {len(span.data)} bytes")
        if size != storages[storage].size:
            message = f"record {number} has {size} bytes for storage {storage}, which has {storages[storage].size}"
            raise span.refuse(at + WGHT.offsets["size"], message)
        if any(span.data[end:begin]):
            raise span.refuse(end, "a byte between weights is not 0")
        places.append((storage, begin, size))
        end = begin + size
    if len(span.data) != aligned(end) or any(span.data[end:]):
        raise span.refuse(end, f"weights end at byte {end} of the section's {len(span.data)}, and zeros follow to 64")
    return {storage: bytes(span.data[begin : begin + size]) for storage, begin, size in places}


def _meta(span: Span) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, at, _, (key, value) in rows_of(span, META):
        if key in found:
            raise span.refuse(at, f"record {number}: there are two values of {quote(key)}")
        found[key] = value
    return found
