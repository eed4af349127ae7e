"""Generated C on processors whose first byte is the highest, in an emulator: helpers, weights, and what is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.function import CFunction
from dlc_backend_c.helpers import names, needed
from dlc_backend_c.prelude import whole_prelude
from dlc_backend_c.sections import LINKAGE
from dlc_backend_c.target import GENERIC, CTarget

from dlc import Report, Spec
from dlc.base.types import DTYPES, Type, f32, packed
from dlc.graph import evaluate
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.runtime.install import install
from tests.backend_c.harness import Array, close, functions_of, source_of
from tests.backend_c.models import plan_of, shell, small_net
from tests.backend_c.test_build import EXAMPLE, driver, printed
from tests.backend_c.test_functions import extremes, table
from tests.tools import COMPILERS

FOREIGN = {"powerpc64-linux-gnu-gcc": "qemu-ppc64-static", "mips-linux-gnu-gcc": "qemu-mips-static"}
"""Compilers for processors of the other order of bytes, of 64 and 32 bits, and what runs their programs."""
on_foreign = [
    pytest.param(cc, emulator, marks=[pytest.mark.needs(cc, emulator), pytest.mark.long])
    for cc, emulator in FOREIGN.items()
]
VECTORS = CTarget("vectors", 16, 16, 32 << 10, 256 << 10, GENERIC.flags)
"""Vectors by the extensions of compilers alone, for any processor."""
# gcc 12 for MIPS, which has no vectors, moves lanes of arguments at -O0; programs for it are generic.
machines = [
    pytest.param(target, *p.values, id=f"{target.cpu}-{p.values[0]}", marks=p.marks)
    for target in (GENERIC, VECTORS)
    for p in on_foreign
    if target is GENERIC or p.values[0] == "powerpc64-linux-gnu-gcc"
]
PLACED = 64


def unpacked(name: str) -> Kernel:
    """Elements of less than 8 bits, of which a byte holds several."""
    i = Axis("i", 64)
    p = Param("p", Type(DTYPES[name], (64,)), packed=True)
    return Kernel.canonical((p,), (Param("r", Type(f32, (64,))),), (Nest("r", (i,), (i,), apply("f32", p[i])),))


@cache
def covering(target: CTarget) -> tuple[Kernel, ...]:
    """Kernels that use every helper that single functions and conversions use, and few beside."""
    kernels = [*(unpacked(t.name) for t in DTYPES.values() if t.per_byte > 1), *table()]
    seen: set[str] = set()
    found: list[Kernel] = []
    for kernel in kernels:
        (function,) = functions_of([kernel], target).values()
        text = "\n".join(function.definitions.values())
        used = set(names(needed(whole_prelude(target), text)))
        if used - seen and "pow" not in kernel.functions:  # powers of extremes are for another test
            seen |= used
            found.append(kernel)
    return tuple(found)


def arguments(kernel: Kernel) -> list[Array]:
    if any(p.packed for p in kernel.params):
        return [np.arange(64).astype(np.uint8).astype(p.dtype.numpy) for p in kernel.params]
    return [a[: p.type.size] for a, p in zip(extremes(kernel), kernel.params, strict=True)]


def swapped(array: Array) -> bytes:
    """The bytes of an array, numbers in the other order."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}").byteswap().tobytes()


def main_of(functions: dict[int, CFunction], kernels: Sequence[Kernel]) -> str:
    """A program that reads all arguments and writes all results, one after another."""
    lines = ["#include <stdio.h>", "int main(void)", "{"]
    for n, function in functions.items():
        kernel = kernels[n]
        sizes = [p.type.packed_bytes if p.packed else p.type.nbytes for p in kernel.params]
        sizes += [r.type.nbytes for r in kernel.results] + [function.workspace] * bool(function.workspace)
        lines.append("    {")
        for k, size in enumerate(sizes):
            lines.append(f"        static unsigned char b{k}[{max(size, 1) + PLACED}] __attribute__((aligned(64)));")
        reads = [f"fread(b{k}, 1, {size}, stdin) != {size}" for k, size in enumerate(sizes[: len(kernel.params)])]
        lines.append(f"        if ({' || '.join(reads) or '0'}) return 1;")
        for call in function.calls:
            given = [f"(void *)(b{k} + {further})" for k, further in call.arguments] + list(map(str, call.numbers))
            lines.append(f"        {call.name}({', '.join(given)});")
        for k, r in enumerate(kernel.results, len(kernel.params)):
            lines.append(f"        fwrite(b{k}, 1, {r.type.nbytes}, stdout);")
        lines.append("    }")
    return "\n".join([*lines, "    return 0;", "}"]) + "\n"


@pytest.mark.parametrize(("target", "cc", "emulator"), machines)
@pytest.mark.parametrize("flags", [("-O0",), ("-O2",), ("-O3", "-ffast-math")], ids=" ".join)
def test_helpers(target: CTarget, flags: tuple[str, ...], cc: str, emulator: str, tmp_path: Path) -> None:
    kernels = covering(target)
    functions = functions_of(kernels, target)
    (tmp_path / "k.c").write_text(source_of(functions, target) + main_of(functions, kernels))
    own = [f for f in target.flags if not f.startswith("-O")]
    shell(cc, *own, *flags, "-w", f"-D{LINKAGE}=static", "-static", "k.c", "-o", "k", "-lm", cwd=tmp_path)
    args = [arguments(k) for k in kernels]
    given = b"".join(
        packed(a).tobytes() if p.packed else swapped(a)
        for k, values in zip(kernels, args, strict=True)
        for p, a in zip(k.params, values, strict=True)
    )
    done = subprocess.run([emulator, "./k"], input=given, capture_output=True, check=True, cwd=tmp_path)
    place, wrong = 0, list[str]()
    for k, values in zip(kernels, args, strict=True):
        with np.errstate(all="ignore"):
            wanted = run_kernel(k, values)
        for want in map(np.asarray, wanted):
            part = np.frombuffer(done.stdout, f"u{want.itemsize}", want.size, place).byteswap()
            place += want.nbytes
            got = part.view(want.dtype).reshape(want.shape)
            if not close(got, want):
                bad = np.flatnonzero(~((got == want) | ((got != got) & (want != want))))[:4]
                wrong.append(f"{k.text()}: {[a.ravel()[bad] for a in values]} gives {got[bad]}, not {want[bad]}")
    assert place == len(done.stdout) and not wrong, "\n".join(wrong)


def emit(options: str, place: Path) -> None:
    backend = C.from_spec(Spec.parse(f"c{{cpu=generic lib=none prefix=net {options}}}"))
    install(backend.emit(plan_of(small_net(), backend), Report()), place)


@pytest.mark.parametrize(("cc", "emulator"), on_foreign)
def test_weights_as_text(cc: str, emulator: str, tmp_path: Path) -> None:
    emit("weights=text", tmp_path)
    (tmp_path / "main.c").write_text(driver("net"))
    shell(
        cc, "-std=c99", "-O1", "-Wall", "-static", "net.c", "net_weights.c", "main.c", "-o", "run", "-lm", cwd=tmp_path
    )
    want = evaluate(small_net(), {"x": EXAMPLE})["probabilities"].ravel()
    np.testing.assert_allclose(printed(shell(emulator, "./run", cwd=tmp_path)), want, rtol=1e-4)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("weights", ["incbin", "map", "text"])
def test_weights_as_bytes_are_refused(weights: str, cc: str, tmp_path: Path) -> None:
    """What a compiler for such a processor says of itself; weights as text are right there."""
    emit(f"weights={weights}", tmp_path)
    command = [cc, "-std=c99", "-U__BYTE_ORDER__", "-D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__", "-fsyntax-only", "net.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (weights == "text")
    assert weights == "text" or "weights=text" in done.stderr
