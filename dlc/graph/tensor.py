"""Constant data by content: a `Tensor` is a type and a digest; its bytes are fetched only when something needs them.

Weights are hashed once, when they enter the compiler, and stay where they lie (in the model's own file) until a backend
writes them out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dlc.base.diagnostics import Location, error, escape
from dlc.base.types import Array, DType, Type, dtype_of_numpy
from dlc.base.uses import UNIFORM, WEIGHT, used
from dlc.files.inputs import InputFile, Inputs, active, active_or_none


class Data(Protocol):
    """Where the bytes of a tensor are."""

    def array(self, type: Type) -> Array:
        """The elements, read-only, C-contiguous, little-endian."""
        ...


@dataclass(frozen=True)
class MemoryData:
    """Elements held in memory."""

    value: Array

    def array(self, type: Type) -> Array:
        return self.value


@dataclass(frozen=True)
class FileData:
    """Elements inside a file, as it was when the build opened it first.

    Attributes:
        root: Directory of the model, or its file.
        name: File name relative to `root`, "" for the model's own file, which may have another name in another build;
            the only part that is ever written into a cache.
        offset: Byte offset of the first element.
        inputs: The files of the build.
    """

    root: Path
    name: str
    offset: int
    inputs: Inputs | None = field(default_factory=active_or_none, compare=False, repr=False)

    def array(self, type: Type) -> Array:
        """See `Data.array`. Raises DlcError where the file cannot be read, or changed since it was hashed."""
        if type.size == 0:
            return np.zeros(type.shape, type.dtype.numpy)
        file = self._file()
        if self.offset + type.nbytes > file.size:
            raise file.is_other()
        if file.kept:
            return np.frombuffer(file.read(self.offset, type.nbytes), type.dtype.numpy).reshape(type.shape)
        found = np.empty(type.shape, type.dtype.numpy)
        file.read_into(found.reshape(-1).view(np.uint8).data, self.offset)
        found.flags.writeable = False
        return found

    def _file(self) -> InputFile:
        path = self.root / self.name
        try:
            return (self.inputs or active()).open(path)
        except OSError as problem:
            message = f"{escape(str(path))}, which holds weights, cannot be read: {problem.strerror or problem}"
            help = "check the path and its permissions"
            raise error("unreadable-file", message, location=Location(str(path)), help=help) from None


@dataclass(frozen=True)
class LazyData:
    """Elements that are fetched by a function on first use (from a cache, say) and kept."""

    fetch: Callable[[], Array]
    _kept: list[Array] = field(default_factory=list[Array], compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False)

    def array(self, type: Type) -> Array:
        with self._lock:
            if not self._kept:
                self._kept.append(self.fetch())
        return self._kept[0]


@dataclass(frozen=True)
class PlaceholderData:
    """The elements of a tensor that stands for any of its type (`dlc.graph.placeholders`), until one reads them."""

    real: Tensor
    number: int

    def array(self, type: Type) -> Array:
        """See `Data.array`. It is noted: who reads depends on what is there."""
        used(f"{WEIGHT} {self.number}")
        return self.real.data.array(type)


@dataclass(frozen=True)
class Tensor:
    """A constant: equal type and digest mean equal bits."""

    type: Type
    digest: str
    data: Data = field(compare=False, repr=False)

    @classmethod
    def of(cls, value: Any, dtype: DType | None = None) -> Tensor:
        """A tensor of a numpy array (or anything that makes one).

        Raises:
            TypeError: the array's dtype has no counterpart.
        """
        given = np.asarray(value)
        wanted = given.dtype.newbyteorder("=") if dtype is None else dtype.numpy
        array = np.ascontiguousarray(given, wanted).reshape(given.shape)
        if np.may_share_memory(array, given) and given.flags.writeable:
            array = array.copy()  # whoever has it may write into it, and a digest is for ever
        found = dtype or dtype_of_numpy(array.dtype)
        if found is None:
            raise TypeError(f"no element type for numpy's {array.dtype}")
        array.flags.writeable = False
        type_ = Type(found, array.shape)
        return cls(type_, digest_of_data(type_, array), MemoryData(array))

    @classmethod
    def stored(cls, type: Type, data: Data) -> Tensor:
        """A tensor whose bytes lie elsewhere; reads them once to hash them."""
        return cls(type, digest_of_data(type, data.array(type)), data)

    def array(self) -> Array:
        """The elements, read-only."""
        return self.data.array(self.type)

    def repeated(self) -> Array | None:
        """The first element, if all have its bits, else None; of no elements, too.

        Cheaper for caches than `array`: who asks depends on the answer alone.
        """
        if isinstance(self.data, PlaceholderData):
            used(f"{UNIFORM} {self.data.number}")
            return self.data.real.repeated()
        elements = self.array().reshape(-1)
        if not elements.size:
            return None
        bits = elements.view(f"u{elements.dtype.itemsize}")
        return elements[:1] if bool(np.all(bits == bits[0])) else None


def digest_of_data(type: Type, array: Array) -> str:
    """Content digest: 32 hex digits of BLAKE2b over type and elements (bit patterns, so -0.0 differs from 0.0)."""
    h = blake2b(str(type).encode() + b"\0", digest_size=16)
    if array.size:
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, 1 << 24):
            h.update(flat[start : start + (1 << 24)].data)
    return h.hexdigest()
