"""Forty gradients that are hard to turn into gathers, against their closed forms: built by `dlc build`, run as C."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import target_for

from tests.frontend_kernel.closed_forms import Array, closed_form
from tests.frontend_kernel.properties import check_written, seeds_of
from tests.frontend_kernel.random_cases import inputs
from tests.frontend_kernel.read_case import DATA, read_case
from tests.frontend_kernel.small_language import Case
from tests.frontend_kernel.through_dlc import CompiledGraphs, as_double, parse
from tests.models.building import Bench

HARD = sorted([*(DATA / "hard").glob("*.json"), *(DATA / "hard_more").glob("*.json")])
LIMIT = {"float32": 1e-5, "float64": 1e-12}
"""Of the largest element of a gradient."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("cache"))


def test_there_are_forty() -> None:
    assert len(HARD) == 40


@pytest.mark.parametrize("path", HARD, ids=lambda p: p.stem)
def test_gradients_are_gathers_without_tests_under_a_reduction(path: Path) -> None:
    case = read_case(path)
    check_written(case, parse(case, grad=True))


@pytest.mark.parametrize("path", HARD, ids=lambda p: p.stem)
def test_closed_form_in_float(path: Path, bench: Bench, tmp_path: Path) -> None:
    case = read_case(path)
    built = bench.build(path, tmp_path / "out")
    ports = built.program.signature
    tensors, seed = drawn(case, np.float32)
    given = {**tensors, f"d{case.outs[0]}": seed}
    assert [p.name for p in ports.outputs] == [f"d{name}" for name in case.grad_to]
    check_closed_form(case, tensors, seed, built({p.name: given[p.name] for p in ports.inputs}))


@pytest.fixture(scope="module")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> CompiledGraphs:
    """All forty in one library: forty more builds would take longer than the rest of this file."""
    graphs = [parse(as_double(read_case(path)), grad=True) for path in HARD]
    return CompiledGraphs(graphs, target_for("native"), tmp_path_factory.mktemp("doubles"))


@pytest.mark.parametrize("path", HARD, ids=lambda p: p.stem)
def test_closed_form_in_double(path: Path, doubles: CompiledGraphs) -> None:
    case = read_case(path)
    tensors, seed = drawn(case, np.float64)
    flat = {name: t.ravel().tolist() for name, t in tensors.items()}
    got = doubles(HARD.index(path), flat, {case.outs[0]: seed.ravel().tolist()})
    check_closed_form(case, tensors, seed, got)


def check_closed_form(case: Case, tensors: Mapping[str, Array], seed: Array, got: Mapping[str, Array]) -> None:
    exact = {n: t.astype(np.float64) for n, t in tensors.items()}
    for name in case.grad_to:
        want = closed_form(case.name, name, exact, seed.astype(np.float64))
        found = got[f"d{name}"]
        assert found.dtype == seed.dtype
        assert found.shape == want.shape
        limit = LIMIT[found.dtype.name] * np.max(np.abs(want))
        assert np.max(np.abs(found - want)) <= limit, f"d{name}\n{found}\n{want}"


def drawn(case: Case, dtype: type[np.floating]) -> tuple[dict[str, Array], Array]:
    """Inputs of magnitude 0.5 to 1.5 and a gradient of the output, exactly in this type."""
    values, seeds = inputs(case, 11), seeds_of(case, 12)
    out = case.outs[0]
    assert all(len(v) == math.prod(case.shapes[n]) for n, v in values.items())
    tensors = {n: np.reshape(np.array(v, dtype), case.shapes[n]) for n, v in values.items()}
    return tensors, np.reshape(np.array(seeds[out], dtype), case.shapes[out])
