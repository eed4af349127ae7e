"""Many kernels and their gradients as C functions of one library, held against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dlc_backend_c.target import CTarget

from tests.frontend_kernel.brute_force import run
from tests.frontend_kernel.derivatives import gradients
from tests.frontend_kernel.properties import check_gradients_are, compare, seeds_of
from tests.frontend_kernel.random_cases import inputs
from tests.frontend_kernel.small_language import Case
from tests.frontend_kernel.through_dlc import CompiledGraphs, as_double, parse


def check_compiled(cases: Sequence[Case], seeds: Sequence[int], target: CTarget, folder: Path, cc: str) -> None:
    """Compile the kernels, every second one in double precision, and hold results and gradients against brute force.

    Raises:
        Wrong: the first kernel that computes something else.
    """
    typed = [as_double(c) if n % 2 and c.dtype == "float" else c for n, c in enumerate(cases)]
    jobs = [(c, s, grad) for c, s in zip(typed, seeds, strict=True) for grad in (False, True) if c.grad_to or not grad]
    library = CompiledGraphs([parse(c, grad=grad) for c, _, grad in jobs], target, folder, cc)
    for n, (case, seed, grad) in enumerate(jobs):
        values, weights = inputs(case, seed), seeds_of(case, seed + 1)
        got = library(n, values, weights)
        if grad:
            check_gradients_are(case, got, gradients(case, values, weights, case.grad_to))
        else:
            for name, want in run(case, values).items():
                compare(case, name, got[name], want)
