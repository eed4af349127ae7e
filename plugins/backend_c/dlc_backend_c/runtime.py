"""`Model`: a shared library called with arrays, without copies and without Python's lock."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from dlc import ExitCode, Port, Signature
from dlc.diagnostics import DlcError, did_you_mean, error, quote
from dlc.manifest import read_manifest
from dlc.types import Type
from dlc_backend_c import manifest

Array = np.ndarray[Any, np.dtype[Any]]

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
        directory = Path(directory)
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
            lib = ffi.dlopen(str(library.resolve()))
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

        Args:
            args: One mapping of input name → array, or the array of the only input.
            out: Arrays to write into, by output name: C-contiguous, writable, of the exact type. Others are made.
            inputs: Arrays by input name: numpy arrays, or anything with `__dlpack__`. Read in place when C-contiguous.

        Raises:
            DlcError: a name, shape or dtype is not the model's; what was expected and found is named.
        """
        given = self._named(args, inputs)
        read = [_input_array(p, given[p.name]) for p in self.signature.inputs]
        written = self._outputs(out or {}, read)
        ffi = self._ffi
        sources = ffi.new("void *[]", [ffi.cast("void *", _address(a)) for a in read] or 1)
        sinks = ffi.new("void *[]", [ffi.cast("void *", _address(a)) for a in written] or 1)
        _succeed(self._run(sources, sinks, ffi.cast("void *", self._arena())))
        return dict(zip((p.name for p in self.signature.outputs), written, strict=True))

    def _named(self, args: tuple[object, ...], inputs: Mapping[str, object]) -> Mapping[str, object]:
        ports = self.signature.inputs
        given = dict(inputs)
        if len(args) > 1:
            raise _wrong(f"{len(args)} positional arguments; pass inputs by name: {_names(ports)}")
        for argument in args:
            if isinstance(argument, Mapping):
                given |= cast("Mapping[str, object]", argument)
            elif len(ports) == 1:
                given[ports[0].name] = argument
            else:
                raise _wrong(f"the model has {len(ports)} inputs; pass them by name: {_names(ports)}")
        _check_names("input", given, ports)
        missing = [p for p in ports if p.name not in given]
        if missing:
            raise _wrong(f"missing: {', '.join(f'{quote(p.name)} ({p.type})' for p in missing)}")
        return given

    def _outputs(self, out: Mapping[str, Array], read: list[Array]) -> list[Array]:
        ports = self.signature.outputs
        _check_names("output", out, ports)
        written: list[Array] = []
        for port in ports:
            if port.name not in out:
                written.append(_new(port.type))
                continue
            array = out[port.name]
            _check_buffer(port, array)
            if any(np.may_share_memory(array, other) for other in (*read, *written)):
                raise _wrong(f"output {quote(port.name)}: its buffer overlaps another one")
            written.append(array)
        return written

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


def _names(ports: tuple[Port, ...]) -> str:
    return ", ".join(quote(p.name) for p in ports)


def _check_names(what: str, given: Mapping[str, object], ports: tuple[Port, ...]) -> None:
    known = [p.name for p in ports]
    for name in given:
        if name not in known:
            raise _wrong(f"there is no {what} {quote(str(name))}", did_you_mean(str(name), known, f"{what}s"))


def _input_array(port: Port, value: object) -> Array:
    array = cast("Array", value) if isinstance(value, np.ndarray) else _imported(port, value)
    _check_type("input", port, array)
    # A copy only where the library could not read the elements in place.
    return np.require(array, requirements=("C", "A"))


def _imported(port: Port, value: object) -> Array:
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(cast("Any", value))
        except (BufferError, RuntimeError, TypeError, ValueError) as problem:
            raise _wrong(f"input {quote(port.name)}: its memory cannot be read here: {problem}") from None
    return np.asarray(value)


def _check_type(what: str, port: Port, array: Array) -> None:
    if array.dtype != port.type.dtype.numpy or array.shape != port.type.shape:
        found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        expected = f"{port.type.dtype.numpy}[{','.join(map(str, port.type.shape))}]"
        raise _wrong(f"{what} {quote(port.name)}: expected {expected}, found {found}")


def _check_buffer(port: Port, array: object) -> None:
    if not isinstance(array, np.ndarray):
        raise _wrong(f"output {quote(port.name)}: expected a numpy array, found {type(array).__name__}")
    _check_type("output", port, cast("Array", array))
    if not array.flags.c_contiguous or not array.flags.aligned or not array.flags.writeable:
        raise _wrong(f"output {quote(port.name)}: its buffer must be C-contiguous, aligned and writable")


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
        raise _damaged(directory, f"{manifest.NAME} has schema {told.get('schema')!r}, not {manifest.SCHEMA!r}")
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
        intact = manifest.sha256(library) == told["files"][name]["sha256"]
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


def _wrong(message: str, help: str = "") -> DlcError:
    return error("wrong-argument", message, help=help, exit_code=ExitCode.USAGE)
