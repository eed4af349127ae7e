"""`Model`: a shared library called with arrays, without copies and without Python's lock."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc import ExitCode, Port, Signature
from dlc.base.diagnostics import error
from dlc.base.types import Array
from dlc.runtime.calling import Copied
from dlc.runtime.manifest import NAME
from dlc.runtime.sizes import check_sizes, results
from dlc_backend_c.direct import Direct
from dlc_backend_c.library import Library, aligned, damaged, memories, opened, succeed
from dlc_backend_c.statuses import SIZE
from dlc_backend_c.weights_file import Weights

if TYPE_CHECKING:
    from dlc_backend_c.training_runtime import TrainingModel


@dataclass(frozen=True)
class Argument:
    """One input or output."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    labels: tuple[str, ...] = ()
    """Texts that an output's numbers, or the entries along its last dimension, stand for."""


@dataclass(frozen=True, eq=False)
class Model:
    """A compiled model. Threads may call it at the same time: each has working memory of its own.

    `m(x=array)` and, for names that are no Python words, `m({"x:0": array})`; a single input also as `m(array)`.
    """

    _library: Library
    _own: threading.local = field(default_factory=threading.local, repr=False)

    @classmethod
    def load(cls, directory: Path, weights: Weights = "auto") -> Model:
        """The model in `directory`.

        Args:
            directory: Where `dlc build` wrote to.
            weights: Of a program whose weights are a file. `mapped`: processes share it. `private`: it is read into
                memory of this process, in large pages where the system has them, which steps that read all weights
                once are faster with. `auto`: mapped where the system has mapped it in large pages, where it is small
                or would take more than half of the memory that is free; else private.

        Raises:
            DlcError: it is not there, is damaged, or cannot run here; (USAGE) `weights` is none of these.
        """
        return cls(opened(Path(directory), weights))

    @property
    def signature(self) -> Signature:
        """Inputs and outputs, and what they share."""
        return self._library.signature

    @property
    def copied(self) -> Copied:
        """The inputs that calls have copied so far: those that were not C-contiguous, aligned arrays of the CPU."""
        return self._library.copied

    @property
    def arena_bytes(self) -> int:
        """Working memory of one call, of the largest sizes where there are several.

        With a size without a limit that is more than any machine has: see `arena_bytes_at`.
        """
        return int(self._library.manifest["memory"]["arena_bytes"])

    def arena_bytes_at(self, **sizes: int) -> int:
        """Working memory that a call of these sizes needs: `model.arena_bytes_at(batch=4)`.

        Raises:
            DlcError: (`wrong-argument`) a size is missing or unknown, or one that the program is not built for.
        """
        names = self._size_names
        if not names:
            return self.arena_bytes
        wanted = ", ".join(names)
        if set(names) != set(sizes):
            raise error("wrong-argument", f"sizes are needed of {wanted}", exit_code=ExitCode.USAGE)
        found = int(self._library.function("arena_bytes")(*(sizes[n] for n in names)))
        if not found:
            given = ", ".join(f"{n}={sizes[n]}" for n in names)
            raise error("wrong-argument", f"the program is not built for {given}", exit_code=ExitCode.USAGE)
        return found

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """Name, dtype and shape of every input, in order."""
        return _arguments(self.signature.inputs)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """Name, dtype and shape of every output, in order."""
        return _arguments(self.signature.outputs)

    def __call__(self, *args: object, out: Mapping[str, object] | None = None, **inputs: object) -> dict[str, Array]:
        """Output name → array.

        A tensor that is in and out is an input and an output of one name; only `out` makes its array be overwritten.

        Args:
            args: One mapping of input name → array, or the array of the only input.
            out: Arrays to write into, by output name, or tensors with `__dlpack__`: C-contiguous, writable, of the
                exact type. Others are made. What is returned for a tensor is an array over its memory.
            inputs: Arrays by input name: numpy arrays, or anything with `__dlpack__`. Read in place when C-contiguous.

        Raises:
            DlcError: a name, shape or dtype is not the model's; what was expected and found is named.
        """
        if self._direct is not None and (found := self._direct(args, out, inputs)) is not None:
            code, outputs = found
            succeed(code)
            return outputs
        return self._run("run", (), args, out, inputs)

    def profile(self, timer: int, *, out: Mapping[str, object] | None = None, **inputs: object) -> tuple[float, ...]:
        """Seconds that each step of one call takes, in their order; of a program built with c{profile=yes}.

        Args:
            timer: Address of a C function `double timer(void)` that tells seconds since any time.
            out: Arrays to write into, as for a call.
            inputs: Arrays by input name.

        Raises:
            DlcError: as a call does; (USAGE) the program was not built to be profiled.
        """
        if "profile" not in self._library.manifest:
            raise error(
                "no-profile",
                "the program does not tell how long its steps take",
                help="build it with c{profile=yes}",
                exit_code=ExitCode.USAGE,
            )
        seconds = np.zeros(int(self._library.manifest["profile"]), np.float64)
        ffi = self._library.ffi
        further = ffi.cast("double (*)(void)", timer), ffi.cast("double *", seconds.ctypes.data)
        self._run("profile", further, (), out, inputs)
        return tuple(seconds.tolist())

    def _run(
        self,
        name: str,
        further: Sequence[Any],
        args: tuple[object, ...],
        out: Mapping[str, object] | None,
        inputs: Mapping[str, object],
    ) -> dict[str, Array]:
        function, pointer = self._library.function(name), self._library.pointer
        code, read, written = self._library.call(
            lambda i, o, given: function(i, o, pointer(self._arena(given)), *further),
            self.signature,
            args,
            out,
            inputs,
        )
        if code == SIZE:
            check_sizes(self.signature, written)
        succeed(code)
        given = {p.name: array for p, array in zip(self.signature.inputs, read, strict=True)}
        return results(self.signature, given, written)

    def _arena(self, given: Sequence[Array]) -> Array | None:
        """This thread's working memory, at least as much as a call of these inputs needs."""
        needed = self.arena_bytes
        if not needed:
            return None
        if self._sizes:
            needed = int(self._library.function("arena_bytes")(*(int(given[k]) for k in self._sizes)))
        arena: Array | None = getattr(self._own, "arena", None)
        if regions := self._library.manifest.get("regions"):
            if arena is None:
                arena, self._own.held = memories(regions)
                self._own.arena = arena
            return arena
        if arena is None or arena.size < needed:
            arena = self._own.arena = aligned(needed)
        return arena

    @cached_property
    def _direct(self) -> Direct | None:
        """The function for arrays of exact types; None for a program that has to look at them first."""
        if not Direct.takes(self.signature) or "consumed" in self._library.manifest:
            return None
        return Direct(
            self._library, self._library.function("run"), self.arena_bytes, self._library.manifest.get("regions")
        )

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """The inputs that hold the sizes on which the working memory depends."""
        numbers = {p.name: k for k, p in enumerate(self.signature.inputs)}
        return tuple(numbers[n] for n in self._size_names)

    @property
    def _size_names(self) -> list[str]:
        return str(self._library.manifest["memory"].get("arena_sizes", "")).split()


def load(directory: Path) -> Model | TrainingModel:
    """What was built into `directory`; raises DlcError when it is not there, is damaged, or cannot run here."""
    library = opened(Path(directory))
    if "training" not in library.manifest:
        return Model(library)
    from dlc_backend_c.training_runtime import TrainingModel

    try:
        return TrainingModel.of(library)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as problem:
        raise damaged(library.directory, f"{NAME} makes no sense: {type(problem).__name__} {problem}") from None


def _arguments(ports: tuple[Port, ...]) -> tuple[Argument, ...]:
    return tuple(Argument(p.name, p.type.dtype.numpy, p.type.shape, p.labels) for p in ports)
