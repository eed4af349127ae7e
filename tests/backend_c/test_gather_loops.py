"""Gradients in gather form as C: guards are bounds and steps of loops, at every type, without a warning."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from dlc_backend_c.function import c_function, prelude
from dlc_backend_c.target import GENERIC, CTarget, target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.fusion.tidy import tidy
from dlc.kernel.kernel import Kernel
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Compiled, close, samples
from tests.tools import COMPILERS

BLUR = """kernel(p0: T[8,8]) -> (r0: T[10,8]) {
  r0[i,j] += p0[i,j]*3 if i < 8
  r0[i,j] += p0[i-1,j]*3 if i >= 1 and i < 9
  r0[i,j] += p0[i-2,j]*3 if i >= 2
}"""
KERNELS = {
    "blur": BLUR,
    "convolution": """kernel(p0: T[2,8,5,5], p1: T[8,16,3,3]) -> (r0: T[2,16,7,7]) {
      k<8 p<5 q<5: r0[n,c,h,w] += p0[n,k,p,q]*p1[k,c,h-p,w-q] if h >= p and h-p < 3 and w >= q and w-q < 3
    }""",
    "dilated convolution": """kernel(p0: T[5], p1: T[3]) -> (r0: T[9]) {
      j<3: r0[i] += p0[i-2*j]*p1[j] if i-2*j >= 0 and i-2*j < 5
    }""",
    "stride": """kernel(p0: T[4]) -> (r0: T[10]) {
      r0[i] += p0[(i-1)//2] if (i-1) % 2 == 0 and i >= 1 and (i-1)//2 < 4
    }""",
    "rotation": """kernel(p0: T[4,4]) -> (r0: T[8,8]) {
      r0[i,j] += p0[i-(i-j)//2-2,(i-j)//2+2] if (i-j) % 2 == 0 and
        i-(i-j)//2 >= 2 and i-(i-j)//2 < 6 and (i-j)//2 >= -2 and (i-j)//2 < 2
    }""",
    "diagonal": "kernel(p0: T[5]) -> (r0: T[5,5]) {\n r0[i,j] += p0[i] if i == j\n}",
    "ragged": "kernel(p0: T[11]) -> (r0: T[4]) {\n j<3: r0[i] += p0[j+i*3] if j+i*3 < 11\n}",
    "two results": """kernel(p0: T[8], p1: T[10], p2: T[10]) -> (r0: T[10], r1: T[10]) {
      r0[i] += p0[i]*p1[i] if i < 8
      r0[i] += p0[i-2]*p1[i] if i >= 2
      r1[i] += p0[i]*p2[i] if i < 8
      r1[i] += p0[i-2]*p2[i] if i >= 2
    }""",
}
NATIVE = target_for("native")


def tidied(text: str, dtype: str) -> Kernel:
    kernel = parse_kernel(text.replace("T[", f"{dtype}["))
    return Kernel.canonical(kernel.params, kernel.results, tidy(kernel.nests, kernel.tensors), kernel.locals)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize(
    "target", [GENERIC, NATIVE, NATIVE.in_mode("ordered")], ids=["generic", "native", "native, ordered"]
)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
def test_values(dtype: str, target: CTarget, cc: str, tmp_path: Path) -> None:
    kernels = [tidied(text, dtype) for text in KERNELS.values()]
    compiled = Compiled(kernels, target, tmp_path, cc, STRICT)
    for n, kernel in enumerate(kernels):
        args = samples(kernel)
        for got, want in zip(compiled(n, args), run_kernel(kernel, args), strict=True):
            assert close(got, want), f"{kernel}\n{compiled.functions[n].text}"


@pytest.mark.parametrize("name", ["blur", "stride", "rotation", "two results", "diagonal"])
def test_no_loop_tests_anything(name: str) -> None:
    assert "if (" not in c_function(tidied(KERNELS[name], "f32"), "f", GENERIC).text


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
def test_the_compiler_vectorises_every_part_of_a_blur(dtype: str, tmp_path: Path) -> None:
    function = c_function(tidied(BLUR, dtype), "f", GENERIC)
    text = prelude(GENERIC, function.text) + "\n" + function.text
    (tmp_path / "f.c").write_text(text)
    head = text.count("\n") - function.text.count("\n")
    loops = [head + k for k, line in enumerate(function.text.splitlines(), 1) if "for (" in line]
    vectorised = {"gcc": ["-fopt-info-vec-optimized"], "clang": ["-Rpass=loop-vectorize", "-Rpass=slp-vectorizer"]}
    command = [COMPILERS[0], *GENERIC.flags, *vectorised[COMPILERS[0]], "-c", "f.c", "-o", "f.o"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    lines = {int(n) for n in re.findall(r"f\.c:(\d+):\d+: (?:optimized|remark)", said)}
    # clang tells of the statement, one line below the loop, where it unrolled the loop.
    assert len(loops) == 5
    assert all({line, line + 1} & lines for line in loops), said
