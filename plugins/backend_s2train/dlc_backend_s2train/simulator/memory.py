"""The device's memory: one space of addresses for all arenas, and, on demand, who wrote each of its bytes.

Nothing but these bytes remembers a value, so that a wrong address or lifetime shows in the results; a `Shadow` refuses
it where it happens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dlc_backend_s2train.checks.problems import needed, too_large
from dlc_backend_s2train.codes import Arena
from dlc_backend_s2train.program import Program, Tensor
from dlc_backend_s2train.simulator.operands import Array, OperandError, decode, encode

if TYPE_CHECKING:
    from dlc.base.diagnostics import DlcError


HOST: Final = -1
"""Who wrote, where it was no instruction."""
_NOBODY: Final = -2


@dataclass(frozen=True)
class Span:
    """Bytes that (a part of) a tensor takes."""

    tensor: Tensor
    shape: tuple[int, ...]
    """Of the part."""
    begin: int
    """First byte."""
    end: int
    """Byte behind the last."""
    arena: Arena


class Memory:
    """The bytes of all storages; weights are filled in, everything else begins as zeros."""

    def __init__(self, program: Program, limit: int, checked: bool = False) -> None:
        """Take the memory of a program.

        Raises:
            DlcError: "too-large", before memory is taken.
        """
        self._program = program
        size, host = needed(program)
        # A shadow keeps two i32 for each byte.
        total = size * (9 if checked else 1) + host
        if total > limit:
            from dlc.base.diagnostics import DlcError, ExitCode  # only errors need it

            raise DlcError(too_large(total, limit), exit_code=ExitCode.LIMIT)
        self._bytes: Array = np.zeros(size, np.uint8)
        self._weights = [s for s in program.storages if s.arena is Arena.WEIGHTS]
        self.shadow = Shadow(program, size) if checked else None
        for number, data in program.weights.items():
            storage = program.storages[number]
            self._bytes[storage.address : storage.address + len(data)] = np.frombuffer(data, np.uint8)

    @property
    def weights(self) -> bytes:
        """What the storages of weights and states hold, one after the other."""
        return b"".join(self._bytes[s.address : s.address + s.size].tobytes() for s in self._weights)

    @property
    def weights_size(self) -> int:
        """Bytes of them."""
        return sum(s.size for s in self._weights)

    def put_weights(self, weights: bytes) -> None:
        """The inverse of `weights`; there are `weights_size` of them."""
        at = 0
        for s in self._weights:
            self._bytes[s.address : s.address + s.size] = np.frombuffer(weights, np.uint8, s.size, at)
            at += s.size

    def bytes_at(self, address: int, size: int) -> bytes:
        """`size` bytes at an address, which lie in memory."""
        return self._bytes[address : address + size].tobytes()

    def put_bytes(self, address: int, data: bytes) -> None:
        """Put bytes at an address; they lie in memory."""
        self._bytes[address : address + len(data)] = np.frombuffer(data, np.uint8)

    def span(self, number: int, rows: tuple[int, int] | None = None) -> Span:
        """Where tensor `number` lies, or of its first dimension only rows[0] to before rows[1].

        Raises:
            DlcError: "bad-program": there is no such tensor, or the part does not begin at a byte.
        """
        if not 0 <= number < len(self._program.tensors):
            raise _error("bad-program", f"there is no tensor {number}")
        tensor = self._program.tensors[number]
        storage = self._program.storages[tensor.storage]
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
        return decode(self._bytes[span.begin : span.end], span.shape, span.tensor.element)

    def write(self, span: Span, values: Array, by: int = HOST) -> None:
        """Round the values and store them.

        Raises:
            OperandError: there are more or fewer of them, or they are of another kind.
        """
        if values.size != math.prod(span.shape):
            raise OperandError(f'the result is {values.shape}, but "{span.tensor.name}" is {span.shape}')
        self._bytes[span.begin : span.end] = encode(values, span.tensor.element)
        if self.shadow:
            self.shadow.wrote(span, by)

    def clear(self, span: Span, by: int = HOST) -> None:
        """Zeros."""
        self._bytes[span.begin : span.end] = 0
        if self.shadow:
            self.shadow.wrote(span, by)


class Shadow:
    """Who wrote each byte, for which storage: refuses reads of what was never written, or written for another one."""

    def __init__(self, program: Program, size: int) -> None:
        """Weights count as written by the host from the start."""
        self._program = program
        self._storage = np.empty(size, np.int32)
        self._writer = np.empty(size, np.int32)
        self.forget()

    def forget(self) -> None:
        """At the begin of an entry: only weights are still there."""
        self._storage[:] = _NOBODY
        for number, storage in enumerate(self._program.storages):
            if storage.arena is Arena.WEIGHTS:
                place = slice(storage.address, storage.address + storage.size)
                self._storage[place] = number
                self._writer[place] = HOST

    def wrote(self, span: Span, by: int) -> None:
        """Instruction `by` wrote the span."""
        self._alive(span, by, "writes")
        self._storage[span.begin : span.end] = span.tensor.storage
        self._writer[span.begin : span.end] = by

    def read(self, span: Span, by: int) -> None:
        """Refuse a read of bytes that do not hold the span's tensor.

        Raises:
            DlcError: "stale-read" or "dead-storage".
        """
        self._alive(span, by, "reads")
        owners = self._storage[span.begin : span.end]
        wrong = np.flatnonzero(owners != span.tensor.storage)
        if not wrong.size:
            return
        place = span.begin + int(wrong[0])
        owner, writer = int(owners[wrong[0]]), int(self._writer[place])
        why = "nobody wrote it in this entry"
        if owner != _NOBODY:
            who = "the host" if writer < 0 else title(self._program, writer)
            why = f"{who} wrote it for storage {owner}{self._names(owner)}"
        message = (
            f'{_reader(self._program, by)} reads "{span.tensor.name}" at byte {place:,} of {span.arena.name.lower()}'
        )
        raise _error("stale-read", f"{message}, storage {span.tensor.storage}, but {why}", span.tensor)

    def _alive(self, span: Span, by: int, verb: str) -> None:
        storage = self._program.storages[span.tensor.storage]
        if by >= 0 and not storage.begin <= by < storage.end:
            message = f'{_reader(self._program, by)} {verb} "{span.tensor.name}"'
            life = f"lives from instruction {storage.begin} to before {storage.end}"
            raise _error("dead-storage", f"{message}, but its storage {span.tensor.storage} {life}", span.tensor)

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


def _error(code: str, message: str, tensor: Tensor | None = None) -> DlcError:
    from dlc.base.diagnostics import Location, error  # only errors need it

    helps = {
        "stale-read": "the plan of memory is wrong: compile again, and report it if it stays",
        "dead-storage": "the plan of memory is wrong: compile again, and report it if it stays",
    }
    return error(code, message, location=Location(node=tensor.name) if tensor else None, help=helps.get(code, ""))
