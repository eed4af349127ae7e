"""Floats as rounded and clipped bytes: every spelling gives what the kernel gives."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.prelude import prelude
from dlc_backend_c.target import target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.text import parse_kernel
from tests.tools import COMPILERS

SPELLINGS = {
    "portable": ("-O2", "-mno-sse4.1"),
    "rounding instruction": ("-O2", "-msse4.1"),
    "fast math": ("-O2", "-mno-sse4.1", "-ffast-math"),
    # As of processors without floating point: the bits of numbers are rounded.
    "integers": ("-O2", "-D__arm__"),
}
FORMS = ["u8 0 0 255", "u8 17 0 255", "i8 0 -128 127", "i8 -128 -128 127", "u8 3 3 120", "i8 -7 -100 -1"]


def text(form: str, count: int) -> str:
    to, zero, low, high = form.split()
    rounded = "round(p0[i])" + (f"+{zero}.0" if zero != "0" else "")
    clipped = f"{to}(min(max({rounded}, {low}.0), {high}.0))"
    return f"kernel(f32[{count}]) -> ({to}[{count}]) {{\n  i<{count}: r0[i] = {clipped}\n}}"


def numbers(finite: bool) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Halves and their neighbours, around bounds, tiny, huge, and of all exponents."""
    halves = np.arange(-300, 300, 0.5, dtype=np.float32)
    near = [np.nextafter(halves, np.float32(side)) for side in (-np.inf, np.inf)]
    powers = np.float32(2) ** np.arange(-149, 128, dtype=np.float32)
    bits = np.random.default_rng(0).integers(0, 1 << 32, 4000, np.uint32).view(np.float32)
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 8388607.5, 8388608, 16777216, 3e38, -3e38], np.float32)
    with np.errstate(invalid="ignore"):
        found = np.concatenate([halves, *near, powers, -powers, powers * np.float32(1.5), bits, odd]).astype(np.float32)
    return found[np.isfinite(found)] if finite else found


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_bytes_are_those_of_the_kernel(spelling: str, cc: str, tmp_path: Path) -> None:
    x, target = numbers(finite="fast" in spelling), target_for("generic")
    kernels = [parse_kernel(text(form, len(x))) for form in FORMS]
    functions = [c_function(kernel, f"k{k}", target).text for k, kernel in enumerate(kernels)]
    source = "\n".join(functions)
    assert source.count("dlc_to_byte(") == len(FORMS)
    (tmp_path / "k.c").write_text(f"{prelude(target, source)}{source}")
    command = [cc, "-std=c99", "-Wall", "-Wextra", "-Werror", *SPELLINGS[spelling], "-fPIC", "-c", "k.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    # Linked with -ffast-math, a library makes the whole process take tiny numbers for zero when it is loaded.
    subprocess.run([cc, "-shared", "k.o", "-lm", "-o", "k.so"], check=True, cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    for number, kernel in enumerate(kernels):
        (want,) = run_kernel(kernel, [x])
        got = np.empty_like(want)
        library[f"k{number}"](ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(got.ctypes.data))
        wrong = np.flatnonzero(got != want)
        assert not len(wrong), [(FORMS[number], x[k], got[k], want[k]) for k in wrong[:5]]


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no compiler for it")
@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m0"])
def test_no_function_of_a_library_rounds(cpu: str, tmp_path: Path) -> None:
    target = target_for(cpu)
    function = c_function(parse_kernel(text("u8 3 0 255", 9)), "k", target)
    (tmp_path / "k.c").write_text(prelude(target, function.text) + function.text)
    subprocess.run(["arm-none-eabi-gcc", *target.flags, "-c", "k.c"], check=True, cwd=tmp_path)
    names = subprocess.run(["arm-none-eabi-nm", "-u", "k.o"], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert not names.stdout.split()
    if cpu == "cortex-m4":
        shown = subprocess.run(["arm-none-eabi-objdump", "-d", "k.o"], check=True, cwd=tmp_path, capture_output=True)
        assert b"vcvtr.s32.f32" in shown.stdout
