"""Kernels that differ in a few numbers: how many functions are left, and that each kernel computes what it did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.alike import LEAST, PREFIX, alike
from dlc_backend_c.function import CFunction, c_function
from dlc_backend_c.target import X86_64_V3

from dlc.kernel.cook_toom import cook_toom
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Compiled, close, samples
from tests.kernel.test_winograd import RELU, arrays, changed, conv
from tests.machines import MACHINES, target_of
from tests.tools import COMPILERS

COUNT = 24


def appended(width: int) -> Kernel:
    """Columns behind others in many results."""
    results = ", ".join(f"f32[5,{width + 8}]" for _ in range(COUNT))
    nests = "\n".join(
        f" i<5 j<8: r{k}[i,{width}+j] = exp(p0[{k},i,j])\n i<5 j<{width}: r{k}[i,j] = p1[i,j]" for k in range(COUNT)
    )
    return parse_kernel(f"kernel(f32[{COUNT},5,8], f32[5,{width}]) -> ({results}) {{\n{nests}\n}}")


def product(terms: int) -> Kernel:
    """Of matrices, long enough that it would be worth it."""
    ports = f"f32[48,{terms}], f32[4,{terms},16]) -> (f32[48,64]"
    return parse_kernel(f"kernel({ports}) {{\n k<{terms}: r0[i,j] += p0[i,k]*p1[j//16,k,j % 16]\n}}")


def names(functions: dict[int, CFunction]) -> list[str]:
    """Functions that are called, by kernel."""
    return [c.name for f in functions.values() for c in f.calls]


def shared(kernels: list[Kernel]) -> dict[int, CFunction]:
    """Their functions, those that are alike as one."""
    return alike({k: c_function(kernel, f"f{k}", X86_64_V3) for k, kernel in enumerate(kernels)})


def test_numbers_are_arguments() -> None:
    found = shared([appended(w) for w in (96, 160, 128)])
    assert len({*names(found)}) == 1 and names(found)[0].startswith(PREFIX)
    assert [c.numbers for f in found.values() for c in f.calls] == [(96,), (160,), (128,)]
    (text,) = {text for f in found.values() for text in f.definitions.values()}
    assert "ptrdiff_t dlc_number0)\n" in text and "dlc_number1" not in text


def test_what_sums_read_stays() -> None:
    assert len(c_function(product(64), "f", X86_64_V3).text) > LEAST
    assert names(shared([product(64), product(80)])) == ["f0", "f1"]


def test_small_functions_stay() -> None:
    kernels = [parse_kernel(f"kernel(f32[{n}]) -> (f32[{n}]) {{\n i<{n}: r0[i] = p0[i]\n}}") for n in (3, 5)]
    assert names(shared(kernels)) == ["f0", "f1"]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("machine", ["small-caches", "no-vectors"])
def test_results(machine: str, cc: str, tmp_path: Path) -> None:
    kernels = [appended(w) for w in (96, 160, 128)]
    compiled = Compiled(kernels, target_of(MACHINES[machine]), tmp_path, cc, (*STRICT, "-O1"), shared=True)
    assert len({c.name for f in compiled.functions.values() for c in f.calls}) == 1
    for n, kernel in enumerate(kernels):
        args = samples(kernel)
        assert all(map(close, compiled(n, args), run_kernel(kernel, args))), n


@pytest.mark.parametrize("cc", COMPILERS)
def test_transforms_of_several_sizes(cc: str, tmp_path: Path) -> None:
    plain = [parse_kernel(conv(1, y, x, c, f, tail=RELU)) for y, x, c, f in ((16, 16, 16, 32), (8, 12, 32, 16))]
    made = [changed(k, arrays(k), cook_toom(4, 3)) for k in plain]
    compiled = Compiled(
        [k for k, _ in made], target_of(MACHINES["small-caches"]), tmp_path, cc, (*STRICT, "-O1"), shared=True
    )
    parts = [{n for n in f.definitions if n.startswith(PREFIX)} for f in compiled.functions.values()]
    assert parts[0] & parts[1]
    for n, (kernel, (_, args)) in enumerate(zip(plain, made, strict=True)):
        (want,) = run_kernel(kernel, [a.astype(np.float64) for a in arrays(kernel)])
        assert np.abs(compiled(n, args)[0] - want).max() <= 3e-5 * np.abs(want).max()
