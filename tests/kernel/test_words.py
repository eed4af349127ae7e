"""Sums of products of bytes are exact on every machine: four terms at a time, packed or copied, with what follows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import missing, target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.loops.program import Let, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.scalar_words import ScalarWords
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.schedules.words import WordTiles
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Compiled
from tests.machines import MACHINES, SMALL, random_machine, target_of

QUANTISED = "r0[{out}] = u8(min(max(round(f32(t0[{out}]+p2[{column}])*p3[{column}])+3.0, 0.0), 255.0))"


def matmul(m: int, n: int, k: int) -> str:
    """A product with packed weights, requantised."""
    panels = -(-n // 16)
    return (
        f"kernel(u8[{m},{k}], i8[{panels},{k // 4},16,4], i32[{n}], f32[{n}]) -> "
        f"(u8[{m},{n}]) local (i32[{m},{n}]) {{\n"
        f"  i<{m} j<{n} k<{k}: t0[i,j] += i32(p0[i,k])*i32(p1[j//16,k//4,j % 16,k % 4])\n"
        f"  i<{m} j<{n}: {QUANTISED.format(out='i,j', column='j')}\n}}"
    )


def conv(size: int, channels: int, filters: int, taps: int, stride: int = 1) -> str:
    """A convolution of channels-last data with packed weights, requantised."""
    panels, out = -(-filters // 16), (size - taps) // stride + 1
    weights = f"i8[{panels},{taps},{taps},{channels // 4},16,4]"
    return (
        f"kernel(u8[{size},{size},{channels}], {weights}, i32[{filters}], f32[{filters}]) -> "
        f"(u8[{out},{out},{filters}]) local (i32[{out},{out},{filters}]) {{\n"
        f"  i<{out} j<{out} f<{filters} c<{channels} m<{taps} n<{taps}: t0[i,j,f] += "
        f"i32(p0[i*{stride}+m,j*{stride}+n,c])*i32(p1[f//16,m,n,c//4,f % 16,c % 4])\n"
        f"  i<{out} j<{out} f<{filters}: {QUANTISED.format(out='i,j,f', column='f')}\n}}"
    )


def activations(heads: int, m: int, n: int, k: int) -> str:
    """A product of two activations, as in attention: none is packed."""
    return (
        f"kernel(u8[{heads},{m},{k}], i8[{heads},{n},{k}]) -> (i32[{heads},{m},{n}]) {{\n"
        f"  h<{heads} i<{m} j<{n} k<{k}: r0[h,i,j] += i32(p0[h,i,k])*i32(p1[h,j,k])\n}}"
    )


def depthwise(size: int, channels: int) -> str:
    """Each channel by itself."""
    out = size - 2
    return (
        f"kernel(u8[{size},{size},{channels}], i8[3,3,{channels}], i32[{channels}], f32[{channels}]) -> "
        f"(u8[{out},{out},{channels}]) local (i32[{out},{out},{channels}]) {{\n"
        f"  i<{out} j<{out} c<{channels} m<3 n<3: t0[i,j,c] += i32(p0[i+m,j+n,c])*i32(p1[m,n,c])\n"
        f"  i<{out} j<{out} c<{channels}: {QUANTISED.format(out='i,j,c', column='c')}\n}}"
    )


KERNELS = {
    "matmul": matmul(13, 40, 24),
    "one row": matmul(1, 32, 16),
    "conv": conv(7, 8, 20, 3),
    "conv, stride": conv(9, 4, 16, 3, 2),
    "pointwise": conv(5, 16, 48, 1),
    "activations": activations(2, 17, 21, 12),
    "depthwise": depthwise(6, 32),
    "other types": "kernel(i8[9,12], u8[12,32]) -> (i32[9,32]) {\n"
    "  i<9 j<32 k<12: r0[i,j] += i32(p0[i,k])*i32(p1[k,j])\n}",
    "no whole words": "kernel(u8[9,7], i8[7,32]) -> (i32[9,32]) {\n"
    "  i<9 j<32 k<7: r0[i,j] += i32(p0[i,k])*i32(p1[k,j])\n}",
}
WORDS = [name for name in KERNELS if name not in ("depthwise", "other types", "no whole words")]


def arguments(text: str, seed: int = 0) -> list[np.ndarray[Any, np.dtype[Any]]]:
    """Bytes from their whole range, the extremes among them, and scales that use all of the result's."""
    rng = np.random.default_rng(seed)
    found: list[np.ndarray[Any, np.dtype[Any]]] = []
    for p in parse_kernel(text).params:
        if p.dtype.is_float:
            found.append(rng.uniform(0.0005, 0.01, p.shape).astype(np.float32))
            continue
        low, high = (-2000, 2000) if p.dtype.bits == 32 else p.dtype.limits
        array = rng.integers(low, high + 1, p.shape).astype(p.dtype.numpy)
        if p.dtype.bits == 8:
            array.flat[:8] = (low, high) * 4
        found.append(array)
    return found


ALL = {**MACHINES, "small": SMALL}


@pytest.mark.parametrize("machine", ALL.values(), ids=ALL)
@pytest.mark.parametrize("name", KERNELS)
def test_loops_give_what_the_kernel_gives(name: str, machine: Machine) -> None:
    kernel, args = parse_kernel(KERNELS[name]), arguments(KERNELS[name])
    done = scheduled(kernel, machine)
    (got,), (want,) = run_loops(done.program, args), run_kernel(kernel, args)
    np.testing.assert_array_equal(got, want)
    text = print_loops(done.program)
    assert print_loops(parse_loops(text)) == text
    if name in WORDS and (machine.vector_bytes >= 16 or machine.words):
        assert isinstance(done.choices[0], ScalarWords if machine.words else WordTiles)
        assert "dots of" in text
    else:
        assert "dots of" not in text


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes_and_machines(seed: int) -> None:
    rng = random.Random(seed)
    m, n, k = rng.randint(1, 20), rng.randint(1, 50), 4 * rng.randint(1, 9)
    text = rng.choice((matmul(m, n, k), conv(rng.randint(3, 6), 4, n, 3), activations(2, m, n, k), depthwise(4, n)))
    kernel, args = parse_kernel(text), arguments(text, seed)
    (got,) = run_loops(scheduled(kernel, random_machine(rng)).program, args)
    np.testing.assert_array_equal(got, run_kernel(kernel, args)[0])


def test_sums_are_those_of_64_bits() -> None:
    text = activations(1, 9, 16, 512)
    args = arguments(text, 5)
    x, w = (a.astype(np.int64) for a in args)
    (got,) = run_loops(scheduled(parse_kernel(text), MACHINES["wide-vectors"]).program, args)
    np.testing.assert_array_equal(got, np.einsum("hik,hjk->hij", x, w))


@pytest.mark.parametrize(
    "cpu", ["generic", "x86-64-v3", "x86-64-v3-vnni", "x86-64-v4", "x86-64-v4-vnni", "narrow", "small"]
)
def test_compiled(cpu: str, tmp_path: Path) -> None:
    others = {"narrow": MACHINES["odd-registers"], "small": SMALL}
    target = target_of(others[cpu]) if cpu in others else target_for(cpu)
    if missing(target.features):
        pytest.skip("the processor does not have it")
    kernels = [parse_kernel(text) for text in KERNELS.values()]
    compiled = Compiled(kernels, target, tmp_path)
    for number, text in enumerate(KERNELS.values()):
        args = arguments(text, number)
        (got,) = compiled(number, args)
        np.testing.assert_array_equal(got, run_kernel(kernels[number], args)[0])


def test_words_of_columns_whose_terms_lie_apart_are_copied() -> None:
    """A word of the first factor has four neighbours; the second has other terms next to each other."""
    text = """kernel(u8[1,4,4,16], i8[64,16,4]) -> (i32[1,10]) {
  j<16 k<4 m<4: r0[0,i] += i32(p0[0,k,m,j])*i32(p1[j*4+k,i,m])
}"""
    kernel = parse_kernel(text)
    args = [np.random.default_rng(0).integers(-100, 100, p.shape).astype(p.dtype.numpy) for p in kernel.params]
    for machine in MACHINES.values():
        (got,) = run_loops(scheduled(kernel, machine).program, args)
        assert np.array_equal(got, run_kernel(kernel, args)[0])


@pytest.mark.parametrize(("general", "sums"), [(10, 4), (8, 4), (6, 2), (4, 1)])
def test_tiles_of_words_leave_room_for_pairs(general: int, sums: int) -> None:
    """A word is two pairs of 16 bits: those of all rows and of a column are in registers beside the sums."""
    text = matmul(8, 16, 24)
    found = scheduled(parse_kernel(text), replace(SMALL, general=general))
    names = {s.local.name for s in walk_stmts(found.program.body) if isinstance(s, Let) and s.local.name[0] == "c"}
    assert len(names) == sums


@pytest.mark.parametrize("choice", ["scalar-words{columns=4 rows=1}", "scalar-words{columns=1 rows=2}"])
def test_tiles_of_words_that_are_given(choice: str) -> None:
    kernel, args = parse_kernel(KERNELS["conv"]), arguments(KERNELS["conv"])
    done = scheduled(kernel, SMALL, parse_choices(choice))
    assert print_choices(done.choices) == choice
    np.testing.assert_array_equal(run_loops(done.program, args)[0], run_kernel(kernel, args)[0])


@pytest.mark.parametrize(
    ("name", "machine", "reason"),
    [
        ("matmul", MACHINES["no-vectors"], "no instruction for dot products"),
        ("matmul", MACHINES["wide-vectors"], "there are vectors"),
        ("no whole words", SMALL, "do not lie next to each other"),
        ("other types", SMALL, "no sum of products of u8 and i8"),
    ],
)
def test_no_words_without_vectors(name: str, machine: Machine, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        scheduled(parse_kernel(KERNELS[name]), machine, parse_choices("scalar-words"))
