"""Lanes in another order in C: small products on several machines under both compilers."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Compiled, close, samples
from tests.kernel.test_picks import FAST, arguments, picked, resampled
from tests.kernel.test_shuffled import FORMS, products
from tests.machines import MACHINES, target_of
from tests.tools import COMPILERS


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("machine", [name for name, m in MACHINES.items() if m.vector_bytes])
def test_small_products(machine: str, cc: str, tmp_path: Path) -> None:
    texts = [products(2, 9, FORMS["product"]), *(products(3, 7, body, "f64") for body in FORMS.values())]
    kernels = [parse_kernel(t) for t in texts[: 1 if machine == "odd-registers" else None]]
    assert all(scheduled(k, MACHINES[machine]).choices[0].name == "shuffled" for k in kernels)
    compiled = Compiled(kernels, target_of(MACHINES[machine]), tmp_path, cc, (*STRICT, "-O0"))
    for n, kernel in enumerate(kernels):
        args = samples(kernel)
        for got, want in zip(compiled(n, args), run_kernel(kernel, args), strict=True):
            assert close(got, want)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("instruction", [True, False])
def test_picked_elements(cc: str, instruction: bool, tmp_path: Path) -> None:
    """Where data are all inside of a row, and where some are not; also without an instruction for it."""
    target = target_of(FAST)
    without = () if instruction else ("-mno-avx512f",)
    kernels = [*map(picked, (16, 21, 40, 64)), resampled(5, 18)]
    compiled = Compiled(kernels, target, tmp_path, cc, (*STRICT, "-O1", *without))
    for n, kernel in enumerate(kernels):
        for low, high in ((0, 4), (-2, 20)):
            args = arguments(kernel, low, high)
            for got, want in zip(compiled(n, args), run_kernel(kernel, args), strict=True):
                assert close(got, want)
