"""Sums of products of bf16, two terms at a time, on machines that may add them so."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import missing, target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.schedules.words import WordTiles
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Compiled
from tests.machines import MACHINES, random_machine, target_of

Array = np.ndarray[Any, np.dtype[Any]]


def matmul(m: int, n: int, k: int, *, swapped: bool = False) -> str:
    """A product with packed weights, and a bias."""
    panels = -(-n // 16)
    factors = ["f32(p0[i,k])", "f32(p1[j//16,k//2,j % 16,k % 2])"]
    return (
        f"kernel(bf16[{m},{k}], bf16[{panels},{k // 2},16,2], f32[{n}]) -> (f32[{m},{n}]) local (f32[{m},{n}]) {{\n"
        f"  i<{m} j<{n} k<{k}: t0[i,j] += {'*'.join(factors[::-1] if swapped else factors)}\n"
        f"  i<{m} j<{n}: r0[i,j] = max(t0[i,j]+p2[j], 0.0)\n}}"
    )


def conv(size: int, channels: int, filters: int, taps: int, parts: int = 1) -> str:
    """A convolution of channels-last data with packed weights, whose sums are stored as bf16."""
    panels, out = -(-filters // 16), size - taps + 1
    return (
        f"kernel(bf16[{parts},{size},{size},{channels}], bf16[{panels},{taps},{taps},{parts},{channels // 2},16,2]) -> "
        f"(bf16[{out},{out},{filters}]) local (f32[{out},{out},{filters}]) {{\n"
        f"  i<{out} j<{out} f<{filters} q<{parts} c<{channels} m<{taps} n<{taps}: t0[i,j,f] += "
        f"f32(p0[q,i+m,j+n,c])*f32(p1[f//16,m,n,q,c//2,f % 16,c % 2])\n"
        f"  i<{out} j<{out} f<{filters}: r0[i,j,f] = bf16(t0[i,j,f])\n}}"
    )


KERNELS = {
    "matmul": matmul(13, 40, 24),
    "the other way round": matmul(5, 32, 18, swapped=True),
    "one row": matmul(1, 32, 16),
    "conv": conv(7, 8, 20, 3),
    "pointwise": conv(5, 16, 48, 1),
    "parts": conv(5, 6, 32, 3, parts=3),
}
PAIRS = {name: replace(m, pairs=1) for name, m in MACHINES.items()}


def arguments(kernel: Kernel, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(p.shape).astype(p.dtype.numpy) for p in kernel.params]


def agree(kernel: Kernel, got: Array, args: list[Array]) -> None:
    """Up to the order of sums, and one step where they are stored as bf16."""
    (want,) = run_kernel(kernel, args)
    (plain,) = run_kernel(kernel, [np.abs(a) for a in args])
    step = 2.0**-8 if kernel.results[0].dtype.narrow else 2.0**-20
    error = np.abs(got.astype(np.float64) - want.astype(np.float64))
    assert np.all(error <= step * plain.astype(np.float64))


@pytest.mark.parametrize("machine", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("name", KERNELS)
def test_loops_give_what_the_kernel_gives(name: str, machine: Machine) -> None:
    kernel = parse_kernel(KERNELS[name])
    args = arguments(kernel)
    done = scheduled(kernel, machine)
    (got,) = run_loops(done.program, args)
    agree(kernel, got, args)
    assert not check_loops(kernel, done.program)
    text = print_loops(done.program)
    assert print_loops(parse_loops(text)) == text
    assert ("dots of" in text) == isinstance(done.choices[0], WordTiles) == (machine.vector_bytes >= 16)


@pytest.mark.parametrize("seed", range(6))
def test_random_shapes_and_machines(seed: int) -> None:
    rng = random.Random(seed)
    n, k = rng.randint(1, 50), 2 * rng.randint(1, 9)
    text = rng.choice((matmul(rng.randint(1, 20), n, k), conv(rng.randint(3, 6), k, n, 3, rng.randint(1, 3))))
    kernel = parse_kernel(text)
    args = arguments(kernel, seed)
    (got,) = run_loops(scheduled(kernel, replace(random_machine(rng), pairs=rng.randint(0, 6))).program, args)
    agree(kernel, got, args)


def test_nothing_is_multiplied_in_pairs_unless_it_may_be() -> None:
    for machine in MACHINES.values():
        text = print_loops(scheduled(parse_kernel(KERNELS["matmul"]), machine).program)
        assert "dots of" not in text


def test_a_pair_with_a_wrong_term_is_found() -> None:
    kernel = parse_kernel(KERNELS["matmul"])
    text = print_loops(scheduled(kernel, PAIRS["wide-vectors"]).program)
    faulty = text.replace("p0[n0i2q*2+24 .. +1 words]", "p0[n0i2q*2+23 .. +1 words]")
    assert faulty != text
    assert check_loops(kernel, parse_loops(faulty))


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "narrow"])
def test_compiled(cpu: str, tmp_path: Path) -> None:
    target = (target_of(MACHINES["odd-registers"]) if cpu == "narrow" else target_for(cpu)).in_mode("bf16")
    if missing(target.features):
        pytest.skip("the processor does not have it")
    kernels = [parse_kernel(text) for text in KERNELS.values()]
    compiled = Compiled(kernels, target, tmp_path)
    for number, kernel in enumerate(kernels):
        args = arguments(kernel, number)
        (got,) = compiled(number, args)
        agree(kernel, got, args)
        assert "dlc_dots_f32" in compiled.functions[number].text


def test_infinities_and_nan(tmp_path: Path) -> None:
    """As f32 has them, with and without the instruction."""
    kernel = parse_kernel(matmul(4, 16, 8))
    x, w, b = arguments(kernel)
    x[1, 3], x[2, 2], x[3, 0] = np.inf, np.nan, 3.3e38
    for cpu in ("x86-64-v4-bf16", "x86-64-v3"):
        target = target_for(cpu, "bf16")
        if missing(target.features):
            continue
        folder = tmp_path / cpu
        folder.mkdir()
        (got,) = Compiled([kernel], target, folder)(0, [x, w, b])
        assert np.isnan(got[2]).all()
        weights: Array = w.astype(np.float64)[0, 1, :, 1]
        assert ((got[1] == np.inf) == (weights > 0)).all()
        assert not got[1][weights < 0].any()
        assert np.isfinite(got[0]).all()
