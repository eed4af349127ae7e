"""Floats as rounded and clipped bytes: every spelling gives what the kernel gives."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.prelude import prelude
from dlc_backend_c.target import target_for

from dlc.base.types import f32
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Compiled
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


VECTORS = {4: "-mno-avx", 8: "-mavx2 -mfma", 16: "-march=x86-64-v4"}
"""Lanes, and instructions that their functions are made of."""
RESIDUAL = """kernel(u8[4,16], i8[1,4,16,4], f32[16], u8[4,16]) -> (u8[4,16]) local (i32[4,16]) {
  i<4 j<16 k<16: t0[i,j] += i32(p0[i,k])*i32(p1[j//16,k//4,j % 16,k % 4])
  i<4 j<16: r0[i,j] = u8(min(max(round(max(
    f32(i32(u8(min(max(round(f32(t0[i,j])*p2[j])+147.0, 0.0), 255.0)))+-147)*0.5+f32(p3[i,j])*0.25, 0.0)), 0.0), 255.0))
}"""


@pytest.mark.parametrize("lanes", VECTORS)
def test_bytes_of_vectors_are_those_of_the_kernel(lanes: int, tmp_path: Path) -> None:
    flags = VECTORS[lanes].split()
    if lanes == 16 and "avx512f" not in target_for("native").features:
        pytest.skip("this processor has no such instructions")
    x = numbers(finite=False)
    x = x[: len(x) // lanes * lanes]
    function = """void k{k}(const float *x, {to}_t *r, int32_t *w)
{{
    int i;
    for (i = 0; i < {count}; i += {n}) {{
        const f32x{n} v = *(const f32x{n}_any *)&x[i];
        dlc_store_{short}_i32x{n}(&r[i], dlc_to_byte_i32x{n}(v, {zero}, {low}, {high}));
        *(i32x{n}_any *)&w[i] = dlc_bounded_i32x{n}(dlc_whole_f32x{n}(v, {low} - {zero}, {high} - {zero}));
    }}
}}
"""
    source = ""
    for k, form in enumerate(FORMS):
        short, zero, low, high = form.split()
        to = {"u8": "uint8", "i8": "int8"}[short]
        source += function.format(k=k, to=to, short=short, n=lanes, count=len(x), zero=zero, low=low, high=high)
    target = replace(target_for("x86-64-v4"), vector_bytes=4 * lanes)
    (tmp_path / "k.c").write_text(prelude(target, source) + source)
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-O2", *flags, "-fPIC", "-shared", "k.c"]
    subprocess.run([*command, "-o", "k.so"], check=True, cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    for k, form in enumerate(FORMS):
        (want,) = run_kernel(parse_kernel(text(form, len(x))), [x])
        got, whole = np.empty_like(want), np.empty(len(x), np.int32)
        library[f"k{k}"](*(ctypes.c_void_p(a.ctypes.data) for a in (x, got, whole)))
        np.testing.assert_array_equal(got, want, form)
        rest = ~np.isnan(x)
        np.testing.assert_array_equal((whole + int(form.split()[1]))[rest], want[rest], form)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("name", ["to_byte_i32", "whole_f32", "bounded_i32"])
def test_nothing_that_one_needs_is_unused(name: str, cc: str, tmp_path: Path) -> None:
    """clang warns of functions of a file that no spelling for the processor calls."""
    for cpu, lanes in (("x86-64-v4", 16), ("x86-64-v3", 8)):
        target = target_for(cpu)
        source = f"void k(void) {{ (void)dlc_{name}x{lanes}; }}\n"
        (tmp_path / "k.c").write_text(prelude(target, source) + source)
        command = [cc, *target.flags, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "k.c"]
        subprocess.run(command, check=True, cwd=tmp_path)


def test_what_is_rounded_stays_a_float(tmp_path: Path) -> None:
    """The bytes between a convolution and a residual sum are made and taken apart in registers: as the kernel says."""
    kernel, target = parse_kernel(RESIDUAL), target_for("native")
    random = np.random.default_rng(1)
    given = [
        random.uniform(-0.02, 0.02, p.shape).astype(np.float32)
        if p.dtype is f32
        else random.integers(p.dtype.limits[0], p.dtype.limits[1] + 1, p.shape).astype(p.dtype.numpy)
        for p in kernel.params
    ]
    compiled = Compiled([kernel], target, tmp_path)
    if target.vector_bytes:
        assert "dlc_whole_f32x" in compiled.functions[0].text and "dlc_bounded" not in compiled.functions[0].text
    np.testing.assert_array_equal(compiled(0, given)[0], run_kernel(kernel, given)[0])


@pytest.mark.needs("arm-none-eabi-gcc")
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
