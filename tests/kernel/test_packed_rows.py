"""One row times weights of few bits: words of neighbouring columns, scaled once for a block, on every machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.loops.program import Lanes, LoopProgram, exprs_of, subexpressions, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.schedules.text import parse_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Array, close
from tests.machines import MACHINES


def product(columns: int, blocks: int, type: str = "u4", zero: str = "8.0", follower: bool = False) -> Kernel:
    """x·((q - z)·s) for blocks of 32 terms: q[c//16,k//word,c%16,k%word], s and z[c//16,block,c%16]."""
    word = 32 // int(type[1:])
    panels = columns // 16
    own = "f32(p3[i//16,j,i % 16])" if zero == "packed" else zero
    zeros = f", {type}[{panels},{blocks},16]" if zero == "packed" else ""
    out, more = ("t0[i]", f"\n  i<{columns}: r0[i] = max(t0[i], 0.0)") if follower else ("r0[i]", "")
    local = f" local (f32[{columns}])" if follower else ""
    text = (
        f"kernel(f32[{32 * blocks}], {type}[{panels},{32 * blocks // word},16,{word}], "
        f"f32[{panels},{blocks},16]{zeros}) -> (f32[{columns}]){local} {{\n"
        f"  i<{columns} j<{blocks} k<{32 // word} w<{word}: {out} += p0[j*32+k*{word}+w]*"
        f"((f32(p1[i//16,j*{32 // word}+k,i % 16,w])-{own})*p2[i//16,j,i % 16]){more}\n}}"
    )
    kernel = parse_kernel(text)
    return replace(kernel, params=tuple(replace(p, packed=p.dtype.per_byte > 1) for p in kernel.params))


KERNELS = {
    "panel": product(16, 2),
    "panels": product(80, 3),
    "zero points": product(64, 2, zero="packed"),
    "a follower": product(64, 2, follower=True),
    "two bits": product(32, 2, "u2", "2.0"),
    "signed": product(32, 2, "i4", "0.0"),
}


def operands(kernel: Kernel) -> list[Array]:
    random = np.random.default_rng(0)
    return [
        random.standard_normal(p.shape, np.float32)
        if p.dtype.is_float
        else random.integers(p.dtype.limits[0], p.dtype.limits[1] + 1, p.shape).astype(p.dtype.numpy)
        for p in kernel.params
    ]


def words(program: LoopProgram) -> int:
    """Places where elements of words are read."""
    found = subexpressions(e for s in walk_stmts(program.body) for e in exprs_of(s))
    return sum(isinstance(e, Lanes) and e.step > 1 for e in found)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", KERNELS)
def test_results_are_the_kernels(name: str, machine: str) -> None:
    kernel = KERNELS[name]
    program = scheduled(kernel, MACHINES[machine]).program
    args = operands(kernel)
    (got,), (want,) = run_loops(program, args), run_kernel(kernel, args)
    assert close(got, want)
    assert not check_loops(kernel, program)
    assert parse_loops(print_loops(program)) == program


@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_words_are_read_whole_and_blocks_are_scaled_once(vectors: int) -> None:
    kernel = KERNELS["zero points"]
    choices = parse_choices(f"tiles{{vectors={vectors}}}")
    program = scheduled(kernel, Machine(64, 32), choices).program
    assert words(program) == 8 * vectors, "each element of a word is read at one place of the text"
    text = print_loops(program)
    assert text.count("whole*") == vectors, "zero points are applied to the sum of a block"
    assert text.count("p2[") == vectors, "and so are scales"
    args = operands(kernel)
    assert close(run_loops(program, args)[0], run_kernel(kernel, args)[0])


def test_elements_of_words_that_are_not_packed_have_no_vectors() -> None:
    kernel = KERNELS["panels"]
    bytes_each = replace(kernel, params=tuple(replace(p, packed=False) for p in kernel.params))
    with pytest.raises(Unfit, match="no form"):
        scheduled(bytes_each, Machine(64, 32), parse_choices("tiles{vectors=1}"))


def test_a_checker_finds_a_wrong_place_in_a_word() -> None:
    kernel = KERNELS["panel"]
    text = print_loops(scheduled(kernel, Machine(64, 32)).program)
    wrong = text.replace("+3 .. +16 by 8]", "+2 .. +16 by 8]")
    assert wrong != text
    assert check_loops(kernel, parse_loops(wrong))
