"""The forward cases by the command line: built with strict floats, run, verified, and equal to plain loops in C."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.frontend_kernel.test_course_forward import DATA, FORMULAS
from tests.frontend_kernel.texts import Array
from tests.models.building import Bench

PLAIN = r"""
#define FOR(i, n) for (int i = 0; i < n; i++)
void example(float B[32][16], float C[32][16], float A[32][16]) { FOR(i, 32) FOR(j, 16) A[i][j] = C[i][j] * B[i][j]; }
void case1(float A[32][16]) { FOR(i, 32) FOR(j, 16) A[i][j] = 2; }
void case2(float A[16][8]) { FOR(i, 16) FOR(j, 8) A[i][j] = A[i][j] + 2; }
void case3(int B[16][32], int C[16][32], int A[16][32]) { FOR(i, 16) FOR(j, 32) A[i][j] = B[i][j] + C[i][j]; }
void case4(float B[16][32], float C[32][32], float A[16][32]) {
  FOR(i, 16) FOR(j, 32) FOR(k, 32) A[i][j] = A[i][j] + B[i][k] * C[k][j];
}
void case5(float B[16][32], float C[32][32], float D[16][32], float *alpha, float *beta, float A[16][32]) {
  FOR(i, 16) FOR(j, 32) FOR(k, 32) A[i][j] = A[i][j] + *alpha * (B[i][k] * C[k][j]);
  FOR(i, 16) FOR(j, 32) A[i][j] = A[i][j] + *beta * D[i][j];
}
void case6(float B[2][16][7][7], float C[8][16][3][3], float A[2][8][5][5]) {
  FOR(n, 2) FOR(k, 8) FOR(p, 5) FOR(q, 5) FOR(c, 16) FOR(r, 3) FOR(s, 3)
    A[n][k][p][q] = A[n][k][p][q] + B[n][c][p + r][q + s] * C[k][c][r][s];
}
void case7(float A[32][16], float B[16][32]) { FOR(i, 16) FOR(j, 32) B[i][j] = A[j][i]; }
void case8(float B[8][16], float A[8][2][16]) { FOR(i, 8) FOR(j, 2) FOR(k, 16) A[i][j][k] = B[i][k]; }
void case9(float B[16][32][8], float C[32][32], float D[8][32], float A[16][32]) {
  FOR(i, 16) FOR(j, 32) FOR(k, 32) FOR(l, 8) A[i][j] = A[i][j] + B[i][k][l] * C[k][j] * D[l][j];
}
void case10(float B[10][10], float A[8][8]) {
  FOR(i, 8) FOR(j, 8) A[i][j] = (B[i][j] + B[i + 1][j] + B[i + 2][j]) / 3;
}
"""


def command(line: str, folder: Path) -> str:
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "dlc", *line.split()],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "plain.c").write_text(PLAIN)
    flags = ("-std=c99", "-O1", "-ffp-contract=off", "-fPIC", "-shared")
    subprocess.run(["gcc", *flags, "plain.c", "-o", "plain.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "plain.so"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_strict_programs_equal_plain_loops_to_the_last_bit(
    name: str, plain: ctypes.CDLL, bench: Bench, tmp_path: Path
) -> None:
    built = bench.build(DATA / f"{name}.json", tmp_path / "out", target="c{math=ordered}")
    rng = np.random.default_rng(0)
    given: dict[str, Array] = {
        p.name: rng.uniform(-10, 10, p.type.shape).astype(p.type.dtype.numpy) for p in built.program.signature.inputs
    }
    ((output, result),) = built(given).items()
    (port,) = built.program.signature.outputs
    arrays = {n: np.array(a) for n, a in given.items()}
    if output not in arrays:
        arrays[output] = np.zeros(port.type.shape, port.type.dtype.numpy)
    getattr(plain, name)(*(ctypes.c_void_p(a.ctypes.data) for a in arrays.values()))
    assert result.tobytes() == arrays[output].tobytes()


def test_a_case_is_built_run_and_verified_by_the_command_line(tmp_path: Path) -> None:
    case = DATA / "case10.json"
    command(f"build {case} -q -o blur", tmp_path)
    assert "float32[8,8]" in command("run blur", tmp_path)
    assert "ok" in command(f"verify blur --model {case}", tmp_path)


def test_listings_tell_functions_and_reductions(tmp_path: Path) -> None:
    message = command("list kernel", tmp_path)
    for text in ("erf  ", "max[k]  ", "select  "):
        assert text in message
