"""A simulator of S2Train written from the pages `docs/s2train*.md` alone: it shares no code with the plugin.

It reads files, checks their sums and executes them, with sums in the order that the page says.
"""

import binascii
import struct
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tests.backend_s2train.page_arithmetic import DROPOUT, results
from tests.backend_s2train.page_operation import Array, Numbers, Operation, Shape

Record = tuple[Any, ...]
RECORDS = {
    "TENS": "<IIQBBB5x8I",
    "STOR": "<QQIIB7x",
    "GEOM": "<9I2I4i2II3I2I2I",
    "HYPR": "<7dQB3xI",
    "ENTR": "<III",
    "BIND": "<IIII",
    "WGHT": "<I4xQQ",
    "HOST": "<I",
    "HARG": "<III",
    "META": "<II",
    "INS2": "<32s",
}
NAMES = {"TENS": (0,), "ENTR": (0,), "BIND": (0,), "META": (0, 1), "HOST": (0,)}
SLOTS = ("src0", "src1", "dst0", "dst1", "mask", "ptr", "bn0", "bn1", "res", "aux")
SAMPLED = {0: {"src0", "dst0", "dst1", "mask", "ptr", "res", "aux"}, 2: {"src0", "src1"}}
SAMPLED[1], SAMPLED[3] = SAMPLED[0], SAMPLED[2]
NONE = 0xFFFF
HOST = 0x83
SILENT = (0x00, 0x80, 0x81, 0x82, 0xFF)
FP16, FP32, BIT, PTR2, PTR4, INT32 = range(6)
WIDTH = {BIT: 1, PTR2: 2, PTR4: 4}
NUMPY = {FP16: "<f2", FP32: "<f4", INT32: "<i4"}


def reflected(data: bytes, polynomial: int, ones: int) -> int:
    """A reflected CRC that begins and ends with all ones."""
    value = ones
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
    return value ^ ones


def crc64(data: bytes) -> int:
    """CRC-64/XZ."""
    return reflected(data, 0xC96C5795D7870F42, (1 << 64) - 1)


def crc32c(data: bytes) -> int:
    """CRC-32C."""
    return reflected(data, 0x82F63B78, (1 << 32) - 1)


class File:
    """Records of a file by section, each with its names in the place of their sizes; first values by storage."""

    def __init__(self, data: bytes) -> None:
        head = struct.unpack_from("<4sHHIII4BIIQQQII", data)
        count, offset, size, crc = head[11:15]
        table = data[offset : offset + 40 * count]
        assert head[:2] == (b"S2TB", 1) and head[-1] == crc32c(data[:60])
        assert size == len(data) and crc64(table) == crc
        self.records: dict[str, list[Record]] = {}
        self.weights: dict[int, bytes] = {}
        for name, _, _, begin, size, _, count, crc in struct.iter_unpack("<4sHHQQIIQ", table):
            section = data[begin : begin + size]
            assert crc64(section) == crc
            if name.decode() in RECORDS:
                self.records[name.decode()] = records(name.decode(), section, count)
            if name == b"WGHT":
                self.weights = {s: section[at : at + n] for s, at, n in records("WGHT", section, count)}


def records(name: str, section: bytes, count: int) -> list[Record]:
    """The records of a section."""
    form = struct.Struct(RECORDS[name])
    at, found = form.size * count, list[Record]()
    for number in range(count):
        values = list(form.unpack_from(section, form.size * number))
        for field in NAMES.get(name, ()):
            at += values[field]
            values[field] = section[at - values[field] : at].decode()
        found.append(tuple(values))
    return found


class Simulator:
    """Memory, and how often each entry ran; `host` computes texts of functions, which are dlc's own form."""

    def __init__(self, data: bytes, host: Callable[[str, list[Array]], list[Array]] | None = None) -> None:
        self.file = File(data)
        self.host = host
        self.storages = self.file.records["STOR"]
        self.memory = np.zeros(max(address + size for address, size, *_ in self.storages), np.uint8)
        for number, content in self.file.weights.items():
            address = self.storages[number][0]
            self.memory[address : address + len(content)] = np.frombuffer(content, np.uint8)
        self.runs: dict[str, int] = {}
        self.overflow = False

    def rescale(self, factor: float) -> None:
        """What a host does that changes the loss scale."""
        for number, (rate, momentum, decay, scale, threshold, *rest) in enumerate(self.file.records["HYPR"]):
            self.file.records["HYPR"][number] = (rate, momentum, decay, scale * factor, threshold * factor, *rest)

    def run(self, entry: str, **inputs: Array) -> dict[str, Array]:
        """One run of an entry."""
        number = [name for name, *_ in self.file.records["ENTR"]].index(entry)
        bound = [b for b in self.file.records["BIND"] if b[1] == number]
        for name, _, kind, tensor in bound:
            if kind < 2:
                self.write(tensor, np.asarray(inputs[name]))
        _, begin, end = self.file.records["ENTR"][number]
        self.overflow = False
        for (word,) in self.file.records["INS2"][begin:end]:
            self.execute(word, self.runs.get(entry, 0))
        self.runs[entry] = self.runs.get(entry, 0) + 1
        return {name: self.read(tensor) for name, _, kind, tensor in bound if kind == 2}

    def place(self, number: int) -> tuple[int, tuple[int, ...], int]:
        """Address, shape and element of a tensor."""
        record: list[int] = list(self.file.records["TENS"][number][1:])
        storage, offset, element, _, rank, *shape = record
        return self.storages[storage][0] + offset, tuple(shape[:rank]), element

    def read(self, number: int) -> Array:
        """What a tensor holds."""
        at, shape, element = self.place(number)
        if element in NUMPY:
            values = self.memory[at : at + prod(shape) * int(NUMPY[element][2])].view(NUMPY[element])
            return values.astype(np.int32 if element == INT32 else np.float32).reshape(shape)
        data = self.memory[at : at + -(-prod(shape) * WIDTH[element] // 8)]
        fields = data[:, None] >> np.arange(0, 8, WIDTH[element], dtype=np.uint8) & np.uint8((1 << WIDTH[element]) - 1)
        return fields.reshape(-1)[: prod(shape)].reshape(shape)

    def write(self, number: int, values: Array) -> None:
        """Round and store."""
        at, shape, element = self.place(number)
        flat = np.ascontiguousarray(values).reshape(-1)
        assert flat.size == prod(shape), (flat.shape, shape)
        if element in NUMPY:
            with np.errstate(over="ignore"):
                data = flat.astype(NUMPY[element])
            if element != INT32:
                bits = data.view(f"<u{NUMPY[element][2]}")
                bits[np.isnan(data)] = 0x7E00 if element == FP16 else 0x7FC00000
        else:
            rows = np.zeros((-(-flat.size // (8 // WIDTH[element])), 8 // WIDTH[element]), np.uint8)
            rows.reshape(-1)[: flat.size] = flat
            data = np.bitwise_or.reduce(rows << np.arange(0, 8, WIDTH[element], dtype=np.uint8), axis=1)
        self.memory[at : at + data.nbytes] = data.view(np.uint8)

    def call(self, number: int) -> None:
        """A function of the host."""
        (text,) = self.file.records["HOST"][number]
        reads, writes = ([t for f, k, t in self.file.records["HARG"] if (f, k) == (number, way)] for way in (0, 1))
        assert self.host is not None, "a program with host functions"
        for tensor, values in zip(writes, self.host(text, [self.read(t) for t in reads]), strict=True):
            self.write(tensor, values)

    def execute(self, word: bytes, run: int) -> None:
        """One instruction: all operands are read before any is written."""
        assert binascii.crc_hqx(word[:30], 0xFFFF) == int.from_bytes(word[30:], "little")
        opcode, second, flags, geometry, hyper, *numbers = struct.unpack_from("<BB13H", word)
        if opcode in SILENT:
            return
        if opcode == HOST:
            self.call(geometry)
            return
        used = {slot: number for slot, number in zip(SLOTS, numbers, strict=True) if number != NONE}
        stage = second & 3
        shape = None if geometry == NONE else Shape.of(self.file.records["GEOM"][geometry])
        figures = Numbers() if hyper == NONE else Numbers(*self.file.records["HYPR"][hyper])
        part = {slot: shape.samples for slot in used if shape and slot in SAMPLED[stage]} if _sampled(shape) else {}
        given = {slot: self.read(n)[slice(*part[slot])] if slot in part else self.read(n) for slot, n in used.items()}
        first = shape.samples[0] * prod(self.place(used["aux"])[1][1:]) if shape and part and flags & DROPOUT else 0
        operation = Operation(opcode, stage, second >> 2 & 15, flags, shape, figures, run, first, given)
        with np.errstate(all="ignore"):
            made = results(operation)
        self.overflow |= stage == 3 and opcode in (1, 2, 6) and not made
        for slot, values in made.items():
            if slot in part:
                whole = self.read(used[slot])
                whole[slice(*part[slot])] = values.reshape(given[slot].shape)
                self.write(used[slot], whole)
            elif slot in used:
                self.write(used[slot], values)


def _sampled(shape: Shape | None) -> bool:
    return shape is not None and shape.samples != (0, 0)
