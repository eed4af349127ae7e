"""Short loops that choose between neighbours: in which the macro stands, and what they compute, in place as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.rolled import MACRO
from dlc_backend_c.target import GENERIC, X86_64_V3, CTarget, target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Compiled, close, samples
from tests.tools import COMPILERS

TARGETS = [GENERIC, *([X86_64_V3] if target_for("native").vector_bytes >= 32 else [])]


def unpooled(channels: int, value: str = "p0[i//2,j//2,k]") -> str:
    """The gradient of a maximum of windows of 2x2 behind a ReLU, channels last."""
    c = channels
    mine = f"select(p1[i//2,j//2,k] == i32(i % 2*2+j % 2), {value}, 0.0)"
    return f"""kernel(f32[3,2,{c}], i32[3,2,{c}], f32[6,4,{c}]) -> (f32[6,4,{c}]) {{
 r0[i,j,k] = select(p2[i,j,k] > 0.0, {mine}, 0.0)
}}"""


@pytest.mark.parametrize(
    ("channels", "marked"), [(2, False), (4, True), (6, False), (8, True), (16, True), (20, False)]
)
def test_where_the_macro_stands(channels: int, marked: bool) -> None:
    found = c_function(parse_kernel(unpooled(channels)), "f", GENERIC)
    assert any(f"{MACRO}(1) for" in text for text in found.definitions.values()) == marked


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_results(target: CTarget, cc: str, tmp_path: Path) -> None:
    texts = [unpooled(c) for c in (4, 6, 8, 16)]
    kernels = [parse_kernel(t) for t in (*texts, unpooled(8, "p0[i//2,j//2,7-k]"))]
    compiled = Compiled(kernels, target, tmp_path, cc)
    for n, kernel in enumerate(kernels):
        args = samples(kernel)
        (want,) = run_kernel(kernel, args)
        assert close(compiled(n, args)[0], want), n
        assert close(compiled.over(n, args, 2).reshape(want.shape), want), n
