"""Kernels called by name from C, end to end: the example, and the signatures that the course's graders call."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from dlc_backend_c.backend import C
from dlc_frontend_kernel.frontend import KernelText

from dlc import Report, Source, Spec
from dlc.graph import Graph
from tests.backend_c.models import content, plan_of, shell
from tests.tools import SANITIZE, SANITIZING

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "data" / "kernel"
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-g")

# In the order of the cases: inputs, then outputs that are not inputs.
PROJECT1 = {
    "example": "const float *B, const float *C, float *A",
    "case1": "float *A",
    "case2": "float *A",
    "case3": "const int32_t *B, const int32_t *C, int32_t *A",
    "case4": "const float *B, const float *C, float *A",
    "case5": "const float *B, const float *C, const float *D, const float *alpha, const float *beta, float *A",
    "case6": "const float *B, const float *C, float *A",
    "case7": "const float *A, float *B",
    "case8": "const float *B, float *A",
    "case9": "const float *B, const float *C, const float *D, float *A",
    "case10": "const float *B, float *A",
}
# Inputs that the gradients read, then gradients of outputs, then of what was asked for.
PROJECT2 = {
    "case1": "const float *B, const float *dC, float *dA",
    "case2": "const float *A, const float *dB, float *dA",
    "case3": "const float *B, const float *dC, float *dA",
    "case4": "const float *B, const float *C, const float *dA, float *dB, float *dC",
    "case5": "const float *C, const float *D, const float *dA, float *dB",
    "case6": "const float *C, const float *dA, float *dB",
    "case7": "const float *dB, float *dA",
    "case8": "const float *dB, float *dA",
    "case9": "const float *dB, float *dA",
    "case10": "const float *dA, float *dB",
}


def parsed(path: Path) -> Graph:
    return KernelText().parse(Source(path), Report())


def written(graph: Graph, prefix: str, place: Path) -> str:
    """The header; the sources are written to `place`."""
    artifact = C.from_spec(Spec.parse(f"c{{prefix={prefix} lib=none cpu=generic}}")).emit(plan_of(graph), Report())
    for name in (f"{prefix}.h", f"{prefix}.c"):
        (place / name).write_bytes(content(artifact, name))
    return content(artifact, f"{prefix}.h").decode("ascii")


def parameters(header: str) -> str:
    found = re.search(r"_call\(([^;]*)\);", header)
    return re.sub(r"\s+", " ", found[1]).strip() if found else ""


@pytest.mark.parametrize("cc", SANITIZING)
def test_the_example_calls_its_kernel(cc: str, tmp_path: Path) -> None:
    header = written(parsed(ROOT / "examples" / "blur.kernel"), "blur", tmp_path)
    assert parameters(header) == "const float *B, float *A"
    shutil.copy(ROOT / "examples" / "c" / "blur.c", tmp_path / "main.c")
    shell(cc, *STRICT, *SANITIZE, "main.c", "blur.c", "-o", "run", "-lm", cwd=tmp_path)
    assert shell("./run", cwd=tmp_path).startswith("8 x 8 means, ")


@pytest.mark.parametrize(
    ("project", "case", "expected"),
    [(p, case, text) for p, cases in (("project1", PROJECT1), ("project2", PROJECT2)) for case, text in cases.items()],
)
def test_signatures_are_in_the_order_of_the_convention(project: str, case: str, expected: str, tmp_path: Path) -> None:
    header = written(parsed(CASES / project / f"{case}.json"), "kernel", tmp_path)
    assert parameters(header).removesuffix(", void *arena") == expected


MAIN = """\
#include "kernel.h"
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    float *A = malloc(16 * 16 * sizeof *A);
    void *arena = aligned_alloc(KERNEL_ARENA_ALIGN, KERNEL_ARENA_BYTES);
    int i, wrong = 0;
    for (i = 0; i < 256; i++)
        A[i] = (float)i;
    if (kernel_call(A, arena) != KERNEL_OK)
        return 1;
    for (i = 0; i < 256; i++)
        wrong += A[i] != (float)(i % 16 * 16 + i / 16);
    free(A);
    free(arena);
    printf("%d wrong\\n", wrong);
    return 0;
}
"""


@pytest.mark.parametrize("cc", SANITIZING)
def test_a_tensor_is_transposed_in_its_place(cc: str, tmp_path: Path) -> None:
    (tmp_path / "t.kernel").write_text("A<16,16>[i,j] = A<16,16>[j,i];\n")
    assert "int kernel_call(float *A, void *arena);" in written(parsed(tmp_path / "t.kernel"), "kernel", tmp_path)
    (tmp_path / "main.c").write_text(MAIN)
    shell(cc, "-std=c11", *STRICT[1:], *SANITIZE, "main.c", "kernel.c", "-o", "run", "-lm", cwd=tmp_path)
    assert shell("./run", cwd=tmp_path) == "0 wrong\n"
