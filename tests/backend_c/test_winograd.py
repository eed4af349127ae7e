"""Winograd's algorithm in C: the loops of several machines under both compilers, without undefined operations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.kernel.cook_toom import cook_toom
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.schedules.winograd_nests import window_of
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Compiled
from tests.kernel.test_winograd import RELU, RESIDUAL, arrays, changed, conv
from tests.machines import MACHINES, target_of
from tests.tools import COMPILERS

CASES = (
    (conv(1, 13, 13, 16, 32, tail=RELU), 4),
    (conv(2, 9, 7, 24, 8, (0, 2), tail=RESIDUAL), 4),
    (conv(1, 8, 12, 12, 20, back=True), 2),
    (conv(3, 11, 6, 32, 16, tail=RESIDUAL, back=True), 2),
    (conv(1, 9, 10, 16, 16, (2, 1), tail=RELU, taps=5), 4),
    (conv(1, 8, 9, 16, 8, (3, 3), taps=7, back=True), 2),
)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("machine", [name for name, m in MACHINES.items() if m.vector_bytes])
def test_convolutions(machine: str, cc: str, tmp_path: Path) -> None:
    plain = [parse_kernel(text) for text, _ in CASES]
    algorithms = [cook_toom(m, window_of(k.nests[0], k).taps) for k, (_, m) in zip(plain, CASES, strict=True)]
    made = [changed(k, arrays(k), f) for k, f in zip(plain, algorithms, strict=True)]
    checks = ("-fsanitize=undefined", "-fno-sanitize-recover=all") if (cc, machine) == ("gcc", "small-caches") else ()
    flags = (*STRICT, "-O0", *checks)
    compiled = Compiled([kernel for kernel, _ in made], target_of(MACHINES[machine]), tmp_path, cc, flags)
    for n, (kernel, (_, args)) in enumerate(zip(plain, made, strict=True)):
        (want,) = run_kernel(kernel, [a.astype(np.float64) for a in arrays(kernel)])
        for got in (*compiled(n, args), *([compiled.over(n, args, 3)] if "p3" in CASES[n][0] else [])):
            assert np.abs(got - want).max() <= 3e-5 * np.abs(want).max()
