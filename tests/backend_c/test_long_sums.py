"""Gradients of convolutions' weights: long sums, added up part by part from copies, against the reference."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from dlc_backend_c.target import GENERIC, CTarget

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Array, Compiled, close, samples
from tests.backend_c.test_schedules import TARGETS
from tests.tools import COMPILERS


def weights(n: int, h: int, c: int, f: int, k: int = 3, stride: int = 1, *, to_result: bool, dtype: str = "f32") -> str:
    """Channels last, the result [f,c,k,k]; without `to_result` a momentum follows."""
    p, o = k // 2, (h + 2 * (k // 2) - k) // stride + 1
    y, x = f"u*{stride}+j-{p}", f"v*{stride}+k-{p}"
    where = f"{y} >= 0 and {y} < {h} and {x} >= 0 and {x} < {h}"
    term = f"p1[n,u,v,i]*p0[n,{y},{x},m] if {where}"
    axes, sums = f"i<{f} j<{k} k<{k} m<{c}", f"n<{n} u<{o} v<{o}"
    data, result = f"p0: {dtype}[{n},{h},{h},{c}], p1: {dtype}[{n},{o},{o},{f}]", f"{dtype}[{f},{c},{k},{k}]"
    if to_result:
        return f"kernel({data}) -> (r0: {result}) {{\n {axes} {sums}: r0[i,m,j,k] += {term}\n}}"
    return f"""kernel({data}, p2: {result}) -> (r0: {result}) local (t0: {dtype}[{f},{k},{k},{c}]) {{
 {axes} {sums}: t0[i,j,k,m] += {term}
 {axes}: r0[i,m,j,k] = p2[i,m,j,k]*0.5+t0[i,j,k,m]
}}"""


KERNELS = (
    *(
        weights(*sizes, to_result=to_result)
        for sizes in ((9, 16, 32, 7), (9, 16, 33, 5), (33, 8, 32, 6, 1), (9, 31, 32, 4, 3, 2))
        for to_result in (True, False)
    ),
    weights(9, 16, 32, 4, to_result=True, dtype="f64"),
    # One channel: columns are the taps of the window.
    """kernel(p0: f32[9,1,20,20], p1: f32[9,20,20,6]) -> (r0: f32[6,1,5,5]) {
 k<6 i<5 j<5 m<9 n<20 u<20: r0[k,0,i,j] += p1[m,n,u,k]*p0[m,0,n+i-2,u+j-2]
   if n+i >= 2 and n+i <= 21 and u+j >= 2 and u+j <= 21
}""",
)


@cache
def expected(n: int) -> tuple[Array, ...]:
    """What kernel number `n` gives of its samples."""
    kernel = parse_kernel(KERNELS[n])
    return tuple(run_kernel(kernel, samples(kernel)))


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_gradients_of_weights(target: CTarget, cc: str, tmp_path: Path) -> None:
    small = replace(target, l2=64 << 10)
    kernels = [parse_kernel(text) for text in KERNELS]
    compiled = Compiled(kernels, small, tmp_path, cc, (*STRICT, "-O1"))
    for n, kernel in enumerate(kernels):
        for got, want in zip(compiled(n, samples(kernel)), expected(n), strict=True):
            assert close(got, want), f"{KERNELS[n]}\n{compiled.functions[n].text}"


@pytest.mark.parametrize("target", [t for t in TARGETS if t != GENERIC], ids=lambda t: t.cpu)
def test_a_gradient_of_weights_works_in_blocks(target: CTarget) -> None:
    # The copies of one operand alone would be 16·32·32·64 elements, of which each is read nine times.
    program = schedule(parse_kernel(weights(16, 32, 64, 64, to_result=True)), target.machine)
    assert sum(b.size for b in program.buffers) * 4 < 512 << 10
    assert any("turned" in b.name for b in program.buffers)
