"""Random kernels: dlc computes what brute force computes, forward and backward, interpreted and as compiled C."""

from __future__ import annotations

import random

import pytest
from dlc_backend_c.target import GENERIC, target_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.frontend_kernel.compiled import check_compiled
from tests.frontend_kernel.properties import check_forward, check_gradient, check_scatter, check_second_order
from tests.frontend_kernel.random_cases import cases, random_case
from tests.frontend_kernel.small_language import Case
from tests.tools import COMPILERS

SEEDS = st.integers(0, 1 << 20)
QUIET = [HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large]


@settings(max_examples=60, suppress_health_check=QUIET)
@given(case=cases(), seed=SEEDS)
def test_forward(case: Case, seed: int) -> None:
    check_forward(case, seed)


@settings(max_examples=40, suppress_health_check=QUIET)
@given(case=cases("int"), seed=SEEDS)
def test_forward_of_integers(case: Case, seed: int) -> None:
    check_forward(case, seed)


@settings(max_examples=120, suppress_health_check=QUIET)
@given(case=cases(), seed=SEEDS)
def test_gradient(case: Case, seed: int) -> None:
    check_gradient(case, seed)


@settings(max_examples=50, suppress_health_check=QUIET)
@given(case=cases(), seed=SEEDS)
def test_gather_equals_scatter(case: Case, seed: int) -> None:
    check_scatter(case, seed)


@settings(max_examples=25, suppress_health_check=QUIET)
@given(case=cases(statements=1), seed=SEEDS)
def test_second_order(case: Case, seed: int) -> None:
    check_second_order(case, seed)


@pytest.mark.parametrize("cc", COMPILERS)
def test_compiled(cc: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Thirty kernels and their gradients, in float and double, in one library per compiler."""
    rng = random.Random(cc)
    drawn = [random_case(rng, dtype="int" if n % 6 == 5 else "float") for n in range(30)]
    target = target_for("native") if cc == "gcc" else GENERIC
    check_compiled(drawn, range(30), target, tmp_path_factory.mktemp("c"), cc)
