"""`Model`: a shared library called with arrays, without copies and without Python's lock."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dlc import ExitCode, Port, Signature
from dlc.calling import input_array, named_inputs, output_buffers
from dlc.diagnostics import DlcError, error
from dlc.hashing import file_sha256
from dlc.locking import directory_lock
from dlc.manifest import NAME, read_manifest
from dlc.types import Array, Type
from dlc_backend_c import manifest
from dlc_backend_c.opening import open_library

_ALIGN = 64
_ERRORS = {1: "a buffer is absent", 2: "a buffer is misaligned", 3: "the weights are missing"}


@dataclass(frozen=True)
class Argument:
    """One input or output."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A compiled model. Threads may call it at the same time: each has working memory of its own.

    `m(x=array)` and, for names that are no Python words, `m({"x:0": array})`; a single input also as `m(array)`.
    """

    signature: Signature
    arena_bytes: int
    _ffi: Any = field(repr=False)
    _run: Any = field(repr=False)
    _kept: tuple[Any, ...] = field(repr=False)
    """What must live as long as the model: the library, mapped weights."""
    _own: threading.local = field(default_factory=threading.local, repr=False)

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """Name, dtype and shape of every input, in order."""
        return _arguments(self.signature.inputs)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """Name, dtype and shape of every output, in order."""
        return _arguments(self.signature.outputs)

    @classmethod
    def load(cls, directory: Path) -> "Model":
        """The model in `directory`; raises DlcError when it is not there, is damaged, or cannot run here."""
        try:
            # A build that installs into it meanwhile waits: manifest, library and weights are of one model.
            with directory_lock(Path(directory), shared=True):
                return cls._load(Path(directory))
        except TimeoutError as problem:
            raise _damaged(Path(directory), str(problem.strerror)) from None

    @classmethod
    def _load(cls, directory: Path) -> "Model":
        found = read_manifest(directory)
        told = found.data
        library = _checked_library(directory, told)
        from cffi import FFI

        prefix = str(told["prefix"])
        ffi: Any = FFI()
        ffi.cdef(f"int {prefix}_run(const void *const *, void *const *, void *);")
        if told["weights"] == "map":
            ffi.cdef(f"int {prefix}_set_weights(const void *);")
        try:
            lib = open_library(ffi, library, apart=told["weights"] == "map")
        except OSError as problem:
            raise _damaged(directory, f"the library cannot be loaded: {problem}") from None
        kept: list[Any] = [lib]
        if told["weights"] == "map":
            weights = np.memmap(directory / f"{prefix}_weights.bin", np.uint8, "r")
            kept.append(weights)
            _succeed(getattr(lib, f"{prefix}_set_weights")(ffi.cast("void *", _address(weights))))
        return cls(found.signature, int(told["memory"]["arena_bytes"]), ffi, getattr(lib, f"{prefix}_run"), tuple(kept))

    def __call__(self, *args: object, out: Mapping[str, Array] | None = None, **inputs: object) -> dict[str, Array]:
        """Output name → array.

        A tensor that is in and out is an input and an output of one name; only `out` makes its array be overwritten.

        Args:
            args: One mapping of input name → array, or the array of the only input.
            out: Arrays to write into, by output name: C-contiguous, writable, of the exact type. Others are made.
            inputs: Arrays by input name: numpy arrays, or anything with `__dlpack__`. Read in place when C-contiguous.

        Raises:
            DlcError: a name, shape or dtype is not the model's; what was expected and found is named.
        """
        given = named_inputs(self.signature.inputs, args, inputs)
        read = [input_array(p, given[p.name]) for p in self.signature.inputs]
        buffers = output_buffers(self.signature, out or {}, read)
        written = [_new(p.type) if b is None else b for p, b in zip(self.signature.outputs, buffers, strict=True)]
        ffi = self._ffi
        sources = ffi.new("void *[]", [ffi.cast("void *", _address(a)) for a in read] or 1)
        sinks = ffi.new("void *[]", [ffi.cast("void *", _address(a)) for a in written] or 1)
        _succeed(self._run(sources, sinks, ffi.cast("void *", self._arena())))
        return dict(zip((p.name for p in self.signature.outputs), written, strict=True))

    def _arena(self) -> int:
        """Address of this thread's working memory."""
        if not self.arena_bytes:
            return 0
        arena: Array | None = getattr(self._own, "arena", None)
        if arena is None:
            arena = self._own.arena = _aligned(self.arena_bytes)
        return _address(arena)


def _arguments(ports: tuple[Port, ...]) -> tuple[Argument, ...]:
    return tuple(Argument(p.name, p.type.dtype.numpy, p.type.shape) for p in ports)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _aligned(size: int) -> Array:
    memory = np.empty(size + _ALIGN, np.uint8)
    start = -_address(memory) % _ALIGN
    return memory[start : start + size]


def _new(of: Type) -> Array:
    return _aligned(of.nbytes).view(of.dtype.numpy).reshape(of.shape)


def _succeed(code: int) -> None:
    if code:
        raise error("run-failed", f"the model returned {code}: {_ERRORS.get(code, 'unknown error')}")


def _checked_library(directory: Path, told: Mapping[str, Any]) -> Path:
    if told.get("schema") != manifest.SCHEMA:
        raise _damaged(directory, f"{NAME} has schema {told.get('schema')!r}, not {manifest.SCHEMA!r}")
    name = str(told.get("library", ""))
    if not name.endswith(".so"):
        raise error(
            "cannot-load",
            f"{directory.name} holds no shared library",
            help="build it with c{lib=shared}",
            exit_code=ExitCode.USAGE,
        )
    library = directory / Path(name).name
    try:
        intact = file_sha256(library) == told["files"][name]["sha256"]
    except OSError as problem:
        raise _damaged(directory, f"{name}: {problem.strerror}") from None
    if not intact:
        raise _damaged(directory, f"{name} is not the library that the manifest describes")
    _check_cpu(told)
    return library


def _check_cpu(told: Mapping[str, Any]) -> None:
    """Instructions that this CPU lacks would kill the process at the first call."""
    from dlc_backend_c.target import target_for

    needed, here = _level(told.get("cpu", [])), _level(target_for("native").flags)
    if needed > here:
        raise error(
            "cannot-load",
            f"the library is built for {_LEVELS[needed]}, this machine offers {_LEVELS[here] or 'less'}",
            help=f"build it here, or with c{{cpu={_LEVELS[here] or 'generic'}}}",
            exit_code=ExitCode.USAGE,
        )


_LEVELS = ("", "x86-64-v3", "x86-64-v4")


def _level(flags: Iterable[str]) -> int:
    return max((_LEVELS.index(f) for flag in flags if (f := flag.removeprefix("-march=")) in _LEVELS), default=0)


def _damaged(directory: Path, reason: str) -> DlcError:
    return error(
        "cannot-load",
        f"{directory.name}: {reason}",
        help="build the model again",
        exit_code=ExitCode.USAGE,
    )
