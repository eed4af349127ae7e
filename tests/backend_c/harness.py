"""Compile many kernels at once and run them: what the tests and benchmarks of C functions share."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.alike import alike
from dlc_backend_c.build import PROCESS_WIDE
from dlc_backend_c.function import CFunction, c_function, prelude
from dlc_backend_c.sections import LINKAGE
from dlc_backend_c.target import CTarget

from dlc.base.types import dtype_of_numpy, in_compute_type, packed
from dlc.kernel.kernel import Kernel

Array = np.ndarray[Any, np.dtype[Any]]
GUARD = 4096
"""Bytes behind every result, which nothing may write to."""
STRICT = ("-pedantic", "-Wall", "-Wextra", "-Werror")


@lru_cache(maxsize=512)
def _function(kernel: Kernel, name: str, target: CTarget) -> CFunction:
    """Remembered, because the next compiler gets the same text."""
    return c_function(kernel, name, target, packed=[k for k, p in enumerate(kernel.params) if p.packed])


def functions_of(
    kernels: Sequence[Kernel], target: CTarget, only: Collection[int] | None = None
) -> dict[int, CFunction]:
    """The functions of kernels by their places; `only`: of those."""
    return {n: _function(k, f"f{n}", target) for n, k in enumerate(kernels) if only is None or n in only}


def source_of(functions: Mapping[int, CFunction], target: CTarget) -> str:
    """The C of functions, with what they use; to be compiled with an empty macro `LINKAGE`."""
    text = "\n".join({name: text for f in functions.values() for name, text in f.definitions.items()}.values())
    return prelude(target, text) + "\n" + text


class Compiled:
    """Kernels of one shared library, callable with arrays; `shared`: those that are alike as one function.

    `only`: the places of those that are called, if not all are.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        target: CTarget,
        folder: Path,
        cc: str = "gcc",
        flags: Sequence[str] = STRICT,
        *,
        shared: bool = False,
        only: Collection[int] | None = None,
    ) -> None:
        made = functions_of(kernels, target, only)
        functions: dict[int, CFunction] = alike(made) if shared else made
        source = folder / "kernels.c"
        library = folder / "kernels.so"
        source.write_text(source_of(functions, target))
        command = [cc, *target.flags, *flags, f"-D{LINKAGE}=", "-fPIC"]
        if set(flags) & set(PROCESS_WIDE):  # linked with these, a library changes the arithmetic of all tests
            subprocess.run([*command, "-c", str(source), "-o", str(folder / "kernels.o")], check=True)
            command, source = [cc], folder / "kernels.o"
        subprocess.run([*command, "-shared", str(source), "-o", str(library), "-lm"], check=True)
        self._open(kernels, functions, library)

    def _open(self, kernels: Sequence[Kernel], functions: dict[int, CFunction], library: Path) -> None:
        self.kernels = tuple(kernels)
        self.functions = functions
        self.library = ctypes.CDLL(str(library))

    @classmethod
    def opened(cls, kernels: Sequence[Kernel], functions: dict[int, CFunction], library: Path) -> Compiled:
        """Kernels of a library that somebody compiled from `source_of` their functions."""
        found = cls.__new__(cls)
        found._open(kernels, functions, library)
        return found

    def __call__(self, n: int, args: Sequence[Array]) -> tuple[Array, ...]:
        """Results of kernel `n`; they and the workspace start as garbage."""
        call, results = self._bound(n, args)
        call()
        return self._taken(n, results)

    def over(self, n: int, args: Sequence[Array], place: int) -> Array:
        """The result of kernel `n` written over its argument number `place`."""
        kernel = self.kernels[n]
        inputs = [np.array(a, p.dtype.numpy) for a, p in zip(args, kernel.params, strict=True)]
        call, _ = self._bound(n, inputs, {0: inputs[place].reshape(-1).view(np.uint8)})
        call()
        return inputs[place]

    def _taken(self, n: int, results: Sequence[Array]) -> tuple[Array, ...]:
        kernel = self.kernels[n]
        for raw, r in zip(results, kernel.results, strict=True):
            assert np.all(raw[r.type.nbytes :] == 0xA5), f"written behind the end of {r.name}"
        return tuple(
            raw[: r.type.nbytes].view(r.dtype.numpy).reshape(r.shape)
            for raw, r in zip(results, kernel.results, strict=True)
        )

    def caller(self, n: int, args: Sequence[Array]) -> Callable[[], None]:
        """A call of kernel `n` on these arrays, to be timed."""
        return self._bound(n, args)[0]

    def _bound(
        self, n: int, args: Sequence[Array], given: Mapping[int, Array] = MappingProxyType({})
    ) -> tuple[Callable[[], None], list[Array]]:
        kernel, function = self.kernels[n], self.functions[n]
        made = (np.full(r.type.nbytes + GUARD, 0xA5, np.uint8) for r in kernel.results)
        results = [given.get(k, raw) for k, raw in enumerate(made)]
        inputs = [np.ascontiguousarray(a, p.dtype.numpy) for a, p in zip(args, kernel.params, strict=True)]
        inputs = [packed(a) if p.packed else a for a, p in zip(inputs, kernel.params, strict=True)]
        pointers = [a.ctypes.data for a in (*inputs, *results)]
        if function.workspace:
            raw = np.full(function.workspace + 64 + GUARD, 0xA5, np.uint8)
            inputs.append(raw)
            pointers.append(raw.ctypes.data + -raw.ctypes.data % 64)
        keep = [*inputs, *results]
        calls = [
            (
                getattr(self.library, c.name),
                (
                    *(ctypes.c_void_p(pointers[k] + further) for k, further in c.arguments),
                    *map(ctypes.c_ssize_t, c.numbers),
                ),
            )
            for c in function.calls
        ]

        def call() -> None:
            assert keep
            for native, arguments in calls:
                native(*arguments)

        return call, results


def called(request: pytest.FixtureRequest, argument: str) -> set[Any]:
    """Values of `argument` of the tests that run with this value of a fixture of their module, and are not left out."""
    of = str(request.fixturename)
    items = (item for item in request.session.items if item.path == request.path)
    found = (item.callspec.params for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec"))
    return {p[argument] for p in found if p.get(of) == request.param and argument in p}


def samples(kernel: Kernel, seed: int = 0) -> list[Array]:
    """Arrays for the parameters: small numbers, so that integer sums and indices stay in range."""
    rng = np.random.default_rng(seed)
    out: list[Array] = []
    for p in kernel.params:
        if p.dtype.is_float:
            out.append(rng.standard_normal(p.shape).astype(p.dtype.numpy))
        elif p.dtype.name == "bool":
            out.append(rng.random(p.shape) < 0.5)
        else:
            out.append(rng.integers(0, 4, p.shape).astype(p.dtype.numpy))
    return out


def close(got: Array, want: Array) -> bool:
    """Equal, or as near as another order of sums may put it."""
    of = dtype_of_numpy(got.dtype)
    got, want = in_compute_type(got), in_compute_type(want)
    if of is None or not of.is_float:
        return bool(np.array_equal(got, want))
    tolerance = {"f16": 2e-2, "f64": 1e-12}.get(of.name, 2e-5)
    if of.library and of.format:  # another order of sums may end at the next value
        tolerance = 2.0**-of.format.fraction
    finite = want[np.isfinite(want)]
    scale = float(np.max(np.abs(finite), initial=0.0)) or 1.0
    with np.errstate(all="ignore"):
        return bool(
            np.allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance * scale, equal_nan=True
            )
        )
