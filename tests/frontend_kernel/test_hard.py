"""Forty gradients that are hard to turn into gathers, against their closed forms: built by `dlc build`, run as C."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.frontend_kernel.closed_forms import Array, closed_form
from tests.frontend_kernel.properties import check_written, seeds_of
from tests.frontend_kernel.random_cases import inputs
from tests.frontend_kernel.read_case import DATA, read_case
from tests.frontend_kernel.small_language import Case
from tests.frontend_kernel.through_dlc import parse
from tests.models.building import Bench

HARD = sorted([*(DATA / "hard").glob("*.json"), *(DATA / "hard_more").glob("*.json")])
LIMIT = {"float": 1e-5, "double": 1e-12}
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


@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("path", HARD, ids=lambda p: p.stem)
def test_closed_form(path: Path, dtype: str, bench: Bench, tmp_path: Path) -> None:
    case = read_case(path)
    source = tmp_path / path.name
    source.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"data_type": dtype}), encoding="utf-8")
    program = bench.build(source, tmp_path / "out").program
    tensors, seed = drawn(case, np.float32 if dtype == "float" else np.float64)
    given = {**tensors, f"d{case.outs[0]}": seed}
    assert [p.name for p in program.signature.outputs] == [f"d{name}" for name in case.grad_to]
    got = program(**{p.name: given[p.name] for p in program.signature.inputs})
    for name in case.grad_to:
        want = closed_form(case.name, name, {n: t.astype(np.float64) for n, t in tensors.items()}, seed)
        found = got[f"d{name}"]
        assert found.shape == want.shape
        assert np.max(np.abs(found - want)) <= LIMIT[dtype] * np.max(np.abs(want)), f"d{name}\n{found}\n{want}"


def drawn(case: Case, dtype: type[np.floating]) -> tuple[dict[str, Array], Array]:
    """Inputs of magnitude 0.5 to 1.5 and a gradient of the output, exactly in this type."""
    values, seeds = inputs(case, 11), seeds_of(case, 12)
    out = case.outs[0]
    assert all(len(v) == math.prod(case.shapes[n]) for n, v in values.items())
    tensors = {n: np.reshape(np.array(v, dtype), case.shapes[n]) for n, v in values.items()}
    return tensors, np.reshape(np.array(seeds[out], dtype), case.shapes[out])
