"""Gradients of ONNX operators against PyTorch's autograd in double precision, hard points included."""

from __future__ import annotations

import pytest

from tests.ops.torch_cases import elementwise, movement, reduction, sampling, selection
from tests.ops.torch_cases.case import Case
from tests.ops.torch_cases.check import check


@pytest.mark.parametrize("case", elementwise.CASES, ids=str)
def test_operators_on_each_element(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", reduction.CASES, ids=str)
def test_reductions(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", movement.CASES, ids=str)
def test_operators_that_move_elements(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", selection.CASES, ids=str)
def test_operators_that_select_by_data(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", sampling.CASES, ids=str)
def test_operators_at_computed_places(case: Case) -> None:
    check(case)
