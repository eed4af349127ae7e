"""Kernels of scalar functions, with constants everywhere: compiled C computes what the reference computes.

For a long run: `python benchmarks/kernel_fuzz.py --kernels 0 --functions 5000`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontend_kernel.random_functions import check_functions, check_texts
from tests.machines import MACHINES, target_of
from tests.tools import COMPILERS

FLAGS = ("-O0", "-Wall", "-Wextra", "-Werror", "-Wno-psabi")

NAMED = {
    # Two variables of one name, from what picks lanes of vectors and from what C computes once.
    "bodies": """kernel f(P: float[12,3], m: float[12]) -> (A: float[12,3]) {
 R<12,12>[i,j] = sum[d]((P[j,d]-P[i,d])*(P[j,d]-P[i,d]))+0.01;
 A[i,d] = m[j]*(P[j,d]-P[i,d])/sqrt(R[i,j]); }""",
    "pairs": """kernel f(P: f64[7,3], m: f64[7]) -> (A: f64[7,3]) {
 R<7,7>[i,j] = sum[d]((P[j,d]-P[i,d])*(P[j,d]-P[i,d]))+1/3;
 A[i,d] = m[j]*(P[j,d]-P[i,d])/(R[i,j]*sqrt(R[i,j])); }""",
    # Divisors made of constants.
    "gelu": "kernel f(x: float[6]) -> (y: float[6]) { y[i] = x[i] * erf(x[i] / sqrt(2)); }",
    "gelu2": "kernel f(x: f64[33]) -> (y: f64[33]) { y[i] = 0.5*x[i]*(1 + erf(x[i]/sqrt(2)))/exp(1)/sqrt(2*3); }",
    "powers": "kernel f(x: float[9]) -> (y: float[9]) { y[i] = pow(abs(x[i])+1, sqrt(2)/2)/pow(2, 0.5); }",
    "chosen": "kernel f(x: float[17]) -> (y: float[17]) { y[i] = x[i]/select(i < 5, sqrt(2), max(1, 3)); }",
    "constant": "kernel f(x: float[5]) -> (y: float[5]) { t<5>[i] = sqrt(2)/3; y[i] = x[i]*t[i]/(1/3); }",
    "divided": "kernel f(x: float[16]) -> (y: float[16]) { y[i] = x[i]/log(3) + 1/(x[i]*sqrt(2)); }",
    "factor": """kernel f(X: float[5,17], P: float[17,5]) -> (Y: float[5,17]) {
 Y[i,j] = sum[d](select(sqrt(2) > P[j,d], 1, 3)*P[i,d]); }""",
    # Two sums into one result, the second in blocks of rows: in the gradient of v.
    "sums": """kernel f(X: float[12,31], v: float[31], P: float[31,5]) -> (Y: float[12,31]) {
 T<12,31>[i,j] = sum[d](X[i,j]*sin(v[j]-P[j,d])*P[i,d]);
 Y[i,j] = v[j] + T[i,j]; }""",
    # A table that is computed once, and vectors of a sum.
    "table": """kernel f(X: float[16,23], v: float[23]) -> (Y: float[16,23], Z: float[16]) {
 T<16,23>[i,j] = X[i,j]*X[i,j];
 Y[i,j] = sin(T[i,j]/9);
 Z[i] = sum[j](T[i,j]/sqrt(v[j]*v[j]+1))*(log(3)/2); }""",
    # One value in all elements of a gradient.
    "spread": """kernel f(X: f32[1,31], v: f32[31]) -> (Y: f32[1,31], Z: f32[1]) {
 Y[i,j] = tanh(X[i,j]);
 Z[i] = sum[j](Y[i,j] + v[j])*0.5; }""",
    "compared": "kernel f(x: float[8]) -> (y: float[8]) { y[i] = select(x[i] < sqrt(2), x[i], sqrt(2))*min(2, 1/3); }",
}


@pytest.mark.parametrize("machine", MACHINES)
def test_compiled_kernels_compute_what_the_reference_computes(machine: str, tmp_path: Path) -> None:
    """Drawn ones, in one library per machine."""
    check_functions(range(6), target_of(MACHINES[machine]), tmp_path, COMPILERS[len(machine) % len(COMPILERS)], FLAGS)


@pytest.mark.parametrize("machine", ["wide-vectors", "no-vectors", "odd-registers"])
def test_constants_and_names_in_all_places(machine: str, tmp_path: Path) -> None:
    texts = dict(enumerate(NAMED.values()))
    check_texts(texts, target_of(MACHINES[machine]), tmp_path, COMPILERS[0], FLAGS)
