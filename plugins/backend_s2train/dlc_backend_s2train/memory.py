"""The device's memory: one array of bytes for each arena, and, on demand, who wrote each of them.

Nothing but these bytes remembers a value, so that a wrong address or lifetime shows in the results; a `Shadow` refuses
it where it happens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dlc_backend_s2train.numerics.half import decode, encode
from dlc_backend_s2train.numerics.operands import Array, OperandError
from dlc_backend_s2train.program import Arena, Program, Storage, Tensor

if TYPE_CHECKING:
    from dlc.diagnostics import DlcError

LIMIT: Final = 8 << 30
"""Bytes of all arenas that a machine takes unless it is told otherwise."""
HOST: Final = -1
"""Who wrote, where it was no instruction."""
_NOBODY: Final = -2


@dataclass(frozen=True)
class Span:
    """Bytes of an arena that (a part of) a tensor takes."""

    tensor: Tensor
    shape: tuple[int, ...]
    """Of the part."""
    begin: int
    """First byte."""
    end: int
    """Byte behind the last."""
    arena: Arena


class Memory:
    """The bytes of all arenas; weights are filled in, everything else begins as zeros."""

    def __init__(self, program: Program, limit: int = LIMIT, checked: bool = False) -> None:
        """Take the memory of a program.

        Raises:
            DlcError: "too-large" before memory is taken; "bad-program" for a tensor or weights outside their storage.
        """
        self._program = program
        sizes = _sizes(program)
        # A shadow keeps two i32 for each byte.
        total = sum(sizes.values()) * (9 if checked else 1)
        if total > limit:
            told = ", ".join(f"{arena.name.lower()} {size:,}" for arena, size in sizes.items())
            raise _error("too-large", f"the program needs {total:,} bytes of memory, the limit is {limit:,} ({told})")
        self.bytes: dict[Arena, Array] = {arena: np.zeros(size, np.uint8) for arena, size in sizes.items()}
        self.shadow = Shadow(program, sizes) if checked else None
        for number, data in program.weights.items():
            if not 0 <= number < len(program.storages) or len(data) > program.storages[number].size:
                raise _error("bad-program", f"weights of {len(data):,} bytes do not fit into storage {number}")
            storage = program.storages[number]
            self.bytes[storage.arena][storage.address : storage.address + len(data)] = np.frombuffer(data, np.uint8)

    def span(self, number: int, rows: tuple[int, int] | None = None) -> Span:
        """Where tensor `number` lies, or of its first dimension only rows[0] to before rows[1].

        Raises:
            DlcError: "bad-program": it leaves its storage, or the part does not begin at a byte.
        """
        if not 0 <= number < len(self._program.tensors):
            raise _error("bad-program", f"there is no tensor {number}")
        tensor = self._program.tensors[number]
        storage = self._storage(tensor)
        if tensor.offset < 0 or min(tensor.shape, default=0) < 0 or tensor.offset + tensor.nbytes > storage.size:
            told = f"{tensor.nbytes:,} bytes at {tensor.offset:,}, its storage {storage.size:,}"
            raise _error("bad-program", f'tensor "{tensor.name}" has {told}')
        begin, shape, nbytes = storage.address + tensor.offset, tensor.shape, tensor.nbytes
        if rows is not None:
            each = tensor.count // max(tensor.shape[0], 1) * tensor.element.bits
            first, last = rows[0] * each, rows[1] * each
            if first % 8:
                raise _error("bad-program", f'row {rows[0]} of tensor "{tensor.name}" begins inside a byte')
            begin, nbytes = begin + first // 8, (last - first + 7) // 8
            shape = (rows[1] - rows[0], *tensor.shape[1:])
        return Span(tensor, shape, begin, begin + nbytes, storage.arena)

    def read(self, span: Span, by: int = HOST) -> Array:
        """The values there: fp32, bool, u8 or i32; `by` is the instruction that reads."""
        if self.shadow:
            self.shadow.read(span, by)
        return decode(self.bytes[span.arena][span.begin : span.end], span.shape, span.tensor.element)

    def write(self, span: Span, values: Array, by: int = HOST) -> None:
        """Round the values and store them.

        Raises:
            OperandError: there are more or fewer of them, or they are of another kind.
        """
        if values.size != math.prod(span.shape):
            raise OperandError(f'the result is {values.shape}, but "{span.tensor.name}" is {span.shape}')
        self.bytes[span.arena][span.begin : span.end] = encode(values, span.tensor.element)
        if self.shadow:
            self.shadow.wrote(span, by)

    def clear(self, span: Span, by: int = HOST) -> None:
        """Zeros."""
        self.bytes[span.arena][span.begin : span.end] = 0
        if self.shadow:
            self.shadow.wrote(span, by)

    def _storage(self, tensor: Tensor) -> Storage:
        if not 0 <= tensor.storage < len(self._program.storages):
            raise _error("bad-program", f'tensor "{tensor.name}" lies in storage {tensor.storage}, which is not there')
        return self._program.storages[tensor.storage]


class Shadow:
    """Who wrote each byte, for which storage: refuses reads of what was never written, or written for another one."""

    def __init__(self, program: Program, sizes: dict[Arena, int]) -> None:
        """Weights count as written by the host from the start."""
        self._program = program
        self._storage = {arena: np.full(size, _NOBODY, np.int32) for arena, size in sizes.items()}
        self._writer = {arena: np.full(size, _NOBODY, np.int32) for arena, size in sizes.items()}
        for number, storage in enumerate(program.storages):
            if storage.arena is Arena.WEIGHTS:
                self._storage[storage.arena][storage.address : storage.address + storage.size] = number

    def forget(self) -> None:
        """At the begin of an entry: only weights are still there."""
        for arena, owners in self._storage.items():
            if arena is not Arena.WEIGHTS:
                owners[:] = _NOBODY
                self._writer[arena][:] = _NOBODY

    def wrote(self, span: Span, by: int) -> None:
        """Instruction `by` wrote the span."""
        self._alive(span, by, "writes")
        self._storage[span.arena][span.begin : span.end] = span.tensor.storage
        self._writer[span.arena][span.begin : span.end] = by

    def read(self, span: Span, by: int) -> None:
        """Refuse a read of bytes that do not hold the span's tensor.

        Raises:
            DlcError: "stale-read" or "dead-storage".
        """
        self._alive(span, by, "reads")
        owners = self._storage[span.arena][span.begin : span.end]
        wrong = np.flatnonzero(owners != span.tensor.storage)
        if not wrong.size:
            return
        place = span.begin + int(wrong[0])
        owner, writer = int(owners[wrong[0]]), int(self._writer[span.arena][place])
        why = "nobody wrote it in this entry"
        if owner != _NOBODY:
            who = "the host" if writer < 0 else title(self._program, writer)
            why = f"{who} wrote it for storage {owner}{self._names(owner)}"
        told = f'{_reader(self._program, by)} reads "{span.tensor.name}" at byte {place:,} of {span.arena.name.lower()}'
        raise _error("stale-read", f"{told}, storage {span.tensor.storage}, but {why}", span.tensor)

    def _alive(self, span: Span, by: int, verb: str) -> None:
        storage = self._program.storages[span.tensor.storage]
        if by >= 0 and not storage.begin <= by < storage.end:
            told = f'{_reader(self._program, by)} {verb} "{span.tensor.name}"'
            life = f"lives from instruction {storage.begin} to before {storage.end}"
            raise _error("dead-storage", f"{told}, but its storage {span.tensor.storage} {life}", span.tensor)

    def _names(self, storage: int) -> str:
        names = [f'"{tensor.name}"' for tensor in self._program.tensors if tensor.storage == storage]
        return f" ({', '.join(names[:3])})" if names else ""


def title(program: Program, number: int) -> str:
    """`instruction 7 (conv weight-gradient)`."""
    instruction = program.instructions[number]
    name = f"{instruction.opcode.name.lower()} {instruction.stage.name.lower().replace('_', '-')}"
    return f"instruction {number} ({name})"


def _reader(program: Program, by: int) -> str:
    return "the host" if by < 0 else title(program, by)


def _sizes(program: Program) -> dict[Arena, int]:
    """Bytes of each arena: up to the end of its last storage."""
    sizes = dict.fromkeys(Arena, 0)
    for number, storage in enumerate(program.storages):
        if storage.address < 0 or storage.size < 0:
            raise _error("bad-program", f"storage {number} has {storage.size} bytes at {storage.address}")
        sizes[storage.arena] = max(sizes[storage.arena], storage.address + storage.size)
    return sizes


def _error(code: str, message: str, tensor: Tensor | None = None) -> DlcError:
    from dlc.diagnostics import Location, error  # only errors need it

    helps = {
        "too-large": "raise the limit",
        "stale-read": "the plan of memory is wrong: compile again, and report it if it stays",
        "dead-storage": "the plan of memory is wrong: compile again, and report it if it stays",
    }
    return error(code, message, location=Location(node=tensor.name) if tensor else None, help=helps.get(code, ""))
