"""A built library, opened: checked against its manifest, its functions declared, called on arrays without copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from dlc import ExitCode, Signature
from dlc.base.diagnostics import DlcError, error
from dlc.base.types import Array, Type
from dlc.files.hashing import content_sha256, file_sha256
from dlc.files.locking import directory_lock
from dlc.runtime.calling import Copied, input_array, named_inputs, output_buffers
from dlc.runtime.manifest import NAME, read_manifest
from dlc.runtime.sizes import at_sizes
from dlc_backend_c import manifest
from dlc_backend_c.elf import check_machine
from dlc_backend_c.opening import open_library
from dlc_backend_c.statuses import WORDS
from dlc_backend_c.weights_file import Weights, weights_of

ALIGN: Final = 64
"""Bytes: where outputs and working memory begin, so that vectors of them do not cross lines of a cache."""
_POOLS = {
    "own": "unsigned {p}_threads_start(unsigned); void {p}_threads_stop(void);",
    "openmp": "",
    "caller": "typedef void {p}_parallel_for(void *, void (*)(void *, size_t), size_t, void *);"
    " void {p}_set_parallel_for({p}_parallel_for *, void *);",
}
"""What an interface has beside, by who runs the threads."""
_ORDINARY = "int {p}_run(const void *const *, void *const *, void *);"
_TRAINING = """
typedef struct {{
    void *parameters, *state, *gradients, *arena;
    void (*all_reduce)(void *gradients, size_t bytes, void *user);
    void *user;
}} training;
int {p}_init(const training *);
int {p}_train_step_run(const training *, const void *const *, void *const *);
int {p}_evaluate_run(const training *, const void *const *, void *const *);
int {p}_predict_run(const training *, const void *const *, void *const *);
int {p}_save(const training *, void *);
int {p}_load(const training *, const void *, size_t);
"""


@dataclass(frozen=True, eq=False)
class Library:
    """A library and what its manifest tells."""

    directory: Path
    signature: Signature
    manifest: Mapping[str, Any]
    """The content of the manifest's file."""
    ffi: Any = field(repr=False)
    _lib: Any = field(repr=False)
    _kept: tuple[Any, ...] = field(repr=False)
    """What must live as long as the library: mapped weights."""
    copied: Copied = field(default_factory=Copied, repr=False)
    """The inputs that calls had to copy."""

    def function(self, name: str) -> Any:
        """The function PREFIX_name."""
        return getattr(self._lib, f"{self.manifest['prefix']}_{name}")

    def call(
        self,
        function: Callable[[Any, Any, Sequence[Array]], int],
        signature: Signature,
        args: tuple[object, ...],
        out: Mapping[str, object] | None,
        inputs: Mapping[str, object],
    ) -> tuple[int, list[Array], list[Array]]:
        """A function of two arrays of pointers, called on arrays; it also gets the arrays that it reads.

        Returns:
            What it returned, the arrays that it read, those that it wrote.

        Raises:
            DlcError: a name, shape or dtype is not the signature's; what was expected and found is named.
        """
        given = named_inputs(signature.inputs, args, inputs)
        signature = at_sizes(signature, given)
        read = [input_array(p, given[p.name], self.copied) for p in signature.inputs]
        consumed: list[int] = self.manifest.get("consumed", [])
        for k in consumed:  # the call writes over it, so it gets a copy
            own = _new(signature.inputs[k].type)
            own[...] = read[k]
            read[k] = own
        buffers = output_buffers(signature, out or {}, read)
        written = [_new(p.type) if b is None else b for p, b in zip(signature.outputs, buffers, strict=True)]
        sources = self.ffi.new("void *[]", [self.pointer(a) for a in read] or 1)
        sinks = self.ffi.new("void *[]", [self.pointer(a) for a in written] or 1)
        return function(sources, sinks, read), read, written

    def file(self, name: str) -> bytes:
        """An installed file as the manifest describes it; raises DlcError when it is another by now."""
        try:
            content = (self.directory / Path(name).name).read_bytes()
        except OSError as problem:
            raise damaged(self.directory, f"{name}: {problem.strerror}") from None
        if content_sha256(content) != self.manifest["files"][name]["sha256"]:
            raise damaged(self.directory, f"{name} is not the file that the manifest describes")
        return content

    def pointer(self, array: Array | None) -> Any:
        """The address of an array's first element, NULL for none."""
        return self.ffi.cast("void *", 0 if array is None else address(array))


def opened(directory: Path, weights: Weights = "auto") -> Library:
    """The library in `directory`; raises DlcError as `Model.load`."""
    try:
        # A build that installs into it meanwhile waits: manifest, library and weights are of one model.
        with directory_lock(directory, shared=True):
            return _opened(directory, weights)
    except TimeoutError as problem:
        raise damaged(directory, str(problem.strerror)) from None


def _opened(directory: Path, how: Weights) -> Library:
    found = read_manifest(directory)
    content = found.data
    library = _checked_library(directory, content)
    from cffi import FFI

    prefix = str(content["prefix"])
    ffi: Any = FFI()
    ffi.cdef((_TRAINING if "training" in content else _ORDINARY).format(p=prefix))
    if sizes := str(content["memory"].get("arena_sizes", "")).split():
        ffi.cdef(f"size_t {prefix}_arena_bytes({', '.join(['int64_t'] * len(sizes))});")
    if pool := str(content.get("pool", "")):
        ffi.cdef(_POOLS[pool].format(p=prefix))
    if "profile" in content:
        ffi.cdef(f"int {prefix}_profile(const void *const *, void *const *, void *, double (*)(void), double *);")
    if content["weights"] == "map":
        ffi.cdef(f"int {prefix}_set_weights(const void *);")
    try:
        lib = open_library(ffi, library, apart=content["weights"] == "map")
    except OSError as problem:
        raise damaged(directory, f"the library cannot be loaded: {problem}") from None
    kept: list[Any] = []
    if content["weights"] == "map":
        weights = weights_of(directory / f"{prefix}_weights.bin", how)
        kept.append(weights)
        succeed(getattr(lib, f"{prefix}_set_weights")(ffi.cast("void *", address(weights))))
    return Library(directory, found.signature, content, ffi, lib, tuple(kept))


def address(array: Array) -> int:
    """Of the first element."""
    return int(array.__array_interface__["data"][0])


def aligned(size: int) -> Array:
    """Bytes at a multiple of 64, of any content."""
    memory = np.empty(size + ALIGN, np.uint8)
    start = -address(memory) % ALIGN
    return memory[start : start + size]


def memories(sizes: Mapping[str, int]) -> tuple[Array, list[Array]]:
    """(the struct that tells a program where its working memories are, what it points to)."""
    held = [aligned(size) for size in sizes.values()]
    return np.array([address(m) if m.size else 0 for m in held], np.uintp), held


def _new(of: Type) -> Array:
    return aligned(of.nbytes).view(of.dtype.numpy).reshape(of.shape)


def succeed(code: int) -> None:
    """Raises DlcError for what no argument explains."""
    if code:
        raise error("run-failed", f"the model returned {code}: {WORDS.get(code, 'unknown error')}")


def _checked_library(directory: Path, content: Mapping[str, Any]) -> Path:
    if content.get("schema") != manifest.SCHEMA:
        raise damaged(directory, f"{NAME} has schema {content.get('schema')!r}, not {manifest.SCHEMA!r}")
    name = str(content.get("library", ""))
    if not name.endswith(".so"):
        raise error(
            "cannot-load",
            f"{directory.name} holds no shared library",
            help="build it with c{lib=shared}",
            exit_code=ExitCode.USAGE,
        )
    library = directory / Path(name).name
    try:
        intact = file_sha256(library) == content["files"][name]["sha256"]
    except OSError as problem:
        raise damaged(directory, f"{name}: {problem.strerror}") from None
    if not intact:
        raise damaged(directory, f"{name} is not the library that the manifest describes")
    check_machine(library)
    _check_cpu(content)
    return library


def _check_cpu(manifest: Mapping[str, Any]) -> None:
    """Instructions that this CPU lacks would kill the process at the first call."""
    from dlc_backend_c.machine_file import named
    from dlc_backend_c.target import NATIVE, level_of, missing, target_for

    level = level_of(manifest.get("cpu", []))
    needed = manifest.get("features", named(level).features)  # 0.1 did not state them
    name = manifest.get("machine", NATIVE)
    name = level if name == NATIVE else name
    if lacking := missing(needed):
        here = level_of(target_for("native").flags)
        raise error(
            "cannot-load",
            f"the library is built for {name}: this processor lacks {', '.join(lacking)}",
            help=f"build the model again: here, or with c{{cpu={here}}}",
            exit_code=ExitCode.USAGE,
        )


def damaged(directory: Path, reason: str) -> DlcError:
    """What is installed cannot be run: why."""
    return error(
        "cannot-load",
        f"{directory.name}: {reason}",
        help="build the model again",
        exit_code=ExitCode.USAGE,
    )
