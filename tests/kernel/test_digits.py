"""One row times packed weights by digits: as near to the sums of floats as is said, on every machine and in C."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import CTarget, missing, target_for

from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.schedules.digit_tiles import LARGEST
from dlc.kernel.schedules.digits import DigitTiles
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.schedules.text import parse_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Array, Compiled
from tests.machines import MACHINES, target_of

WIDE = Machine(64, 32, 32 << 10, 1 << 20, digits=True)
VECTORS = {"16": WIDE, "8": replace(WIDE, vector_bytes=32, registers=16), "4": replace(WIDE, vector_bytes=16)}


def product(columns: int, blocks: int, block: int, zero: bool = True, follower: bool = False) -> Kernel:
    """A row times weights of 4 bits in panels, as `fuse` stores them."""
    panel = 16 if columns % 32 else 32
    panels, words, at = columns // panel, block // 8, f"j//{panel}"
    params = f"f32[{panels},{blocks},{panel}], u4[{panels},{blocks * words},{panel},8], f32[{blocks * block}]"
    params += f", u4[{panels},{blocks},{panel}]" * zero + f", f32[{columns}]" * follower
    taken = f"f32(p3[{at},b,j % {panel}])" if zero else "8.0"
    weight = f"((f32(p1[{at},b*{words}+w,j % {panel},e])-{taken})*p0[{at},b,j % {panel}])"
    out = "t0" if follower else "r0"
    lines = [f"b<{blocks} w<{words} e<8: {out}[j] += p2[b*{block}+w*8+e]*{weight}"]
    lines += [f"r0[j] = max(t0[j]+p{3 + zero}[j], 0.0)"] * follower
    local = f" local (f32[{columns}])" * follower
    kernel = parse_kernel(f"kernel({params}) -> (f32[{columns}]){local} {{\n  " + "\n  ".join(lines) + "\n}")
    return replace(kernel, params=tuple(replace(p, packed=p.dtype.per_byte > 1) for p in kernel.params))


KERNELS = {
    "panels of 32, zero points": product(96, 3, 32),
    "panels of 16": product(48, 2, 64, zero=False),
    "long blocks, and what follows": product(32, 2, 128, follower=True),
}


def arguments(kernel: Kernel, seed: int = 0) -> list[Array]:
    """Any weights, scales of one size, and a row with large elements in some blocks."""
    random = np.random.default_rng(seed)
    found: list[Array] = []
    for p in kernel.params:
        if p.packed:
            found.append(random.integers(0, 16, p.shape, np.uint8).astype(p.dtype.numpy))
        else:
            found.append(random.uniform(0.5, 1.5, p.shape).astype(np.float32))
    row: Array = random.standard_normal(kernel.params[2].shape, np.float32)
    row[::37] *= 100.0
    return [*found[:2], row, *found[3:]]


def expected(kernel: Kernel, args: list[Array]) -> tuple[Array, Array]:
    """The result in double precision, and how far one by digits may be from it, but for what sums of floats round."""
    scales, weights, row, *rest = (np.asarray(a, np.float64) for a in args)
    panels, blocks, panel = scales.shape
    terms = row.reshape(blocks, -1)
    each = np.moveaxis(weights.reshape(panels, blocks, -1, panel, 8), 3, 2).reshape(panels, blocks, panel, -1)
    zero = rest.pop(0) if kernel.params[-1].packed or len(rest) > 1 or (rest and rest[0].ndim == 3) else 8.0
    apart = each - np.asarray(zero)[..., None]
    sums = (scales * np.einsum("pbcn,bn->pbc", apart, terms)).sum(1).ravel()
    units = np.abs(terms).max(1) / LARGEST
    bound = (scales * each.sum(-1) * units[:, None] * 0.5).sum(1).ravel()
    rounding = (np.abs(scales) * np.einsum("pbcn,bn->pbc", each + 15.0, np.abs(terms))).sum(1).ravel() * 2.0**-22
    return (np.maximum(sums + rest[0], 0.0) if rest else sums), bound + rounding


class Portable(CTarget):
    """C for a machine without the instruction whose schedules take factors apart nevertheless."""

    @property
    def machine(self) -> Machine:
        return replace(super().machine, digits=True)


def agree(kernel: Kernel, args: list[Array], got: Array) -> None:
    want, bound = expected(kernel, args)
    assert np.all(np.abs(got - want) <= bound), np.abs(got - want).max()
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("lanes", VECTORS)
@pytest.mark.parametrize("name", KERNELS)
def test_loops_are_near_what_the_kernel_gives(name: str, lanes: str) -> None:
    kernel, args = KERNELS[name], arguments(KERNELS[name])
    done = scheduled(kernel, VECTORS[lanes])
    assert isinstance(done.choices[0], DigitTiles)
    agree(kernel, args, run_loops(done.program, args)[0])
    assert not check_loops(kernel, done.program)
    assert parse_loops(print_loops(done.program)) == done.program


@pytest.mark.parametrize("cpu", ["8", "x86-64-v4-vnni", "x86-64-v3-vnni"])
def test_compiled(cpu: str, tmp_path: Path) -> None:
    target = target_of(VECTORS[cpu]) if cpu in VECTORS else target_for(cpu)
    if missing(target.features):
        pytest.skip("the processor does not have it")
    if cpu in VECTORS:
        target = Portable(**{f: getattr(target, f) for f in target.__dataclass_fields__})
    kernels = list(KERNELS.values())
    compiled = Compiled(kernels, target, tmp_path)
    for number, kernel in enumerate(kernels):
        assert any("digits" in text for text in compiled.functions[number].definitions.values())
        args = arguments(kernel, number)
        agree(kernel, args, compiled(number, args)[0])
        special: dict[str, Any] = {"zeros": 0.0, "tiny": 1e-38, "not a number": np.nan, "infinite": np.inf}
        for value in special.values():
            row = np.full_like(args[2], value)
            (got,) = compiled(number, [*args[:2], row, *args[3:]])
            assert np.isnan(got).all() if not np.isfinite(value) else np.isfinite(got).all()


def test_a_word_of_digits_that_is_displaced_is_found() -> None:
    kernel = KERNELS["panels of 16"]
    program = scheduled(kernel, WIDE).program

    text = print_loops(program)
    first = next(line for line in text.splitlines() if "= digits0[" in line)
    changed = parse_loops(text.replace(first, first.replace("digits0[", "digits0[4+"), 1))
    assert check_loops(kernel, changed)


@pytest.mark.parametrize(
    ("kernel", "machine", "reason"),
    [
        (KERNELS["panels of 16"], MACHINES["wide-vectors"], "no dot products of digits"),
        (KERNELS["panels of 16"], replace(WIDE, ordered=True), "keep the order"),
        (KERNELS["panels of 16"], replace(WIDE, stack=64), "bytes of a stack"),
        (product(32, 4, 16), WIDE, "no whole vectors"),
    ],
)
def test_no_digits(kernel: Kernel, machine: Machine, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        scheduled(kernel, machine, parse_choices("digits"))


@pytest.mark.parametrize("math", ["ordered", "strict", "fast"])
def test_modes(math: str) -> None:
    target = replace(target_for("x86-64-v4-vnni"), math=math)
    assert target.machine.digits == (math == "fast")
