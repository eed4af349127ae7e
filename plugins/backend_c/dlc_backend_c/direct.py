"""Calls on arrays that are what a program takes, as nearly all are: only their addresses are looked up.

What is of another type, in another order or under another name is left to `Library.call`, which converts or refuses it.
A small model runs in less time than it takes to say what is wrong with an array.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard, cast

import numpy as np

from dlc import Port, Signature
from dlc.base.allowed import Allowed
from dlc.base.types import Array
from dlc.runtime.calling import as_array
from dlc.runtime.dlpack import is_foreign
from dlc.runtime.sizes import is_size
from dlc_backend_c.library import ALIGN, Library, aligned, memories


@dataclass(frozen=True)
class _Tensor:
    """One input or output."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int
    allowed: Allowed | None

    @classmethod
    def of(cls, port: Port) -> _Tensor:
        dtype, shape = port.type.dtype.numpy, port.type.shape
        return cls(port.name, dtype, shape, math.prod(shape) * dtype.itemsize, port.allowed)

    def is_type_of(self, value: object) -> TypeGuard[Array]:
        """Whether a value is an array that can be read or written in place."""
        if not isinstance(value, np.ndarray):
            return False
        array = cast("Array", value)
        flags = array.flags
        return array.dtype == self.dtype and array.shape == self.shape and flags.c_contiguous and flags.aligned


class _Own(threading.local):
    """What a thread has to itself: the pointers that a call passes, and working memory."""

    pointers: tuple[Any, Any, Any] | None = None
    memory: Array | None = None
    held: Sequence[Array] = ()
    """Working memories that it points to."""


class Direct:
    """A function of arrays of known types."""

    def __init__(
        self, library: Library, function: Any, arena_bytes: int, regions: Mapping[str, int] | None = None
    ) -> None:
        self._ffi, self._function, self._arena_bytes, self._regions = library.ffi, function, arena_bytes, regions
        self._inputs = tuple(map(_Tensor.of, library.signature.inputs))
        self._outputs = tuple(map(_Tensor.of, library.signature.outputs))
        self._own = _Own()

    @staticmethod
    def takes(signature: Signature) -> bool:
        """Whether a program has sizes that are all known, and element types that numpy can lend the memory of."""
        ports = (*signature.inputs, *signature.outputs)
        known = not any(p.type.is_open or is_size(p) for p in ports)
        return known and all(p.type.dtype.numpy.isbuiltin == 1 for p in ports)

    def __call__(
        self, args: tuple[object, ...], out: Mapping[str, object] | None, inputs: Mapping[str, object]
    ) -> tuple[int, dict[str, Array]] | None:
        """What the function returned, and output name → array; None: it was not called, some argument is another.

        Args:
            args, out: As for `Model.__call__`.
            inputs: Arrays by name.

        Raises:
            DlcError: (`bad-index`, `bad-label`) elements that an input does not allow.
        """
        given = self._named(args) if args else inputs
        if (args and inputs) or len(given) != len(self._inputs):
            return None
        sources, sinks, arena = self._own.pointers or self._pointers()
        lent = self._ffi.from_buffer
        held: list[Array] = []  # until the call is over: what lends its memory may go away with the array over it
        for k, t in enumerate(self._inputs):
            value = given.get(t.name)
            if not t.is_type_of(value):
                if not is_foreign(value):
                    return None
                held.append(value := as_array("input", t.name, value))
                if not t.is_type_of(value):
                    return None
            if t.allowed is not None:
                t.allowed.check(t.name, value)
            sources[k] = lent(value)
        found: dict[str, Array] = {}
        for k, t in enumerate(self._outputs):
            buffer = out.get(t.name) if out else None
            if buffer is not None:
                if is_foreign(buffer):
                    buffer = as_array("output", t.name, buffer, to_write=True)
                if not t.is_type_of(buffer) or not buffer.flags.writeable:
                    return None
                sinks[k] = lent(buffer)
                found[t.name] = buffer
            else:
                memory = np.empty(t.nbytes + ALIGN, np.uint8)
                start = lent(memory)
                offset = -int(self._ffi.cast("uintptr_t", start)) % ALIGN
                sinks[k] = start + offset
                found[t.name] = np.ndarray(t.shape, t.dtype, memory, offset)
        if out and (any(name not in found for name in out) or not self._apart(sources, sinks)):
            return None
        code = self._function(sources, sinks, arena)
        return code, found

    def _apart(self, sources: Any, sinks: Any) -> bool:
        """Whether no array overlaps another one."""
        both = ((sources, self._inputs), (sinks, self._outputs))
        spans = sorted((int(self._ffi.cast("uintptr_t", p[k])), t.nbytes) for p, ts in both for k, t in enumerate(ts))
        return all(start + size <= after for (start, size), (after, _) in pairwise(spans))

    def _named(self, args: tuple[object, ...]) -> Mapping[str, object]:
        """Positional arguments by name; of another number of them, none."""
        # A check against an abstract class takes as long as the rest of this when a call comes after a pause.
        if len(args) == 1 and (type(args[0]) is dict or isinstance(args[0], Mapping)):
            return cast("Mapping[str, object]", args[0])
        named = zip((t.name for t in self._inputs), args, strict=False)
        return dict(named) if len(args) == len(self._inputs) else {}

    def _pointers(self) -> tuple[Any, Any, Any]:
        """This thread's arrays of pointers, and its working memory."""
        own, new = self._own, self._ffi.new
        arena: Any = self._ffi.NULL
        if self._arena_bytes:
            if self._regions:
                own.memory, own.held = memories(self._regions)
            else:
                own.memory = aligned(self._arena_bytes)
            arena = self._ffi.from_buffer(own.memory)
        own.pointers = new("void *[]", len(self._inputs) or 1), new("void *[]", len(self._outputs) or 1), arena
        return own.pointers
